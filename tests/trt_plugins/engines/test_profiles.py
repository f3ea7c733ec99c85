"""Profiles: read from text, derived from the recorded ranges, and held against the model, before anything is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from deployops.errors import UsageError
from deployops.trt_plugins.engines.profile_text import profile_text, read_profile
from deployops.trt_plugins.engines.profiles import resolve_profiles
from deployops.trt_plugins.engines.source_model import SourceModel, read_source_model

F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def model(
    tmp_path: Path, inputs: dict[str, tuple[int, list[Any]]], declared: list[str] | None = None
) -> SourceModel:
    """A model with these inputs, and with the ranges that an export would have recorded."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
        [helper.make_tensor_value_info(f"{n}_out", t, d) for n, (t, d) in inputs.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    if declared is not None:
        proto.metadata_props.add(key="deployops.manifest", value=json.dumps({"inputs": declared}))
    onnx.save(proto, tmp_path / "m.onnx")
    return read_source_model(tmp_path / "m.onnx")


IMAGES = {"x": (F32, ["n", 3, "h", "w"])}
DECLARED = ["x:float32[n=1..64@8,3,h=64..512%32@224,w=64..512%32@256]"]


# --- the text ----------------------------------------------------------------------------------------------------


def test_three_shapes_one_shape_and_several_inputs_are_read() -> None:
    assert read_profile("x=1x3,8x3,32x3") == {"x": ((1, 3), (8, 3), (32, 3))}
    assert read_profile(" x = 4x3 ; n=-1,2,8;") == {"x": ((4, 3),) * 3, "n": ((-1,), (2,), (8,))}


def test_names_may_hold_any_character() -> None:
    assert read_profile("a=b;c:0=1x2;xs.0=3") == {"a=b;c:0": ((1, 2),) * 3, "xs.0": ((3,),) * 3}


def test_plain_data_means_the_same() -> None:
    assert read_profile({"x": [[1, 3], [8, 3], [32, 3]]}) == read_profile("x=1x3,8x3,32x3")
    assert read_profile({"x": (4, 3)}) == read_profile("x=4x3")


@given(
    st.dictionaries(
        st.text(
            st.characters(exclude_characters="=; \n", codec="utf-8", categories=("L", "N", "P")), min_size=1
        ),
        st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * 3), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    )
)
def test_a_profile_written_as_text_is_read_back(dims: dict[str, list[tuple[int, int, int]]]) -> None:
    profile = {name: tuple(tuple(d[k] for d in axes) for k in range(3)) for name, axes in dims.items()}
    assert read_profile(profile_text(profile)) == profile  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an empty profile"),
        ("x", "cannot be read at 'x'"),
        ("=1x3", "cannot be read"),
        ("x=1x3,8x3", "2 shapes; expected three"),
        ("x=1x3,8x3,9x3,10x3", "4 shapes; expected three"),
        ("x=1xy,2x3,3x3", "'1xy' is no shape of `x`"),
        ("x=", "'' is no shape of `x`"),
        ("x=1x3;x=2x3", "has `x` twice"),
        ("x=99999999999", "no shape"),
        ("x=4294967296", "beyond TensorRT's sizes"),
        ("x=" + "1x" * 6000 + "1", "characters; at most"),
    ],
)
def test_a_text_that_is_no_profile_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_profile(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "meant"),
    [
        ("\uff11x4", "1x4"),
        ("1\u00d74", "1x4"),
        ("1X4", "1x4"),
        ("\u0663x4", "3x4"),
        ("1 x 4", "1x4"),
        ("1*4", "1x4"),
    ],
)  # full-width and Arabic digits, other signs
def test_a_shape_in_other_characters_is_told_with_what_is_meant(shape: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_profile(f"x={shape}")
    assert str(caught.value).endswith(
        f"is no shape of `x`; expected sizes such as 1x3x224x224; did you mean {meant}?"
    )


@pytest.mark.parametrize(
    "shape", ["nx4", "1..4x4", "1-4x4", "[1,4]", "+1x4", "1.0x4", "1e3", "1x4\x00", "1x4,2x4,", "\u2155x4"]
)
def test_what_is_no_shape_in_any_characters_is_told_without_a_guess(shape: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_profile(f"x={shape}")
    assert "is no shape of `x`" in str(caught.value)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["a=b", "a,b", "a:0", "a;b", "x y", "\u5165", "a=1", "a=2x4", "=", "'", "a\nb"]
)
def test_a_name_with_the_signs_of_a_profile_in_it_is_read(name: str) -> None:
    assert read_profile(f"{name}=1x3,8x3,32x3") == {name: ((1, 3), (8, 3), (32, 3))}


def test_a_long_text_is_not_repeated_whole_in_the_error() -> None:
    with pytest.raises(UsageError) as caught:
        read_profile("x=" + "1" * 5000)
    assert len(str(caught.value)) < 400


def test_numpys_whole_numbers_are_whole_numbers() -> None:
    found = read_profile({"x": (np.int64(3), np.int32(4))})
    assert found == {"x": ((3, 4),) * 3}
    assert all(type(d) is int for shape in found["x"] for d in shape)


NO_PROFILES: tuple[Any, ...] = (
    {"x": b"11"}, {"x": [b"1", b"2", b"3"]}, {"x": "1x3"}, {"x": [[1, 3], [2, 3]]}, {"x": [1, 2.5]}, {"x": 3}, [1],
    {"x": [True]}, b"x=1",
)  # fmt: skip


@pytest.mark.parametrize("data", NO_PROFILES, ids=repr)
def test_data_that_are_no_profile_are_refused(data: Any) -> None:
    with pytest.raises(UsageError):
        read_profile(data)


# --- derived -----------------------------------------------------------------------------------------------------


def test_the_profile_comes_from_the_ranges_of_the_export_best_at_the_recorded_sizes(tmp_path: Path) -> None:
    found = resolve_profiles(model(tmp_path, IMAGES, DECLARED))
    assert found.profiles == ({"x": ((1, 3, 64, 64), (8, 3, 224, 256), (64, 3, 512, 512))},)
    assert found.notes == ()


def test_without_a_recorded_size_it_is_best_at_the_largest_and_says_so(tmp_path: Path) -> None:
    found = resolve_profiles(model(tmp_path, {"x": (F32, ["n", 4])}, ["x:float32[n=2..30%4,4]"]))
    # multiples of 4 from 2 to 30
    assert found.profiles == ({"x": ((4, 4), (28, 4), (28, 4))},)
    assert "best at the largest size of `n` = 28" in found.notes[0]


def test_inputs_that_do_not_vary_need_none(tmp_path: Path) -> None:
    assert resolve_profiles(model(tmp_path, {"x": (F32, [2, 4])})).profiles == ()


@pytest.mark.parametrize("declared", [None, ["x:float32[n,3,h=64..,w=1..8]"]])
def test_without_ranges_the_error_says_what_to_write(tmp_path: Path, declared: list[str] | None) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_profiles(model(tmp_path, IMAGES, declared))
    text = str(caught.value)
    assert "no largest size recorded for `n`, `h`" in text
    assert "--profile 'x=<smallest n>x3x<smallest h>x<smallest w>,<best n>x3x" in text
    assert "--input 'x:float32[n=1..64,3,224,224]'" in text


def test_ranges_that_were_edited_to_nonsense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_profiles(model(tmp_path, {"x": (F32, ["n"])}, ["x:float32[n=9..5]"]))
    assert "the ranges recorded in m.onnx do not fit it" in str(caught.value)


# --- given -------------------------------------------------------------------------------------------------------


def test_given_profiles_are_kept_in_their_order(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, ["n", 4]), "y": (F32, ["n", 2])})
    found = resolve_profiles(source, ["y=1x2,2x2,4x2; x=1x4,2x4,4x4", {"x": (8, 4), "y": (8, 2)}])
    assert [list(p) for p in found.profiles] == [["x", "y"], ["x", "y"]]
    assert found.profiles[0]["x"] == ((1, 4), (2, 4), (4, 4))
    assert found.profiles[1] == {"x": ((8, 4),) * 3, "y": ((8, 2),) * 3}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("z=1x3x64x64", "the model has no input `z`; it has `x`"),
        ("z=1x3x64x64", "`x` is missing: --profile 'x=<smallest n>x3x"),
        ("x=1x3x64", "`x` has 4 dims, nx3xhxw; 1x3x64 has 3"),
        ("x=1x4x64x64", "`x`, dim 1 is fixed at 3 in the model, and 4 is given"),
        (
            "x=8x3x64x64,4x3x64x64,64x3x64x64",
            "`x`, dim 0, `n`, goes 8, 4, 64; expected the smallest, the best, the largest",
        ),
        ("x=4x3x64x64,4x3x64x64,2x3x64x64", "`x`, dim 0, `n`, goes 4, 4, 2"),
        ("x=-1x3x64x64", "has a negative size"),
        ("x=1x3x64x64,8x3x64x64,65x3x64x64", "`n` was exported for 1..64, and 65 is outside"),
        ("x=0x3x64x64,8x3x64x64,64x3x64x64", "`n` was exported for 1..64, and 0 is outside"),
        (
            "x=1x3x64x64,1x3x100x64,1x3x512x64",
            "`h` was exported for 64..512%32, and 100 is no multiple of 32",
        ),
    ],
)
def test_a_profile_that_does_not_fit_the_model_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_profiles(model(tmp_path, IMAGES, DECLARED), [text])
    assert reason in str(caught.value)


