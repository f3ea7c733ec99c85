"""A plugin through its C++ interface, driven by a program without TensorRT and without a GPU (host.cpp)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deployops.native.compilers import find_cxx
from deployops.native.nvcc import Nvcc
from deployops.trt_plugins.headers import Headers
from deployops.trt_plugins.library import PluginLibrary

HERE = Path(__file__).resolve().parent

# nvinfer1::PluginFieldType and nvinfer1::DataType
FLOAT32, INT32, CHAR = 1, 5, 6
FLOAT, HALF, INT, BOOL, BF16 = 0, 1, 3, 4, 7
SCALE = 0.300000011920928955  # the float32 nearest to 0.3
GIVEN = "count=-7 scale=0.30000001192092896 flag=0 mode=max/4 steps=4,5,6 weights=0.5,-2 limit=8"
NODE = "trtpack::{} (node 'the_node'): "


@pytest.fixture(scope="module")
def said(
    pack_library: PluginLibrary, nvcc: Nvcc, headers: Headers, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What the program says: its lines, by what is before the colon."""
    program = tmp_path_factory.mktemp("host") / "host"
    includes = [f"-I{nvcc.include}", "-isystem", str(headers.folder)]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"]
    subprocess.run(
        [str(find_cxx().path), *flags, *includes, str(HERE / "host.cpp"), "-o", str(program), "-ldl"],
        check=True,
    )
    done = subprocess.run([str(program), str(pack_library.path)], capture_output=True, text=True, check=True)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


def test_the_creator_says_name_version_namespace_and_the_fields_of_onnx(said: dict[str, str]) -> None:
    kind, version, namespace, plugin_version, *fields = (
        said["creator Attributes"].removeprefix("PLUGIN ").split()
    )
    assert (kind, version, namespace, plugin_version) == ("CREATOR_V3ONE", "1.0", "trtpack", "1")
    assert fields == [
        f"count:{INT32}", f"scale:{FLOAT32}", f"flag:{INT32}", f"mode:{CHAR}", f"steps:{INT32}",
        f"weights:{FLOAT32}", f"limit:{FLOAT32}",
    ]  # fmt: skip


def test_attributes_are_read_as_parsers_give_them(said: dict[str, str]) -> None:
    assert said["attributes"] == GIVEN
    assert float(said["attributes"].split("scale=")[1].split()[0]) == SCALE


def test_serialised_attributes_come_back_the_same(said: dict[str, str]) -> None:
    assert said["deserialised"] == GIVEN
    assert said["clone"] == GIVEN


def test_missing_attributes_are_the_declared_defaults_with_all_their_digits(said: dict[str, str]) -> None:
    # 0.1 is no float32; an absent optional one stays absent
    assert said["defaults"] == f"count=1 scale={0.1:.17g} flag=1 mode=add/4 steps=1,2 weights="
    assert said["defaults deserialised"] == said["defaults"]


def test_what_is_no_attribute_of_the_operator_is_refused_with_operator_node_and_reason(
    said: dict[str, str],
) -> None:
    node = NODE.format("Attributes")
    assert said["missing"] == node + "attribute `count` is missing, and has no default"
    assert said["wrong type"] == node + "attribute `count` is float32; expected integers"
    assert said["several values"] == node + "attribute `count` holds 2 values; expected one"
    assert said["another declaration"].startswith(node + "the engine was built with another declaration")


def test_the_timing_cache_knows_the_attributes_apart(said: dict[str, str]) -> None:
    assert said["timing id"].startswith("trtpack::Attributes 1 ")
    assert said["timing id"].endswith('mode="max", steps=[4, 5, 6], weights=[0.5, -2], limit=8')


def test_the_declared_dtypes_that_tensorrt_has_are_the_formats(said: dict[str, str]) -> None:
    assert said["formats"] == f"{FLOAT}{FLOAT} {INT}{INT} linear only"
    three = " ".join(3 * str(t) for t in (FLOAT, HALF, BF16))
    assert said["formats of two outputs"] == f"{three} linear only"
    five = " ".join(5 * str(t) for t in (FLOAT, HALF, BF16))
    assert said["formats of a list"] == f"{five} linear only"


def test_output_dtypes_follow_the_inputs(said: dict[str, str]) -> None:
    assert said["types"].split() == [str(INT)]
    refused = "refused: " + NODE.format("Attributes")
    assert said["types refused"] == refused + "the inputs are float16; there are kernels for: float32; int32"
    assert said["too many inputs"] == refused + "the node has 2 inputs; expected 1"


def test_output_shapes_are_the_formulas_of_the_fake_kernel(said: dict[str, str]) -> None:
    assert said["shapes"] == "[N, (C // 2)] [(C - (C // 2)), N]"
    assert said["shapes of numbers"] == "[4, 3] [4, 4]"  # 7 columns: 3 and 4
    assert "for inputs of these numbers of dimensions; known are x 2" in said["shapes refused"]
    assert said["list"] == said["empty list"] == "[N]"


def test_broadcast_shapes(said: dict[str, str]) -> None:
    assert said["broadcast"] == "[N, 4, 5]"  # 4 beside an unknown size: that one is 1 or 4
    assert "sizes 4 and 5 do not broadcast" in said["broadcast refused"]


@pytest.mark.parametrize(("n", "m"), [(1, 5), (5, 1), (3, 3), (1, 1), (1, 0), (0, 1), (0, 0)])
def test_broadcast_of_unknown_sizes_is_numpys_with_empty_dims_too(
    said: dict[str, str], n: int, m: int
) -> None:
    formula = said["broadcast of unknown sizes"].strip("[]")
    assert {"N", "M"} == set(re.findall("[A-Z]", formula))
    found = eval(formula, {"N": n, "M": m})  # noqa: S307 - of our own host program
    assert (found,) == np.broadcast_shapes((n,), (m,))


