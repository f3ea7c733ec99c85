"""What `--input`, `--input-data` and example inputs promise."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deployops.errors import UsageError
from deployops.export.inputs.dim_guards import unmet_conditions
from deployops.export.inputs.input_spec import DTYPES
from deployops.export.inputs.signature import (
    InputSpec,
    Signature,
    Symbol,
    load_npz,
    parse_input,
    signature_from_specs,
    signature_from_values,
)
from deployops.validation.inputs.call_names import parameters

torch.set_num_threads(1)

# --- the text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:float32[3,4]", InputSpec("x", "float32", (3, 4))),
        ("x:float32[b,0]", InputSpec("x", "float32", (Symbol("b"), 0))),
        ("x:f16[b=1..64,3]", InputSpec("x", "float16", (Symbol("b", 1, 64), 3))),
        ("x:half[h=32..]", InputSpec("x", "float16", (Symbol("h", 32),))),
        ("x:double[h=..9]", InputSpec("x", "float64", (Symbol("h", 1, 9),))),
        ("x:long[n=0..]", InputSpec("x", "int64", (Symbol("n", 0),))),
        ("x:bf16[h=64..512%32@96]", InputSpec("x", "bfloat16", (Symbol("h", 64, 512, 96, 32),))),
        (" x : int [ n @ 7 , 3 ] ", InputSpec("x", "int32", (Symbol("n", example=7), 3))),
        (
            "ids:int64[b,s]=0..30521",
            InputSpec("ids", "int64", (Symbol("b"), Symbol("s")), value_range=(0, 30521)),
        ),
        ("x:float[2]=-1.5..2e-3", InputSpec("x", "float32", (2,), value_range=(-1.5, 0.002))),
        ("t:float32[]", InputSpec("t", "float32", ())),
        ("scale:float=0.5", InputSpec("scale", "float", value=0.5)),
        ("n:int=-3", InputSpec("n", "int", value=-3)),
        ("flag:bool=False", InputSpec("flag", "bool", value=False)),
        ("mode:str=fast, or = not", InputSpec("mode", "str", value="fast, or = not")),
        ("mode:str=", InputSpec("mode", "str", value="")),
        ("past:none", InputSpec("past", "none")),
        ("xs.0:bool[n]", InputSpec("xs.0", "bool", (Symbol("n"),))),
        ("d.input-ids:int8[n]", InputSpec("d.input-ids", "int8", (Symbol("n"),))),
    ],
)
def test_each_form_is_read(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 0, "the name of a parameter"),
        ("x", 1, "':' and a dtype"),
        ("x:", 2, "a dtype"),
        ("x:floaty[3]", 2, "'floaty' is none"),
        ("x:float32", 9, "write [] for a tensor with no dims"),
        ("x:float", 7, "a constant of the trace"),
        ("x:float32[3", 11, "',' or ']'"),
        ("x:float32[3 4]", 12, "',' or ']'"),
        ("x:float32[,3]", 10, "a size such as 224 or a name such as batch"),
        ("x:float32[-1]", 10, "a size such as 224 or a name such as batch"),
        ("x:float32[2*n]", 10, "Give it a name of its own"),
        ("x:float32[n/2]", 10, "Give it a name of its own"),
        ("x:float32[n=3]", 13, "for a fixed dim write the number alone"),
        ("x:float32[n=4..2]", 10, "empty range"),
        ("x:float32[n=4..4]", 10, "write the fixed dim 4"),
        ("x:float32[n=0..1]", 10, "torch.export fixes sizes 0 and 1"),
        ("x:float32[n=8..20%16]", 10, "write the fixed dim 16"),
        ("x:float32[n=4..8@9]", 10, "outside its range"),
        ("x:float32[n@1]", 10, "example size of 2 or more"),
        ("x:float32[s0]", 10, "a name that torch gives"),
        ("x:float32[lambda]", 10, "Python keyword"),
        ("x:float32[99999999999999999999]", 10, "64 bits"),
        ("x:uint8[3]=0..256", 14, "an integer from 0 to 255"),
        ("x:int64[3]=0..0.5", 14, "an integer"),
        ("x:int64[3]=5..1", 11, "5 is above 1"),
        ("x:bool[3]=0..1", 10, "no range of values"),
        ("x:float32[3]x", 12, "the end"),
        ("n:int=2.5", 6, "a 64-bit integer"),
        ("n:bool=1", 7, "true or false"),
        ("class:float32[3]", 0, "Python keyword"),
        ("past:none=3", 9, "nothing after 'none'"),
    ],
)
def test_a_fault_is_pointed_at(text: str, column: int, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_input(text)
    _, shown, caret, reason, example = str(caught.value).splitlines()
    assert shown == f"  {text}"
    assert caret.index("^") == column + 2
    assert expected in reason
    assert parse_input(example.removeprefix("Example: "))


_symbols = st.builds(
    lambda low, extra, multiple, example: _symbol(low * multiple, extra, multiple, example),
    st.integers(0, 40),
    st.none() | st.integers(2, 40),
    st.sampled_from([1, 1, 2, 32]),
    st.booleans(),
)


def _symbol(low: int, extra: int | None, multiple: int, example: bool) -> Symbol:
    high = None if extra is None else low + extra * multiple
    bare = Symbol("n", low, high, multiple=multiple)
    return Symbol("n", low, high, bare.at_least(max(2, low)) if example else None, multiple)


def _value_range(dtype: str) -> st.SearchStrategy[Any]:
    limits = DTYPES[dtype]
    if dtype == "bool" or dtype.startswith("complex"):
        return st.none()
    value = st.floats(allow_nan=False, allow_infinity=False) if limits is None else st.integers(*limits)
    return st.none() | st.tuples(value, value).map(lambda pair: tuple(sorted(pair)))


_tensors = st.sampled_from(list(DTYPES)).flatmap(
    lambda dtype: st.builds(
        InputSpec,
        st.from_regex(r"[a-z_][a-z0-9_]{0,3}x(\.[0-9])?", fullmatch=True),
        st.just(dtype),
        st.lists(st.integers(0, 2**63 - 1) | _symbols, max_size=4).map(tuple),
        st.none(),
        _value_range(dtype),
    )
)
_scalars = st.one_of(
    st.builds(InputSpec, st.just("p"), st.just("int"), st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.builds(InputSpec, st.just("p"), st.just("float"), st.none(), st.floats(allow_nan=False)),
    st.builds(InputSpec, st.just("p"), st.just("bool"), st.none(), st.booleans()),
    st.builds(InputSpec, st.just("p"), st.just("str"), st.none(), st.text()),
    st.just(InputSpec("p", "none")),
)


@given(_tensors | _scalars)
def test_the_text_of_a_spec_reads_back_as_the_spec(spec: InputSpec) -> None:
    assert parse_input(str(spec)) == spec


@given(st.text() | st.text("xn:float32int[],=.0123456789 *%@-e"))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"x:float32[{text}", f"x:int64[3]={text}", f"x:{text}"):
        try:
            parsed = parse_input(candidate)
        except UsageError:
            continue
        assert parse_input(str(parsed)) == parsed


def test_reading_a_spec_loads_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from deployops.export.inputs.signature import signature_from_specs as read;"
        "read(['x:float32[b,3]']).example_sizes();"
        "sys.exit(' '.join({'torch', 'numpy', 'onnx'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- symbols and sizes ------------------------------------------------------------------------------------


def test_a_bare_name_takes_over_the_range_declared_elsewhere() -> None:
    signature = signature_from_specs(["x:float32[n,3]", "y:float32[n=2..8,n]"])
    assert signature.symbols == {"n": Symbol("n", 2, 8)}
    assert signature.specs[0].shape == (Symbol("n", 2, 8), 3)
    assert signature.ranges() == {"n": "2..8"}
    assert signature.symbol_of("y", -1) == "n"
    assert signature.symbol_of("x", 1) is None


def test_two_different_ranges_for_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match=r"(?s)'n' is declared twice.*n=2\.\.8.*n=2\.\.9"):
        signature_from_specs(["x:float32[n=2..8]", "y:float32[n=2..9]"])


def test_an_input_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="x appears again"):
        signature_from_specs(["x:float32[3]", "x:float32[4]"])


def test_example_sizes_are_not_equal_by_accident() -> None:
    signature = signature_from_specs(["x:float32[b,4,h,w,64]", "ids:int64[c,s,t]"])
    sizes = signature.example_sizes()
    assert len({*sizes.values(), 4, 64}) == len(sizes) + 2
    assert sizes["h"] >= 32  # an image of a few pixels is a special case


@given(st.lists(_symbols, min_size=1, max_size=4), st.integers(1, 4), st.sampled_from(["float32", "int64"]))
@settings(deadline=None)
def test_sizes_keep_to_their_ranges(symbols: list[Symbol], count: int, dtype: str) -> None:
    named = [Symbol(f"n{i}", s.low, s.high, s.example, s.multiple) for i, s in enumerate(symbols)]
    signature = Signature((InputSpec("x", dtype, tuple(named)),))
    example = signature.example_sizes()
    others = signature.other_sizes(count)
    assert len(others) == count
    for symbol in named:
        assert symbol.allows(example[symbol.name])
        assert example[symbol.name] >= 2
        assert example[symbol.name] == (symbol.example or example[symbol.name])
        for other in others:
            assert symbol.allows(other[symbol.name])
            assert other[symbol.name] != example[symbol.name]


def test_the_lowest_size_is_checked_when_there_is_more_than_one_check() -> None:
    signature = signature_from_specs(["x:float32[b,3,h,w=16..]", "ids:int64[b,s=0..9]"])
    lowest = signature.other_sizes(3)[-1]
    assert (lowest["b"], lowest["s"], lowest["w"]) == (1, 0, 16)
    assert lowest["h"] > 1
    assert signature_from_specs(["x:float32[n=0..2]"]).other_sizes(2) == [{"n": 1}, {"n": 0}]


def test_no_variable_dim_means_no_other_sizes() -> None:
    signature = signature_from_specs(["x:float32[2,3]"])
    assert signature.example_sizes() == {}
    assert signature.other_sizes(2) == []
    assert signature.dynamic_shapes() == {}


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_tensors_have_the_declared_dtype_and_shape_and_repeat(dtype: str) -> None:
    signature = signature_from_specs([f"x:{dtype}[n,3]"])
    x = signature.make({"n": 5})["x"]
    assert (x.dtype, tuple(x.shape), x.device.type) == (getattr(torch, dtype), (5, 3), "cpu")
    assert torch.equal(x, signature.make({"n": 5})["x"])
    alone = signature_from_specs(["y:float32[9]", f"x:{dtype}[n,3]"])
    assert torch.equal(x, alone.make({"n": 5})["x"])  # other inputs do not change it
    large = signature.make({"n": 500})["x"]
    assert not torch.equal(large, signature.make({"n": 500}, seed=1)["x"])


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("x:int64[500]", 0, 1),
        ("x:uint8[500]=0..255", 0, 255),
        ("x:int8[500]=-128..127", -128, 127),
        ("x:int64[500]=3..3", 3, 3),
        ("x:int64[50]=9223372036854775806..9223372036854775807", 2**63 - 2, 2**63 - 1),
        ("x:float32[500]=-2..0.5", -2, 0.5),
        ("x:float64[500]=-1e308..1e308", -1e308, 1e308),
        ("x:float16[500]=1..2", 1, 2),
    ],
)
def test_values_keep_to_their_range(text: str, low: float, high: float) -> None:
    x = signature_from_specs([text]).make()["x"]
    assert low <= x.min().item() <= x.max().item() <= high


def test_floats_are_standard_normal_and_bools_both() -> None:
    made = signature_from_specs(["x:float32[10000]", "m:bool[100]"]).make()
    assert abs(made["x"].mean().item()) < 0.05
    assert abs(made["x"].std().item() - 1) < 0.05
    assert made["m"].any()
    assert not made["m"].all()


def test_python_values_are_passed_as_they_are() -> None:
    made = signature_from_specs(["a:float=0.5", "b:int=3", "c:bool=true", "d:str=fast", "e:none"]).make()
    assert list(made.items()) == [("a", 0.5), ("b", 3), ("c", True), ("d", "fast"), ("e", None)]


def test_a_size_for_an_unknown_dim_is_refused() -> None:
    with pytest.raises(UsageError, match="named m; there are n"):
        signature_from_specs(["x:float32[n]"]).make({"m": 3})


# --- real samples -----------------------------------------------------------------------------------------


def test_samples_are_used_at_their_size_and_stretched_at_others() -> None:
    ids = np.array([[5, 6, 7], [8, 9, 10]])
    signature = signature_from_specs(["ids:int64[batch,seq]"], {"ids": ids})
    assert signature.example_sizes() == {"batch": 2, "seq": 3}
    assert signature.make()["ids"].tolist() == ids.tolist()
    assert signature.make({"batch": 3, "seq": 2})["ids"].tolist() == [[5, 6], [8, 9], [5, 6]]


def test_samples_of_one_item_are_repeated_to_trace_with() -> None:
    signature = signature_from_specs(["x:float32[batch,3]"], {"x": np.ones((1, 3), np.float32)})
    size = signature.example_sizes()["batch"]
    assert size >= 2
    assert signature.data_sizes == {"batch": 1}
    assert signature.make()["x"].tolist() == [[1.0] * 3] * size
    assert all(other["batch"] != size for other in signature.other_sizes(3))


def test_all_contradictions_of_data_and_specs_are_named_at_once() -> None:
    data = {
        "a": np.zeros((2, 3)),
        "b": np.zeros((2, 4, 1), np.float32),
        "c": np.zeros((3, 5), np.float32),
        "d": np.zeros((9, 2), np.int64),
        "s": np.zeros(()),
    }
    specs = ["a:float32[n,3]", "b:float32[n,4]", "c:float32[n,4]", "d:int64[m=1..8,n]", "s:float=1"]
    with pytest.raises(UsageError) as caught:
        signature_from_specs(specs, data)
    message = str(caught.value)
    for part in (
        "'a': declared float32, the data are float64",
        "'b': declared with 2 dims, the data have 3",
        "'c': dim 1 is declared 4, the data have 5",
        "'c': dim 0, n, is 3 in the data, but 2 as dim 0 of 'a'",
        "'d': dim 0 is declared m=1..8, the data have 9",
        "'s': declared as the Python value s:float=1",
    ):
        assert part in message


def test_data_without_a_spec_declare_a_fixed_input() -> None:
    signature = signature_from_specs([], {"x": np.zeros((2, 3), np.float32)})
    assert list(map(str, signature.specs)) == ["x:float32[2,3]"]


def test_unnamed_arrays_follow_the_order_of_the_inputs() -> None:
    data = {"arr_0": np.zeros((2, 3), np.float32), "arr_1": np.ones(2, np.int64)}
    signature = signature_from_specs(["x:bfloat16[n,3]", "k:int=2", "y:int64[n]"], data)
    assert signature.make()["y"].tolist() == [1, 1]
    assert signature.make()["x"].dtype is torch.bfloat16


def test_arrays_of_any_layout_are_taken() -> None:
    array = np.arange(6, dtype=">f4").reshape(2, 3)[:, ::-1]
    made = signature_from_specs(["x:float32[2,3]"], {"x": array}).make()
    assert made["x"].tolist() == [[2, 1, 0], [5, 4, 3]]


@pytest.mark.parametrize("value", [np.array(["a"]), "text", torch.zeros(2).to_sparse()])
def test_data_that_are_no_dense_numbers_are_refused(value: Any) -> None:
    with pytest.raises(UsageError, match="'x'"):
        signature_from_specs(["x:float32[2]"], {"x": value})


def test_the_samples_themselves_are_never_handed_out() -> None:
    x = torch.zeros(2)
    signature = signature_from_specs(["a:float32[2]", "b:float32[2]"], {"a": x, "b": x})
    made = signature.make()
    assert len({made["a"].data_ptr(), made["b"].data_ptr(), x.data_ptr()}) == 3


# --- files ------------------------------------------------------------------------------------------------


def test_arrays_of_a_file_come_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((2, 3), np.float32), ids=np.arange(4))
    np.save(tmp_path / "in.npy", np.arange(3))
    assert {name: a.shape for name, a in load_npz(tmp_path / "in.npz").items()} == {"x": (2, 3), "ids": (4,)}
    assert load_npz(tmp_path / "in.npy")["arr_0"].tolist() == [0, 1, 2]


def test_files_that_are_no_arrays_are_refused_in_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=np.arange(1000))
    good = (tmp_path / "good.npz").read_bytes()
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "none.npz")
    torch.save({"x": torch.zeros(2)}, tmp_path / "torch.pt")
    files = {
        "cut.npz": good[:-30],
        "half.npz": good[:500],
        "empty.npz": b"",
        "text.npz": b"hello",
        "a.npy": b"\x93NUMPY",
    }
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 255
    files["flipped.npz"] = bytes(flipped)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for name in (*files, "objects.npz", "none.npz", "torch.pt", "absent.npz"):
        with pytest.raises(UsageError, match=name.replace(".", r"\.")) as caught:
            load_npz(tmp_path / name)
        assert "\n" not in str(caught.value)


# --- calling the model ------------------------------------------------------------------------------------


def _bound(texts: list[str], forward: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    signature = signature_from_specs(texts)
    values = {name: name for name in signature.make()}
    return signature.bind(values, forward)


def test_names_of_forward_are_passed_by_name() -> None:
    def forward(x: Any, y: Any, scale: float = 1.0, *, mask: Any = None) -> None: ...

    assert _bound(["y:float32[2]", "x:float32[2]"], forward) == (("x", "y"), {})
    assert _bound(["x:float32[2]", "y:float32[2]", "mask:bool[2]"], forward) == (("x", "y"), {"mask": "mask"})
    assert _bound(["a:float32[2]", "b:float32[2]"], forward) == (("a", "b"), {})
    assert _bound(["a:float32[2]", "b:float32[2]"], None) == (("a", "b"), {})


def test_a_left_out_parameter_in_the_middle_makes_the_rest_go_by_name() -> None:
    def forward(x: Any, y: Any = None, z: Any = None) -> None: ...

    assert _bound(["x:float32[2]", "z:float32[2]"], forward) == (("x",), {"z": "z"})


def test_variable_arguments() -> None:
    def forward(*xs: Any, **options: Any) -> None: ...

    assert _bound(["xs.0:float32[2]", "xs.1:float32[2]", "q:int=1"], forward) == (
        ("xs.0", "xs.1"),
        {"q": "q"},
    )
    assert _bound(["a:float32[2]", "b:float32[2]"], forward) == (("a", "b"), {})
    assert _bound(["a:float32[2]"], lambda **options: None) == ((), {"a": "a"})


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        (["image:float32[2]", "msk:bool[2]"], "'msk' is no parameter of it; did you mean 'mask'?"),
        (["mask:bool[2]"], "'image' is required and was not given"),
        (["a:float32[2]", "b:float32[2]", "c:float32[2]", "d:float32[2]"], "'d' is no parameter"),
        ([], "'image' is required"),
    ],
)
def test_names_that_do_not_fit_list_the_parameters(texts: list[str], part: str) -> None:
    def forward(image: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 0.5) -> None: ...

    with pytest.raises(UsageError) as caught:
        _bound(texts, forward)
    assert part in str(caught.value)
    assert "forward(image, mask=None, scale=0.5)" in str(caught.value)


class Scripted(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


def test_a_torchscript_module_knows_its_parameters() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.script(Scripted())
    assert _bound(["scale:float=1", "x:float32[2]"], module) == (("x", "scale"), {})
    with pytest.raises(UsageError, match="'scal' is no parameter"):
        _bound(["x:float32[2]", "scal:float=1"], module)


class OtherSelf(torch.nn.Module):
    def forward(s, x: torch.Tensor) -> torch.Tensor:
        return x


def _self_first(self: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return self + x


def test_a_torchscript_module_is_no_parameter_whatever_it_calls_itself() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modules = (torch.jit.script(OtherSelf()), torch.jit.trace(OtherSelf(), torch.ones(2)))
        function = torch.jit.script(_self_first)
    for module in modules:
        assert _bound(["x:float32[2]"], module) == (("x",), {})
        assert parameters(module) == ["x"]
    assert parameters(function) == ["self", "x"]


def test_items_of_lists_and_dicts_are_put_together() -> None:
    signature = signature_from_specs(["xs.1:int=1", "xs.0:int=0", "d.k:int=2", "d.deep.0:int=3"])
    args, kwargs = signature.bind(signature.make(), lambda xs, d: None)
    assert (args, kwargs) == (([0, 1], {"k": 2, "deep": [3]}), {})


@pytest.mark.parametrize(
    "texts", [["xs.0:int=1", "xs.2:int=1"], ["x:int=1", "x.0:int=1"], ["x.0:int=1", "x:int=1"]]
)
def test_items_that_do_not_form_a_list_are_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match=r"xs?\.0|item"):
        signature_from_specs(texts)


# --- example inputs given as values -----------------------------------------------------------------------


def test_values_of_a_call_come_back_as_the_same_call() -> None:
    def forward(x: Any, pair: Any, options: Any, n: int = 1, *, mask: Any = None) -> None: ...

    x = torch.randn(2, 3, requires_grad=True)
    args = (x, (torch.zeros(1), [torch.ones(2)]), {"k": torch.zeros(()), "empty": ()})
    signature = signature_from_values(args, {"mask": None}, forward)
    assert list(map(str, signature.specs)) == [
        "x:float32[2,3]",
        "pair.0:float32[1]",
        "pair.1.0:float32[2]",
        "options.k:float32[]",
        "mask:none",
    ]
    (got_x, pair, options), kwargs = signature.bind(signature.make(), forward)
    assert torch.equal(got_x, x)
    assert not got_x.requires_grad
    assert isinstance(pair, tuple)
    assert isinstance(pair[1], list)
    assert options["empty"] == ()
    assert kwargs == {"mask": None}


def test_values_without_a_forward_stay_positional() -> None:
    signature = signature_from_values((torch.zeros(2), torch.ones(3)), {"k": 3})
    for forward in (None, lambda a, b, k: None):
        args, kwargs = signature.bind(signature.make(), forward)
        assert [tuple(a.shape) for a in args] == [(2,), (3,)]
        assert kwargs == {"k": 3}


def test_dims_of_values_are_variable_where_asked() -> None:
    signature = signature_from_values(
        (torch.ones(1, 3), [torch.ones(1, 5)]),
        {},
        lambda x, ys: None,
        dynamic={"x": {0: "b=1..8"}, "ys.0": {-1: Symbol("n"), 0: "b"}},
    )
    assert signature.symbols == {"b": Symbol("b", 1, 8), "n": Symbol("n")}
    assert signature.example_sizes()["n"] == 5
    with pytest.raises(UsageError, match="No tensor input is named 'z'; there are x"):
        signature_from_values((torch.ones(1),), {}, lambda x: None, dynamic={"z": {0: "n"}})
    with pytest.raises(UsageError, match="has 1 dims, so none at 1"):
        signature_from_values((torch.ones(1),), {}, lambda x: None, dynamic={"x": {1: "n"}})


def test_values_that_cannot_be_inputs_are_refused() -> None:
    with pytest.raises(UsageError, match="'x' are a object"):
        signature_from_values((object(),), {}, lambda x: None)
    with pytest.raises(UsageError, match="key 3"):
        signature_from_values(({3: torch.ones(1)},), {}, lambda x: None)
    with pytest.raises(UsageError, match="do not fit the model's forward"):
        signature_from_values((1, 2), {}, lambda x: None)


# --- torch.export -----------------------------------------------------------------------------------------


class _Model(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class _Two(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.function(x, y)


class _Nested(torch.nn.Module):
    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        return xs[0] + xs[1]


def _export(module: torch.nn.Module, signature: Signature) -> torch.export.ExportedProgram:
    args, kwargs = signature.bind(signature.make(), module)
    shapes = signature.dynamic_shapes(module)
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)


def _conditions(module: torch.nn.Module, *texts: str) -> list[tuple[str, bool]]:
    signature = signature_from_specs(texts)
    found = unmet_conditions(_export(module, signature), signature, module)
    return [(condition.text, condition.size_one) for condition in found]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * int(x.shape[0]),
        lambda x: x + torch.zeros(4, 3),
        lambda x: x.reshape(4, -1),
        lambda x: x if x.shape[0] == 4 else -x,
        lambda x: sum(row for row in x),
    ],
)
def test_a_dim_that_the_model_fixes_raises(function: Any) -> None:
    signature = signature_from_specs(["x:float32[batch@4,3]"])
    with pytest.raises(Exception, match=r"specialized|static"):
        _export(_Model(function), signature)


@pytest.mark.parametrize(
    "text", ["x:float32[n,3]", "x:float32[n=0..2,3]", "x:float32[n=1..2,3]", "x:float32[n=5..9,3]"]
)
def test_a_dim_that_the_model_leaves_alone_stays(text: str) -> None:
    signature = signature_from_specs([text])
    program = _export(_Model(torch.relu), signature)
    node = next(n for n in program.graph.nodes if n.op == "placeholder")
    assert not isinstance(node.meta["val"].shape[0], int)
    assert unmet_conditions(program, signature) == ()


def test_samples_of_batch_one_do_not_fix_the_batch() -> None:
    signature = signature_from_specs(["x:float32[batch,3]"], {"x": np.ones((1, 3), np.float32)})
    assert unmet_conditions(_export(_Model(torch.relu), signature), signature) == ()


def test_a_branch_on_a_size_is_found_with_a_size_that_breaks_it() -> None:
    model = _Model(lambda x: x + 1 if x.shape[0] % 2 == 0 else x - 1)
    signature = signature_from_specs(["x:float32[n=1..64,3]"])
    (condition,) = unmet_conditions(_export(model, signature), signature)
    assert str(condition) == "(n % 2) == 0 (not so at n=3)"
    assert _conditions(model, "x:float32[n=2..64%2,3]") == []


def test_a_narrowed_range_is_found() -> None:
    assert ("n >= 4", False) in _conditions(_Model(lambda x: x[:4]), "x:float32[n,3]")
    assert _conditions(_Model(lambda x: x[:4]), "x:float32[n=4..,3]") == []
    model = _Model(lambda x: x if x.shape[0] <= 100 else -x)
    assert ("n <= 100", False) in _conditions(model, "x:float32[n,3]")
    assert _conditions(model, "x:float32[n=1..100,3]") == []


def test_dims_that_the_model_needs_equal_are_found() -> None:
    model = _Two(lambda x, y: x + y)
    signature = signature_from_specs(["x:float32[n@6,3]", "y:float32[m@6,3]"])
    condition = unmet_conditions(_export(model, signature), signature, model)[0]
    assert condition.text == "n == m"
    assert condition.breaks_at["n"] != condition.breaks_at["m"]
    assert _conditions(model, "x:float32[n,3]", "y:float32[n,3]") == []
    assert _conditions(_Two(lambda x, y: (x + 1, y + 1)), "x:float32[n@6,3]", "y:float32[m@6,3]") == []


def test_conditions_use_the_names_of_the_user_whatever_the_parameters() -> None:
    assert ("(n % 2) == 0", False) in _conditions(
        _Model(lambda x: x.sum() if x.shape[1] % 2 == 0 else x), "picture:float32[2,n]"
    )
    found = _conditions(_Nested(), "xs.0:float32[n@6,3]", "xs.1:float32[m@6,3]")
    assert ("n == m", False) in found


def test_a_strided_convolution_exports_and_only_sizes_of_one_pixel_are_doubted() -> None:
    convolution = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
    found = _conditions(_Model(lambda x: convolution(convolution(x)[:, :3])), "x:float32[batch,3,h,w]")
    assert found
    assert all(size_one for _, size_one in found)


def test_dims_of_nested_inputs_are_variable() -> None:
    signature = signature_from_values(
        (torch.ones(2, 3), torch.ones(2, 3)), {}, _Nested(), {"xs.0": {0: "n"}, "xs.1": {0: "n"}}
    )
    assert unmet_conditions(_export(_Nested(), signature), signature, _Nested()) == ()


def test_variable_dims_through_keyword_arguments_are_refused() -> None:
    signature = signature_from_specs(["q:float32[n]"])
    with pytest.raises(UsageError, match=r"\*\*options \(q\)"):
        signature.dynamic_shapes(lambda **options: None)