def test_all_faults_are_said_at_once_with_the_profile_s_number(tmp_path: Path) -> None:
    good, bad = "x=1x3x64x64", "x=1x4x64x48; xx=1"
    with pytest.raises(UsageError) as caught:
        resolve_profiles(model(tmp_path, IMAGES, DECLARED), [good, bad])
    text = str(caught.value)
    assert text.startswith("profile 2 does not fit m.onnx")
    assert "no input `xx`; it has `x`; did you mean `x`?" in text
    assert "dim 1 is fixed at 3" in text
    assert "`w` was exported for 64..512%32, and 48 is outside" in text


def test_dims_of_one_name_have_one_size(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, ["n", 4]), "y": (F32, ["n", 2])})
    with pytest.raises(UsageError) as caught:
        resolve_profiles(source, ["x=1x4,2x4,8x4; y=1x2,4x2,8x2"])
    assert "`n` is one size in the model, and the best shapes give it two: 2 in `x`, 4 in `y`" in str(
        caught.value
    )


def test_dims_without_names_are_not_taken_for_one(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, [None, 4]), "y": (F32, [None, 2])})
    assert resolve_profiles(source, ["x=1x4,2x4,8x4; y=3x2,4x2,5x2"]).profiles


@pytest.mark.parametrize(("dims", "values"), [([2], "4x4,8x8,16x16"), ([], "4,8,16")])
def test_whole_numbers_of_a_fixed_shape_are_given_as_values(
    tmp_path: Path, dims: list[int], values: str
) -> None:
    source = model(tmp_path, {"x": (F32, ["n"]), "size": (I64, dims)})
    [profile] = resolve_profiles(source, [f"x=1,2,3; size={values}"]).profiles
    assert profile["size"] == tuple((v,) * (dims[0] if dims else 1) for v in (4, 8, 16))
    with pytest.raises(UsageError) as caught:
        resolve_profiles(source, ["x=1,2,3; size=4x4x4"])
    counted = "2 whole numbers" if dims else "1 whole number,"
    assert f"`size` holds {counted}" in str(caught.value)


