"""An export never replaces anything but an ONNX model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from deployops import export_model
from deployops.errors import UsageError

X = (torch.randn(2, 4),)


@pytest.fixture
def net() -> torch.nn.Module:
    return torch.nn.Linear(4, 2)


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2", "ops.py", "samples.npz"])
def test_an_input_of_the_run_is_never_replaced(net: torch.nn.Module, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.startswith("model"):
        torch.export.save(torch.export.export(net.eval(), X), (tmp_path / "m.pt2").open("wb"))
        (tmp_path / "m.pt2").rename(path)
    else:
        path.write_text("import torch\n")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="not replaced"):
        export_model(net, X, out=path)
    with pytest.raises(UsageError, match="not replaced"):
        export_model(
            path if name.startswith("model") else net, None if name.startswith("model") else X, out=path
        )
    assert path.read_bytes() == before


def test_the_default_output_does_not_hit_a_model_that_is_called_onnx(
    net: torch.nn.Module, tmp_path: Path, command: Any
) -> None:
    path = tmp_path / "m.onnx"
    torch.jit.save(torch.jit.script(net), str(path))
    before = path.read_bytes()
    assert command("export", str(path), "--input", "x:float32[n,4]").code == 2
    assert path.read_bytes() == before


def test_a_device_or_pipe_is_left_alone(net: torch.nn.Module, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="no regular file"):
        export_model(net, X, out=pipe)
    with pytest.raises(UsageError, match="no regular file"):
        export_model(net, X, out=tmp_path)
    assert pipe.is_fifo()


def test_a_link_is_followed(net: torch.nn.Module, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.onnx"
    link.symlink_to(tmp_path / "there" / "real.onnx")
    export_model(net, X, out=link)
    assert link.is_symlink()
    first = (tmp_path / "there" / "real.onnx").read_bytes()
    export_model(net, X, out=link)  # an ONNX model is replaced
    assert (tmp_path / "there" / "real.onnx").read_bytes() == first


def test_a_missing_folder_is_not_made(net: torch.nn.Module, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        export_model(net, X, out=tmp_path / "no" / "such" / "m.onnx")
    assert not (tmp_path / "no").exists()
