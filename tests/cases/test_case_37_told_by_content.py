"""Case 37: a file is told by its content, whatever its name, and the message says what to do with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deployops

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()


@pytest.fixture(scope="module")
def files(net: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The case's seven files, each under a name that does not fit."""
    import warnings

    folder = tmp_path_factory.mktemp("files")
    x = torch.from_numpy(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(net, x).save(str(folder / "script_named.pth"))
    torch.save(net.state_dict(), folder / "weights_named.pt")
    torch.export.save(torch.export.export(net, (x,)), folder / "program.pt2")
    shutil.copy(folder / "program.pt2", folder / "program_named.pt")
    deployops.export_model(net, (x,), out=folder / "real.onnx")
    shutil.copy(folder / "real.onnx", folder / "onnx_named.pt")
    (folder / "html_named.pt").write_text("<!DOCTYPE html><title>Sign in</title>")
    (folder / "lfs_pointer.pt").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n"
    )
    return folder


KINDS = {
    "script_named.pth": "TorchScript",
    "weights_named.pt": "state dict",
    "program.pt2": "torch.export",
    "program_named.pt": "torch.export",
    "onnx_named.pt": "ONNX",
    "html_named.pt": "web page",
    "lfs_pointer.pt": "Git LFS",
}


@pytest.mark.parametrize("name", list(KINDS))
def test_inspect_says_what_it_is(command: Any, files: Path, name: str) -> None:
    done = command("inspect", files / name)
    no_model = name in ("html_named.pt", "lfs_pointer.pt")
    assert done.code == (2 if no_model else 0), done.err
    assert KINDS[name].lower() in (done.err if no_model else done.out).lower()


@pytest.mark.parametrize(
    ("name", "extra", "words"),
    [
        ("weights_named.pt", [], ["state dict", "--model"]),
        ("onnx_named.pt", [], ["ONNX", "validate"]),
        ("html_named.pt", [], ["web page"]),
        ("lfs_pointer.pt", [], ["Git LFS"]),
        ("program_named.pt", ["--model", "torch.nn:ReLU"], ["--model is for checkpoints"]),
        ("script_named.pth", ["--model", "torch.nn:ReLU"], ["--model is for checkpoints"]),
    ],
)
def test_export_says_what_to_do_with_it(
    command: Any, files: Path, tmp_path: Path, name: str, extra: list[str], words: list[str]
) -> None:
    done = command("export", files / name, "--input", "x:float32[n,4]", "-o", tmp_path / "out.onnx", *extra)
    assert done.code == 2
    assert all(word in done.err for word in words), done.err
    assert len(done.err.strip().splitlines()) <= 3
    assert not list(tmp_path.iterdir())


FACTORY = """
import torch
def net(): return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
"""


@pytest.mark.parametrize("name", ["script_named.pth", "program_named.pt", "weights_named.pt"])
def test_each_kind_of_model_exports_and_agrees(
    command: Any, files: Path, net: Any, tmp_path: Path, run_onnx: Any, name: str
) -> None:
    (tmp_path / "factory.py").write_text(FACTORY)
    options = ["--model", f"{tmp_path / 'factory.py'}:net"] if name.startswith("weights") else []
    batch = "2" if name.startswith("program") else "n"  # that one was traced at a fixed size
    options += ["--input", f"input:float32[{batch},4]"]
    done = command("export", files / name, "-o", tmp_path / "out.onnx", *options)
    assert done.code == 0, done.err
    weight, bias = (p.detach().numpy() for p in net.parameters())
    np.testing.assert_allclose(
        run_onnx(tmp_path / "out.onnx", X)[0], np.maximum(X @ weight.T + bias, 0), atol=1e-6
    )
    done = command("validate", files / name, "--onnx", tmp_path / "out.onnx", "--no-latency", *options)
    assert done.code == 0, done.out + done.err