def refusal(source: SourceModel, given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        resolve_profiles(source, [given])
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("X=1", "no input `X`; it has `x`; did you mean `x`?"),
        ("\uff58=1", "no input `\uff58`; it has `x`; did you mean `x`?"),
        ("x=1; \u200bx=2", "no input '\\u200bx'; it has `x`; did you mean `x`?"),  # a zero-width space
        ("  =1", "no input ' '; it has `x`"),
        ("x=1 y=2", "no input `x=1 y`; it has `x` (between the inputs of a profile stands `;`)"),
    ],
)
def test_a_name_that_only_looks_right_is_told_with_what_is_meant(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in refusal(model(tmp_path, {"x": (F32, ["n"])}), text)


@pytest.mark.parametrize("name", [" x ", "x ", "\tx", " "])
def test_blanks_around_a_name_need_not_be_written(tmp_path: Path, name: str) -> None:
    source = model(tmp_path, {name: (F32, ["n"])})
    assert resolve_profiles(source, [f"{name}=1,2,4"]).profiles == ({name: ((1,), (2,), (4,))},)


def test_one_input_in_two_spellings_is_refused(tmp_path: Path) -> None:
    said = refusal(model(tmp_path, {" x": (F32, ["n"])}), {"x": (1,), " x": (2,)})
    assert said == "a profile has the input ' x' twice, once with other blanks in its name"


@pytest.mark.parametrize("names", [("a=1;b",), ("a=1x4;b",), (" x", "x ")])
def test_a_name_that_no_text_can_say_is_asked_for_as_data(tmp_path: Path, names: tuple[str, ...]) -> None:
    source = model(tmp_path, {name: (F32, ["n"]) for name in names})
    said = refusal(source, {})
    assert "no text can name" in said
    assert "--profile" not in said
    assert resolve_profiles(source, [dict.fromkeys(names, (2,))]).profiles == (
        dict.fromkeys(names, ((2,),) * 3),
    )


def test_a_scalar_needs_no_profile_and_is_left_out_of_one(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, ["n"]), "scale": (F32, [])})
    wanted = ({"x": ((1,), (2,), (4,))},)
    assert resolve_profiles(source, ["x=1,2,4"]).profiles == wanted
    assert resolve_profiles(source, [{"x": ((1,), (2,), (4,)), "scale": ()}]).profiles == wanted
    assert "`scale` is a scalar, and has no dims; leave it out of the profile" in refusal(
        source, "x=1,2,4; scale=1"
    )


