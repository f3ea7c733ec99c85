"""`session` opens what was exported: a byte that changed since is told, and files of others are left alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.errors import ModelFileError, NotCheckedError
from deployops.export.onnx_file.write import write_model
from deployops.ort_ops import session
from deployops.ort_ops.engine import Engine
from deployops.symbolic.graph_inspection.file_integrity import EditedFileError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.linspace(1, 2, 3 * 512, dtype=np.float32).reshape(3, 512)


def product() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 512])],
        [numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def exported(folder: Path, external: bool) -> tuple[Path, Path]:
    """The model, and the file that has its weights."""
    path = folder / "m.onnx"
    written = write_model(product(), path, external_data=external)
    return path, written.paths[-1]


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(W.tobytes()[:64]) + 7] ^= 1  # a bit of a weight
    file.write_bytes(content)


def zero(file: Path) -> None:
    content = file.read_bytes()
    at = content.index(W.tobytes()[:64])
    file.write_bytes(content[:at] + bytes(W.nbytes) + content[at + W.nbytes :])


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("damage", [flip, zero])
def test_weights_that_changed_after_the_export_are_refused(
    tmp_path: Path, external: bool, damage: Any
) -> None:
    path, weights = exported(tmp_path, external)
    np.testing.assert_allclose(session(path).run(None, {"x": X})[0], X @ W, rtol=1e-5)
    damage(weights)
    with pytest.raises(EditedFileError, match="does not match") as caught:
        session(path)
    assert "session(…, verify=False)" in str(caught.value)
    changed = session(path, verify=False).run(None, {"x": X})[0]
    assert not (changed == X @ W).all()


def test_an_engine_opens_what_its_caller_allowed(tmp_path: Path) -> None:
    path, weights = exported(tmp_path, True)
    flip(weights)
    assert Engine(path, threads=1, optimize=True).outputs[0][0] == "y"


def test_a_model_of_another_tool_is_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deployops.symbolic.graph_inspection import file_integrity

    path = tmp_path / "m.onnx"
    onnx.save(product(), str(path), save_as_external_data=True, location="w.data", size_threshold=0)
    monkeypatch.setattr(file_integrity, "_digest", None)
    monkeypatch.setattr(file_integrity, "_file_digest", None)
    assert session(path).run(None, {"x": X})[0].shape == (2, 512)


def test_a_missing_side_file_of_an_export_is_told(tmp_path: Path) -> None:
    path, weights = exported(tmp_path, True)
    weights.unlink()
    with pytest.raises(ModelFileError, match=f"side file {weights.name} next to it"):
        session(path)


@pytest.mark.parametrize("there", [True, False])
def test_a_side_file_in_another_folder_is_not_called_missing(tmp_path: Path, there: bool) -> None:
    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "m.onnx"
    onnx.save(product(), str(path), save_as_external_data=True, location="w.data", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../w.data"
    path.write_bytes(model.SerializeToString())
    if there:
        (tmp_path / "inner" / "w.data").rename(tmp_path / "w.data")
    with pytest.raises(ModelFileError) as caught:
        session(path)
    assert "outside its folder: '../w.data'" in str(caught.value)
    assert "missing" not in str(caught.value)


def test_a_provider_that_the_runtime_left_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime opens a session on the CPU in its place, and says nothing."""
    path = tmp_path / "m.onnx"
    onnx.save(product(), str(path))
    module = sys.modules["deployops.ort_ops.session"]  # the name in the package is the function
    monkeypatch.setattr(module, "_providers", lambda ort, names: [*names, "CPUExecutionProvider"])
    with pytest.raises(NotCheckedError, match="did not start CUDAExecutionProvider") as caught:
        session(path, providers=["CUDAExecutionProvider"])
    assert "would have run on CPUExecutionProvider" in str(caught.value)
