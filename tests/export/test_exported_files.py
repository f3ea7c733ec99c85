"""Every kind of model file to a running ONNX model; the same bytes from any process and folder; the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

SOURCE = """
import torch
from torch import Tensor

import deployops.symbolic.operators.relu


class Net(torch.nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width))
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(width, 3)

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        return self.head(self.drop(torch.ops.deployops.relu(self.body(x)))) * scale


def wide():
    return Net(16)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "nets_of_exported_files.py").write_text(SOURCE)
    return folder


@pytest.fixture(scope="module", autouse=True)
def importable(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def net(folder: Path, importable: Any) -> torch.nn.Module:
    import nets_of_exported_files

    torch.manual_seed(0)
    net = nets_of_exported_files.Net()
    net(torch.randn(32, 4))  # moves the running statistics
    return net


X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
MODEL = ["--model", "nets_of_exported_files:Net"]


def by_definition(net: torch.nn.Module, x: Any) -> Any:
    """Eval mode, scale 2, in float64 and numpy."""
    w = {k: v.detach().double().numpy() for k, v in net.state_dict().items()}
    h = x @ w["body.0.weight"].T + w["body.0.bias"]
    h = (h - w["body.1.running_mean"]) / np.sqrt(w["body.1.running_var"] + 1e-5) * w["body.1.weight"] + w[
        "body.1.bias"
    ]
    return (np.maximum(h, 0) @ w["head.weight"].T + w["head.bias"]) * 2


def program(net: torch.nn.Module, path: Path) -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = {"x": {0: batch}}
    made = torch.export.export(net.eval(), (torch.from_numpy(X),), dynamic_shapes=shapes)
    torch.export.save(made, path.with_suffix(".pt2"))
    shutil.move(path.with_suffix(".pt2"), path)


def scripted(net: torch.nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(net.eval()).save(str(path))


def traced(net: torch.nn.Module, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(net.eval(), (torch.from_numpy(X),)).save(str(path))


def module(net: torch.nn.Module, path: Path) -> None:
    torch.save(net.train(), path)


def state(net: torch.nn.Module, path: Path) -> None:
    torch.save(net.state_dict(), path)


def wrapped(wrapper: Callable[[dict[str, Any]], Any]) -> Callable[[torch.nn.Module, Path], None]:
    def write(net: torch.nn.Module, path: Path) -> None:
        torch.save(wrapper(dict(net.state_dict())), path)

    return write


FILES: dict[str, tuple[Callable[[torch.nn.Module, Path], None], list[str], str]] = {
    "torch.export archive": (program, [], "torch.export"),
    "scripted": (scripted, [], "TorchScript"),
    "traced": (traced, [], "TorchScript"),
    "pickled module": (module, ["--trust"], "pickled"),
    "state dict": (state, MODEL, "state dict"),
    "legacy state dict": (
        lambda net, path: torch.save(net.state_dict(), path, _use_new_zipfile_serialization=False),
        MODEL,
        "state dict",
    ),
    "checkpoint": (
        wrapped(lambda s: {"model": s, "epoch": 3, "optimizer": {"lr": 0.1}}),
        MODEL,
        "checkpoint",
    ),
    "lightning": (
        wrapped(lambda s: {"state_dict": {f"model.{k}": v for k, v in s.items()}, "epoch": 1}),
        MODEL,
        "checkpoint",
    ),
    "data parallel": (wrapped(lambda s: {f"module.{k}": v for k, v in s.items()}), MODEL, "state dict"),
    "compiled": (wrapped(lambda s: {f"_orig_mod.{k}": v for k, v in s.items()}), MODEL, "state dict"),
}


@pytest.mark.parametrize("kind", list(FILES))
def test_each_kind_of_file_becomes_a_model_that_runs(
    command: Any, net: torch.nn.Module, tmp_path: Path, run_onnx: Any, kind: str
) -> None:
    write, options, words = FILES[kind]
    path = tmp_path / "model.bin"  # the name tells nothing
    write(net, path)
    arguments = [] if kind == "torch.export archive" else ["--input", "x:float32[batch,4]"]
    done = command("export", path, "-o", tmp_path / "out.onnx", *arguments, *options)
    assert done.code == 0, done.err
    assert words in done.out
    assert "deployops::RectifiedLinear" in done.out
    np.testing.assert_allclose(run_onnx(tmp_path / "out.onnx", X)[0], by_definition(net, X), atol=1e-5)
    np.testing.assert_allclose(
        run_onnx(tmp_path / "out.onnx", X[:1])[0], by_definition(net, X[:1]), atol=1e-5
    )
    done = command("validate", path, "--onnx", tmp_path / "out.onnx", "--no-latency", *options)
    assert done.code == 0, done.out + done.err  # the inputs are in the file's manifest


@pytest.mark.parametrize(
    ("write", "options", "words"),
    [
        (module, [], ["--trust", "nets_of_exported_files.Net"]),
        (state, [], ["--model", "body.0.weight"]),
        (state, ["--model", "nets_of_exported_files:wide"], ["body.0.weight", "shape|size"]),
        (
            wrapped(lambda s: {k: v for k, v in s.items() if "head" not in k}),
            MODEL,
            ["head.weight", "missing"],
        ),
        (wrapped(lambda s: {**s, "tail.weight": torch.ones(1)}), MODEL, ["tail.weight", "unexpected|not in"]),
        (state, ["--model", "nets_of_exported_files:Absent"], ["Absent"]),
        (state, ["--model", "no_such_module_here:Net"], ["no_such_module_here"]),
        (scripted, MODEL, ["--model is for checkpoints"]),
    ],
    ids=[
        "module",
        "no --model",
        "other sizes",
        "missing key",
        "unexpected key",
        "no such class",
        "no module",
        "--model",
    ],
)
def test_a_file_that_cannot_be_loaded_says_what_to_do(
    command: Any, net: torch.nn.Module, tmp_path: Path, write: Any, options: list[str], words: list[str]
) -> None:
    import re

    write(net, tmp_path / "model.pt")
    done = command("export", tmp_path / "model.pt", "--input", "x:float32[batch,4]", *options)
    assert done.code == 2, done.out + done.err
    for word in words:
        assert re.search(word, done.err, re.IGNORECASE), done.err
    assert not (tmp_path / "model.onnx").exists()


def test_the_default_output_lies_beside_the_model(command: Any, net: torch.nn.Module, tmp_path: Path) -> None:
    state(net, tmp_path / "model.pt")
    done = command("export", tmp_path / "model.pt", "--input", "x:float32[batch,4]", *MODEL)
    assert done.code == 0, done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.pt"]


def test_json_is_the_summary_for_machines(command: Any, net: torch.nn.Module, tmp_path: Path) -> None:
    state(net, tmp_path / "model.pt")
    done = command("export", tmp_path / "model.pt", "--input", "x:float32[batch=1..64,4]", "--json", *MODEL)
    assert done.code == 0, done.err
    data = json.loads(done.out)
    assert data["inputs"] == [{"name": "x", "dtype": "float32", "dims": ["batch", 4]}]
    assert data["custom_nodes"] == {"deployops::RectifiedLinear": 1}
    assert data["digest"] == onnx_digest(tmp_path / "model.onnx")
    inspected = json.loads(command("inspect", tmp_path / "model.onnx", "--json").out)
    assert inspected["digest"] == data["digest"]
    assert inspected["custom_nodes"] == data["custom_nodes"]
    assert inspected["inputs"] == ["x: float32[batch, 4]"]
    assert inspected["bodies"] == ["deployops::RectifiedLinear"]


def onnx_digest(path: Path) -> str:
    (value,) = [p.value for p in onnx.load(str(path)).metadata_props if p.key == "deployops.digest"]
    return value


def test_an_npz_with_samples(command: Any, net: torch.nn.Module, tmp_path: Path, run_onnx: Any) -> None:
    state(net, tmp_path / "model.pt")
    np.savez(tmp_path / "samples.npz", x=X)
    done = command("export", tmp_path / "model.pt", "--input-data", tmp_path / "samples.npz", *MODEL)
    assert done.code == 0, done.err
    assert "x: float32[5, 4]" in done.out
    np.testing.assert_allclose(run_onnx(tmp_path / "model.onnx", X)[0], by_definition(net, X), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export"], ["MODEL"]),
        (["export", "MODEL", "--opset", "seventeen"], ["opset"]),
        (["export", "MODEL", "--opset", "17"], ["18 to 25"]),
        (["export", "MODEL", "--custom-ops", "everything"], ["custom-ops"]),
        (["export", "MODEL", "--input", "nonsense", *MODEL], ["nonsense"]),
        (["export", "MODEL", "--input-data", "absent.npz"], ["absent.npz"]),
        (["export", "MODEL", "--ops", "absent_pack.py"], ["absent_pack.py"]),
        (["export", "MODEL", "--unknown"], ["--unknown"]),
        (["validate", "MODEL"], ["--onnx"]),
        (["validate", "MODEL", "--onnx", "absent.onnx"], ["absent.onnx"]),
        (["nothing"], ["nothing"]),
    ],
)
def test_wrong_use_is_exit_code_two_and_no_traceback(
    command: Any, net: torch.nn.Module, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    state(net, tmp_path / "model.pt")
    done = command(*[str(tmp_path / "model.pt") if a == "MODEL" else a for a in arguments])
    assert done.code == 2
    assert "Traceback" not in done.err
    assert "does not know" not in done.err
    assert all(word in done.err for word in words), done.err


# The same bytes, with nothing of this machine


def export_in_a_process(source: Path, target: Path, seed: str) -> None:
    target.mkdir(parents=True)
    shutil.copy(source / "nets_of_exported_files.py", target)
    shutil.copy(source / "model.pt", target)
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(target)}
    arguments = ["export", "model.pt", "-o", "model.onnx", "--input", "x:float32[batch,4]", *MODEL]
    done = subprocess.run(
        [sys.executable, "-m", "deployops.cli", *arguments],
        cwd=target,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_two_processes_in_two_folders_write_the_same_bytes_and_no_path(
    net: torch.nn.Module, folder: Path, tmp_path: Path
) -> None:
    state(net, folder / "model.pt")
    first, second = tmp_path / "one", tmp_path / "another" / "deeper"
    export_in_a_process(folder, first, "1")
    export_in_a_process(folder, second, "2")
    content = (first / "model.onnx").read_bytes()
    assert content == (second / "model.onnx").read_bytes()
    for trace in (
        tmp_path,
        folder,
        Path.home(),
        Path(torch.__file__).parent,
        Path(__file__).parent.parent.parent,
    ):
        assert str(trace).encode() not in content
    for word in (b"site-packages", b'.py"', b"nets_of_exported_files"):
        assert word not in content


def test_weights_in_a_second_file_hold_no_path_either(
    command: Any, net: torch.nn.Module, tmp_path: Path
) -> None:
    state(net, tmp_path / "model.pt")
    contents = []
    for name in ("one", "two"):
        target = tmp_path / name / "model.onnx"
        target.parent.mkdir()
        done = command(
            "export", tmp_path / "model.pt", "-o", target, "--external-data", "--input", "x:float32[batch,4]", *MODEL
        )  # fmt: skip
        assert done.code == 0, done.err
        files = sorted(target.parent.iterdir())
        assert len(files) == 2
        contents.append([f.read_bytes() for f in files])
        assert not any(str(tmp_path).encode() in c for c in contents[-1])
    assert contents[0] == contents[1]


def test_a_real_process_prints_the_summary_and_ends_with_zero(
    net: torch.nn.Module, folder: Path, tmp_path: Path
) -> None:
    """Once as a user calls it, from an empty folder, with the module beside the file."""
    shutil.copy(folder / "nets_of_exported_files.py", tmp_path / "mynet.py")
    state(net, tmp_path / "model.pt")
    script = Path(sys.executable).with_name("deployops")
    run = [str(script)] if script.exists() else [sys.executable, "-m", "deployops.cli"]
    done = subprocess.run(
        [*run, "export", "model.pt", "--model", "mynet:Net", "--input", "x:float32[batch,4]"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("model.onnx")
    for part in ("x: float32[batch, 4]", "1 × deployops::RectifiedLinear (with bodies)", "opset 20"):
        assert part in done.stdout