def test_a_size_that_the_data_decides_is_an_output_of_its_own_with_its_bounds(said: dict[str, str]) -> None:
    # without `usual`, half of the upper bound, rounded up; the number itself has no dims
    assert said["size tensor"] == "[size 1 of (((N * 4) + 1) // 2) to (N * 4)] []"
    assert said["size tensor of numbers"] == "[size 1 of 6 to 12] []"
    # what is usual is never beyond the bound: 1 of N, where N may be 0
    found = "size 3 of ((N * C) min ((N * C) // 4)) to (N * C)"
    assert said["two size tensors"] == f"[2, {found}] [{found}] [size 4 of (1 min N) to N] [] []"
    assert said["types with sizes"].split() == [str(t) for t in (INT, HALF, INT, INT, INT)]
    three = " ".join(f"{t}{t}{INT}" for t in (FLOAT, HALF, BF16))
    assert said["formats with sizes"] == f"{three} linear only"


def test_the_values_of_a_shape_input_are_sizes_of_the_output(said: dict[str, str]) -> None:
    assert said["shape input"] == "[R, C]"
    assert said["shape input of numbers"] == "[5, 2]"
    assert said["types with a shape input"].split() == [str(HALF)]
    two = " ".join(2 * str(t) for t in (FLOAT, HALF, BF16))
    assert said["formats with a shape input"] == f"{two} linear only"


def test_a_node_that_does_not_say_which_input_is_a_shape_is_refused(said: dict[str, str]) -> None:
    node = "refused: " + NODE.format("TileTo")
    assert said["shape input in memory"].startswith(node + "the node gives `sizes` as a tensor in memory")
    assert "tensorrt_plugin_shape_input_indices" in said["shape input in memory"]
    assert said["no shape input"] == node + "the node has 0 shape inputs; expected 1"


def test_an_input_can_stand_for_an_absent_one(said: dict[str, str]) -> None:
    assert said["absent input"] == "[N]"
    assert said["types with an absent input"].split() == [str(HALF)]
    # the stand-in has the type of the first input, whose copy it is
    three = " ".join(f"{t}{t}{BOOL}{t}" for t in (FLOAT, HALF, BF16))
    assert said["formats with an absent input"] == f"{three} linear only"
    assert said["absent input serialised"] == "deployops_absent_inputs=1/2"
    assert said["absent input deserialised"] == said["absent input serialised"]
    assert said["absent input in the timing id"].endswith(" without 1")
    node = NODE.format("Blend")
    assert said["absent input that is required"].startswith(
        node + "attribute `deployops_absent_inputs` names input 0"
    )
    assert 'is "1,-"; expected numbers of inputs' in said["absent input in other words"]


def test_outputs_are_in_place_where_it_is_asked_for_and_something_is_overwritten(
    said: dict[str, str],
) -> None:
    # the kinds and versions of the three capabilities, and the input behind output 0, of the plugin and of its clone
    first = "PLUGIN_V3ONE_CORE 1 PLUGIN_V3ONE_BUILD 1 PLUGIN_V3ONE_RUNTIME 1"
    assert said["copied"] == f"{first} -1 -1"
    assert said["in place"] == "PLUGIN_V3ONE_CORE 1 PLUGIN_V3ONE_BUILD 2 PLUGIN_V3ONE_RUNTIME 1 0 0"
    assert said["in place, nothing overwritten"] == f"{first} -1 -1"


def test_tactics_are_numbered_from_one_and_others_refused(said: dict[str, str]) -> None:
    assert said["tactics"] == "1=0 2=0 9=-1"
    assert said["no tactics"] == "0"


@pytest.mark.parametrize(
    ("line", "operator"),
    [("run", "Attributes"), ("run in place", "Shift"), ("run a list", "AddAll")],
)
def test_running_without_a_driver_reports_its_error(said: dict[str, str], line: str, operator: str) -> None:
    code, _, text = said[line].partition(" ")
    if code == "0":
        pytest.skip("there is a driver")
    assert text.startswith(NODE.format(operator))
    assert "CUDA" in text


def test_what_the_kernel_refuses_is_reported(said: dict[str, str]) -> None:
    assert said["run refused"] == "-1 " + NODE.format("Attributes") + "mode is z; expected add or max"


def test_a_workspace_is_as_large_as_the_kernel_says_for_the_largest_sizes(said: dict[str, str]) -> None:
    # 3 rows of 4 parts, each a float32, and what it takes to align them to 256 bytes
    assert said["workspace"].split() == [str(3 * 4 * 4 + 255), str(2 * 4 + 255), "0"]
    assert said["no workspace"] == "0"


def test_what_was_reserved_is_in_the_engine_for_each_dtype(said: dict[str, str]) -> None:
    assert said["workspace before it is asked for"] == ""
    assert said["workspace serialised"] == "deployops_workspace=48,0,-1"
    assert said["workspace deserialised"] == said["workspace serialised"]
    refused = NODE.format("RowSums") + "attribute `deployops_workspace` is not what this library writes"
    assert said["workspace of another library"].startswith(refused)


def test_a_workspace_that_cannot_be_told_is_reported(said: dict[str, str]) -> None:
    node = NODE.format("RowSums")
    assert said["workspace of no size"].startswith(
        node + "TensorRT asks how much workspace is needed, and gives no"
    )
    assert said["workspace of a type without kernels"].startswith(node + "no kernel for these dtypes")
    assert said["run without the workspace"] == (
        "-1 " + node + "the kernel needs 8 bytes of workspace, and TensorRT gives none"
    )
