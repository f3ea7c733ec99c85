"""Sessions and `validate` with libraries: which one, checked before ONNX Runtime does, and on which provider."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops import compile_library
from deployops.errors import ModelFileError, NotCheckedError, UsageError
from deployops.native.object_cache import Cache
from deployops.ort_ops import Library, session
from deployops.symbolic import registry

from .conftest import model, pack_node
from .packs import COPY, SAME, written

CUBE_ROOT = model(
    [helper.make_node("CubeRoot", ["x"], ["y"], domain="deployops")],
    outputs={"y": TensorProto.FLOAT},
    shape=[3],
)


def saved(made: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_a_session_checks_before_the_runtime_does(pack_library: Library, tmp_path: Path) -> None:
    def save(nodes: list[Any], kind: int = TensorProto.FLOAT, version: int = 1) -> Path:
        made = model(nodes, {"x": kind}, outputs={"y": kind}, versions={"pack": version}, shape=[3])
        return saved(made, tmp_path)

    libraries = [pack_library.path]
    good = session(save([pack_node("Limit", "x")]), libraries=libraries)
    np.testing.assert_array_equal(good.run(None, {"x": np.array([-9, 0, 9], np.float32)})[0], [-1, 0, 9])
    with pytest.raises(NotCheckedError, match=r"no kernel for \(x: float64\)"):
        session(save([pack_node("Picky", "x")], TensorProto.DOUBLE), libraries=libraries)
    with pytest.raises(NotCheckedError, match="has the attribute 'hight', which its kernel does not know"):
        session(save([pack_node("Limit", "x", hight=1.0)]), libraries=libraries)
    with pytest.raises(ModelFileError, match="wrong domain version"):
        session(save([pack_node("Limit", "x")], version=7), libraries=libraries)
    with pytest.raises(ModelFileError, match="'low' of pack::Limit is INT; its kernel reads FLOAT"):
        session(save([pack_node("Limit", "x", low=1)]), libraries=libraries)


def test_libraries_that_a_session_cannot_take(pack_library: Library, tmp_path: Path) -> None:
    path = saved(model([pack_node("Limit", "x")], outputs={"y": 1}, shape=[3]), tmp_path)
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / pack_library.path.name
    shutil.copy(pack_library.path, copy)
    with pytest.warns(UserWarning, match="has no manifest beside it"):
        session(path, libraries=[copy])
    shutil.copy(pack_library.manifest, copy.with_suffix(".json"))
    with pytest.raises(UsageError, match="both have operators of the domain 'pack'"):
        session(path, libraries=[pack_library.path, copy])
    with pytest.raises(UsageError, match="that is a folder"):
        session(path, libraries=[copy.parent])
    with pytest.raises(UsageError, match="is a manifest"):
        session(path, libraries=[pack_library.manifest])


def test_validate_runs_a_file_of_nodes_with_a_library(command: Callable[..., Any], tmp_path: Path) -> None:
    kernel = COPY.format("tripled", "3 * x[i]")
    text = SAME.format("tripled").replace("x.clone()", "3 * x")
    place = written(tmp_path, text, kernel, "tripled")
    library = compile_library(ops=[place], out=tmp_path / "lib")
    [op] = registry.load([place])

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return op(x) + 1

    torch.export.save(torch.export.export(Net(), (torch.ones(2, 3),)), tmp_path / "net.pt2")
    onnx_file = tmp_path / "net.onnx"
    assert command("export", tmp_path / "net.pt2", "--custom-ops", "node", "-o", onnx_file).code in (0, 3)
    # another process validates, and has to be told where the operator is declared
    arguments = ("validate", tmp_path / "net.pt2", "--ops", place, "--onnx", onnx_file, "--no-latency")
    done = command(*arguments, "--ort-library", library.path)
    assert done.code == 0, done.out + done.err


def test_a_shipped_operator_without_a_library_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOYOPS_CACHE", str(tmp_path / "empty"))
    path = saved(CUBE_ROOT, tmp_path)
    with pytest.raises(NotCheckedError, match="`deployops compile --target ort-cpu` builds a library"):
        session(path)


@pytest.mark.usefixtures("shipped_library")
def test_the_shipped_library_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(CUBE_ROOT, tmp_path)

    def compiled(*_: Any) -> None:
        raise AssertionError("a session compiles nothing")

    monkeypatch.setattr(Cache, "compile", compiled)
    [y] = session(path).run(None, {"x": np.array([-27, -0.0, 8], np.float32)})
    np.testing.assert_array_equal(y, [-3, 0, 2])
    assert np.signbit(y).tolist() == [True, True, False]


def test_providers(tmp_path: Path) -> None:
    path = saved(model([helper.make_node("Relu", ["x"], ["y"])], outputs={"y": 1}, shape=[3]), tmp_path)
    with pytest.raises(UsageError, match="knows no provider NoSuchExecutionProvider"):
        session(path, providers=["NoSuchExecutionProvider"])
    with pytest.raises(UsageError, match="empty list"):
        session(path, providers=[])
    with pytest.raises(UsageError, match="a list of names"):
        session(path, providers="CPUExecutionProvider")  # a text is no list
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(NotCheckedError, match="has no CUDAExecutionProvider"):
            session(path, providers=["CUDAExecutionProvider"])
    assert session(path, providers=["CPUExecutionProvider"]).get_providers() == ["CPUExecutionProvider"]
