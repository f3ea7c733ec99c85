"""From C++ alone: the example program, and the indices of our own ABI header against the official one.

ONNX Runtime's headers are on neither PyPI nor Debian: DEPLOYOPS_TEST_ORT_INCLUDE names a folder that has them (the
`include` of a release). Without it both are reported as not checked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import onnxruntime
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def include() -> Path:
    folder = os.environ.get("DEPLOYOPS_TEST_ORT_INCLUDE")
    if not folder or shutil.which("g++") is None:
        pytest.skip("not checked: ONNX Runtime's C++ headers are not here (DEPLOYOPS_TEST_ORT_INCLUDE)")
    return Path(folder)


def compiled(source: Path, include: Path, folder: Path, *flags: str) -> Path:
    program = folder / source.stem
    subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Wextra", str(source), f"-I{include}", *flags, "-o", str(program)],
        check=True,
    )
    return program


def test_the_example_runs_a_model(include: Path, shipped_library: str, tmp_path: Path) -> None:
    [runtime] = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
    graph = helper.make_graph(
        [helper.make_node("CubeRoot", ["x"], ["y"], domain="deployops")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
    model = tmp_path / "model.onnx"
    model.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    program = compiled(
        ROOT / "examples" / "cpp" / "run_model.cpp",
        include,
        tmp_path,
        str(runtime),
        f"-Wl,-rpath,{runtime.parent}",
    )
    done = subprocess.run([program, model, shipped_library], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "y ( 2 3 ): 1 1 1 1 1 1\n"


def test_indices_and_offsets_are_the_official_ones(include: Path, tmp_path: Path) -> None:
    ours = (ROOT / "ort_ops" / "cpp" / "ort_abi.h").read_text()
    slots = re.findall(r"SLOT\((\w+), (\d+)\)", ours)
    assert len(slots) > 30
    fields = re.findall(r"\(\*(\w+)\)\(", ours[ours.index("struct OrtCustomOp {") : ours.index("namespace")])
    lines = [
        f'static_assert(offsetof(OrtApi, {name}) == {index} * sizeof(void*), "{name}");'
        for name, index in slots
    ]
    lines += [
        f'static_assert(offsetof(OrtCustomOp, {name}) == {k + 1} * sizeof(void*), "{name}");'
        for k, name in enumerate(fields)
    ]
    source = tmp_path / "offsets.cpp"
    source.write_text(
        "#include <onnxruntime_c_api.h>\n#include <cstddef>\n"
        + "\n".join(lines)
        + "\nint main() { return 0; }\n"
    )
    compiled(source, include, tmp_path)
