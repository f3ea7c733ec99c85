"""`session` opens what is sound, and says of everything else why not and what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.errors import DeployOpsError, ModelFileError, NotCheckedError, UsageError
from deployops.ort_ops import session


def value(name: str, dtype: int = TensorProto.FLOAT, shape: Any = (2, 3)) -> Any:
    return helper.make_tensor_value_info(name, dtype, list(shape))


@pytest.fixture
def save(tmp_path: Path) -> Any:
    def run(
        nodes: list[Any],
        opset: int = 20,
        domains: Any = (),
        dtype: int = 1,
        ir: int = 10,
        functions: Any = (),
    ) -> Path:
        graph = helper.make_graph(nodes, "g", [value("x", dtype)], [value("y", dtype)])
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(*d) for d in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=list(functions))
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path

    return run


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a custom-operator library with")
    folder = tmp_path_factory.mktemp("library")
    source = str(Path(__file__).with_name("twice.cc"))
    command = [compiler, "-std=c++17", "-fPIC", "-shared", "-o", "libtwice.so", source]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "libtwice.so"


def custom(domain: str = "acme", op: str = "Twice") -> list[Any]:
    return [helper.make_node(op, ["x"], ["y"], domain=domain)]


def refused(path: Path, kind: type[DeployOpsError], **options: Any) -> str:
    with pytest.raises(DeployOpsError) as caught:
        session(path, **options)
    assert type(caught.value) is kind, caught.value
    return str(caught.value)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_opens_and_runs(save: Any) -> None:
    opened = session(save([helper.make_node("Neg", ["x"], ["y"])]), threads=1)
    assert (opened.run(None, {"x": X})[0] == -X).all()
    options = opened.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.intra_op_num_threads == 1


@pytest.mark.parametrize("optimize", [True, False])
def test_the_optimiser_can_be_left_out(save: Any, optimize: bool) -> None:
    path = save([helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])])
    level = session(path, optimize=optimize).get_session_options().graph_optimization_level
    assert level.name == ("ORT_ENABLE_ALL" if optimize else "ORT_DISABLE_ALL")


def test_a_library_named_twice_is_registered_once(save: Any, library: Path, tmp_path: Path) -> None:
    link = tmp_path / "again.so"
    link.symlink_to(library)
    opened = session(save(custom(), domains=[("acme", 3)]), libraries=[library, str(library), link])
    assert (opened.run(None, {"x": X})[0] == 2 * X).all()


def test_a_model_local_function_is_an_implementation(save: Any) -> None:
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    function = helper.make_function("acme", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    opened = session(save(custom(), domains=[("acme", 1)], functions=[function]))
    assert (opened.run(None, {"x": X})[0] == 2 * X).all()


# The six causes of case 10, each with its own words.


def test_library_not_registered(save: Any) -> None:
    text = refused(save(custom(), domains=[("acme", 1)]), NotCheckedError)
    assert "nothing implements: acme::Twice" in text
    assert "Register the library" in text


def test_domain_not_imported(save: Any) -> None:
    text = refused(save(custom()), ModelFileError)
    assert "opset_import does not list the domain 'acme'" in text


def test_custom_operator_in_the_default_domain(save: Any) -> None:
    assert "needs a domain of its own" in refused(save(custom("")), ModelFileError)


def test_wrong_domain_version_by_the_library(save: Any, library: Path) -> None:
    text = refused(save(custom(), domains=[("acme", 1)]), ModelFileError, libraries=[library])
    assert "imports version 1" in text
    assert "wrong domain version" in text
    assert "('acme', 3)" in text


def test_wrong_domain_version_by_the_declaration(save: Any) -> None:
    name = "acme.declared"
    formal = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        "Twice", name, 3, inputs=[formal("x", "tensor(float)")], outputs=[formal("y", "tensor(float)")]
    )
    onnx.defs.register_schema(schema)
    try:
        text = refused(save(custom(name), domains=[(name, 7)]), ModelFileError)
    finally:
        onnx.defs.deregister_schema("Twice", 3, name)
    assert "imports version 7" in text
    assert "version 3" in text


def test_library_without_the_operator(save: Any, library: Path) -> None:
    text = refused(save(custom(op="Thrice"), domains=[("acme", 1)]), NotCheckedError, libraries=[library])
    assert "none of the given libraries (libtwice.so) has acme::Thrice" in text


def test_opset_newer_than_the_runtime(save: Any) -> None:
    text = refused(save([helper.make_node("Relu", ["x"], ["y"])], opset=99), NotCheckedError)
    assert "uses opset 99" in text
    assert "goes up to" in text


def test_wrong_library_path(save: Any, tmp_path: Path) -> None:
    path = save(custom(), domains=[("acme", 1)])
    assert "no such file" in refused(path, UsageError, libraries=[tmp_path / "libnothere.so"])
    text = tmp_path / "text.so"
    text.write_text("not a library")
    assert "is no library" in refused(path, UsageError, libraries=[text])


def test_library_of_another_kind(save: Any, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a library with")
    (tmp_path / "other.cc").write_text('extern "C" int answer() { return 42; }\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "other.so", "other.cc"], cwd=tmp_path, check=True)
    text = refused(save(custom(), domains=[("acme", 1)]), UsageError, libraries=[tmp_path / "other.so"])
    assert "exports no RegisterCustomOps" in text


# Gaps of the runtime are not faults of the model (case 11).


@pytest.mark.parametrize(
    ("op", "dtype", "gap"),
    [
        ("Relu", TensorProto.BFLOAT16, "Relu(bfloat16)"),
        ("Abs", TensorProto.BFLOAT16, "Abs(bfloat16)"),
        ("Softmax", TensorProto.BFLOAT16, "Softmax(bfloat16)"),
        ("Erf", TensorProto.DOUBLE, "Erf(double)"),
        ("Relu", TensorProto.INT64, "Relu(int64)"),
    ],
)
def test_dtype_without_a_kernel(save: Any, op: str, dtype: int, gap: str) -> None:
    text = refused(save([helper.make_node(op, ["x"], ["y"])], dtype=dtype), NotCheckedError)
    assert f"no kernel for {gap}" in text
    assert "valid model" in text


def test_every_missing_kernel_is_named_inside_functions_too(save: Any) -> None:
    body = [helper.make_node("Erf", ["a"], ["b"])]
    function = helper.make_function("acme", "F", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    nodes = [helper.make_node("F", ["x"], ["t"], domain="acme"), helper.make_node("Abs", ["t"], ["y"])]
    path = save(nodes, domains=[("acme", 1)], functions=[function], dtype=TensorProto.BFLOAT16)
    assert "Abs(bfloat16), Erf(bfloat16)" in refused(path, NotCheckedError)


def test_dtype_outside_the_standard_is_an_invalid_model(save: Any) -> None:
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    assert "tensor(uint8)" in refused(save([node], dtype=TensorProto.UINT8), ModelFileError)


# Files.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"hello world", "not an ONNX model"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ],
)
def test_not_an_onnx_file(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    assert words in refused(path, ModelFileError)


def test_no_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "x.onnx", UsageError)
    assert "not a file" in refused(tmp_path, UsageError)


def test_external_data(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(X, "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x")], [value("y")], [weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = tmp_path / "x.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="x.data", size_threshold=0)
    assert (session(path).run(None, {"x": X})[0] == 2 * X).all()
    (tmp_path / "x.data").unlink()
    assert "'x.data' next to it" in refused(path, ModelFileError)


def test_operator_newer_than_the_imported_opset(save: Any) -> None:
    text = refused(save([helper.make_node("Gelu", ["x"], ["y"])], opset=18), ModelFileError)
    assert "exists since opset 20" in text


def test_runtime_not_installed(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = save([helper.make_node("Relu", ["x"], ["y"])])
    assert 'pip install "deployops[cpu]"' in refused(path, NotCheckedError)


def test_import_is_light() -> None:
    code = "import sys, deployops.ort_ops;print({'torch', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