def test_values_of_a_shape_input_may_be_negative_but_in_order(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, ["n"]), "shift": (I64, [])})
    assert resolve_profiles(source, ["x=1; shift=-5,0,5"]).profiles[0]["shift"] == ((-5,), (0,), (5,))
    assert "`shift`, value 0 goes 5, 0, -5" in refusal(source, "x=1; shift=5,0,-5")


def test_an_input_without_numbers_is_left_out(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, ["n"]), "none": (I64, [0])})
    assert "`none` holds no numbers; leave it out of the profile" in refusal(source, "x=1; none=1")


def test_a_size_of_zero_is_the_smallest_of_a_dim_that_may_be_empty(tmp_path: Path) -> None:
    source = model(tmp_path, {"x": (F32, ["n", 4])})
    assert resolve_profiles(source, ["x=0x4,1x4,8x4"]).profiles == ({"x": ((0, 4), (1, 4), (8, 4))},)
    assert "dim 1 is fixed at 4 in the model, and 0 is given" in refusal(source, "x=1x0")
    assert "has a negative size" in refusal(source, {"x": ((-1, 4), (1, 4), (8, 4))})
    assert "`x` has 2 dims, nx4; the shape that is given has 0" in refusal(source, {"x": ()})


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((64, 225, 512), "225 is no multiple of 32: give 224 or 256"),
        ((64, 500, 511), "500 is no multiple of 32: give 480 or 512"),
        ((65, 224, 512), "65 is no multiple of 32: give 64 or 96"),
        ((33, 224, 512), "33 is outside"),  # the range itself is left
        ((64, 225, 544), "544 is outside"),
    ],
)
def test_a_size_of_which_only_the_multiple_is_wrong_is_told_which_to_give(
    tmp_path: Path, sizes: tuple[int, int, int], said: str
) -> None:
    given_ = "x=" + ",".join(f"1x3x{size}x256" for size in sizes)
    with pytest.raises(UsageError) as caught:
        resolve_profiles(model(tmp_path, IMAGES, DECLARED), [given_])
    assert said in str(caught.value)
    assert ("Export it again with a wider one" in str(caught.value)) == ("outside" in said)


def test_the_multiples_beside_it_are_given_only_where_the_range_has_them(tmp_path: Path) -> None:
    declared = ["x:float32[n=1..64,3,h=60..100%32,w]"]  # 64 and 96
    given_ = "x=1x3x70x256,1x3x99x256,1x3x99x256"
    with pytest.raises(UsageError, match=r"70 is no multiple of 32: give 64 or 96$"):
        resolve_profiles(model(tmp_path, IMAGES, declared), [given_])
    with pytest.raises(UsageError, match=r"99 is no multiple of 32: give 96$"):
        resolve_profiles(model(tmp_path, IMAGES, declared), ["x=1x3x99x256"])
