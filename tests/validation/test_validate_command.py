"""`deployops validate` and `deployops report` as a pipeline calls them: exit codes, files, and what is never passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deployops import export_model

Command = Callable[..., Any]

NET = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        %s
        return self.second(torch.relu(self.first(x)))
"""


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[Any]]:
    """``files()``: the arguments for a sound model file; ``files(line)`` with a line more in its forward."""

    def write(line: str = "pass", change: Callable[[nn.Module], None] | None = None) -> list[Any]:
        module = tmp_path / "net.py"
        module.write_text(NET % line)
        scope: dict[str, Any] = {}
        exec(NET % "pass", scope)
        torch.manual_seed(3)
        net = scope["Net"]().eval()
        torch.save(net.state_dict(), tmp_path / "net.pt")
        if change is not None:
            change(net)
        export_model(net, ["x:float32[n,8]"], out=tmp_path / "net.onnx")
        return [
            tmp_path / "net.pt",
            "--model",
            f"{module}:Net",
            "--onnx",
            tmp_path / "net.onnx",
            "--threads",
            1,
        ]

    return write


def test_a_sound_model_passes_and_leaves_its_reports(files: Any, command: Command, tmp_path: Path) -> None:
    page, xml, saved = (tmp_path / f"out.{e}" for e in ("html", "xml", "json"))
    done = command("validate", *files(), "--no-latency", "--report", page, "--junit", xml, "--json", saved)
    assert done.code == 0, done.out + done.err
    assert "PASSED" in done.out
    assert page.read_text().startswith("<!")
    assert "<testsuite" in xml.read_text()
    assert json.loads(saved.read_text())["verdict"] == "passed"


def test_two_runs_with_one_seed_give_the_same_bytes(files: Any, command: Command) -> None:
    arguments = ["validate", *files(), "--no-latency", "--sweep", "quick", "--json"]
    first, second = command(*arguments), command(*arguments)
    assert first.code == second.code == 0
    assert first.out == second.out
    assert json.loads(first.out)["cells"]


def test_saved_numbers_are_judged_by_other_limits(files: Any, command: Command, tmp_path: Path) -> None:
    saved = tmp_path / "out.json"

    def moved(net: Any) -> None:
        net.second.bias.data += 1e-3

    done = command("validate", *files(change=moved), "--no-latency", "--json", saved)
    assert done.code == 1
    assert command("report", saved).code == 1
    assert command("report", saved, "--atol", "0.01").code == 0
    assert command("report", saved, "--atol", "1e-6").code == 1


def test_a_required_backend_that_is_missing_is_no_pass(files: Any, command: Command) -> None:
    done = command("validate", *files(), "--no-latency", "--require", "tensorrt")
    assert done.code == 3
    assert "no engine" in done.out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--backend", "onnxrutime"], "there is no backend 'onnxrutime'"),
        (["--require", "tpu"], "there is no backend 'tpu'"),
        (["--output", "nothing:argmax"], "the model has no such output"),
        (["--output", "second:best"], "expected NAME:MODE"),
        (["--atol", "nan"], "atol must be a finite number"),
        (["--baseline", "none.json"], "no such file"),
        (["--gpu", "TPU v5"], "no figures of a GPU"),
    ],
)
def test_what_makes_no_sense_is_refused(files: Any, command: Command, more: list[str], words: str) -> None:
    done = command("validate", *files(), *([] if more[0] == "--gpu" else ["--no-latency"]), *more)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("raise MemoryError", "MemoryError"),
        ("os._exit(3)", "exit code 3"),
    ],
)
def test_an_original_that_dies_still_gets_a_report(
    files: Any, command: Command, line: str, word: str, tmp_path: Path
) -> None:
    saved = tmp_path / "out.json"
    done = command("validate", *files(line), "--no-latency", "--json", saved)
    assert done.code == 3, done.out
    assert word in done.out
    report = json.loads(saved.read_text())
    assert report["cells"]
    assert {c["verdict"] for c in report["cells"]} == {"not checked"}


def test_an_original_that_hangs_is_stopped(files: Any, command: Command) -> None:
    arguments = files("import time; time.sleep(1000)")
    done = command("validate", *arguments, "--no-latency", "--time-limit", 20)
    assert done.code == 3
    assert "hang" in done.out


def test_expected_outputs_in_a_folder_must_come_out(files: Any, command: Command, tmp_path: Path) -> None:
    arguments = files()
    folder = tmp_path / "samples"
    folder.mkdir()
    scope: dict[str, Any] = {}
    exec(NET % "pass", scope)
    net = scope["Net"]().eval()
    net.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    x = torch.randn(4, 8)
    right = net(x).detach().numpy()
    output = json.loads(command("validate", *arguments, "--no-latency", "--sizes", 1, "--json").out)["cells"][
        0
    ]["output"]
    np.savez(folder / "one.npz", x=x.numpy(), **{f"expected_{output}": right})
    assert command("validate", *arguments, "--no-latency", "--inputs", folder).code == 0
    np.savez(folder / "one.npz", x=x.numpy(), **{f"expected_{output}": right[:, ::-1].copy()})
    done = command("validate", *arguments, "--no-latency", "--inputs", folder)
    assert done.code == 1
    assert "golden" in done.out


def test_a_limit_on_time_that_nothing_is_held_against_is_no_pass(files: Any, command: Command) -> None:
    done = command("validate", *files(), "--no-latency", "--max-slowdown", 2)
    assert done.code == 3
    assert "latency was not measured" in done.out


def test_neither_model_nor_operator(command: Command) -> None:
    assert "nothing to validate" in command("validate").err
    assert "give both MODEL and --onnx" in command("validate", "net.pt").err


def test_an_operator_alone(command: Command) -> None:
    pack = Path(__file__).resolve().parent.parent / "pack" / "pack.py"
    named = ["--op", "deployops::swish", "--op", "pack::limit", "--ops", pack]
    done = command("validate", *named, "--backend", "onnxruntime", "--no-latency", "--json")
    report = json.loads(done.out)
    cells = [c for c in report["cells"] if c["subject"] == "deployops::swish"]
    assert {c["dtype"] for c in cells if c["verdict"] == "passed"} >= {"float32", "float64", "float16"}
    assert any(c["judged_as"] == "gradient" and c["verdict"] == "passed" for c in cells)
    # the pack's operator has no body: without a library nothing can run it, and that is said
    limit = [c for c in report["cells"] if c["subject"] == "pack::limit"]
    assert {c["verdict"] for c in limit if c["judged_as"] != "gradient"} == {"not checked"}
    assert done.code == 3


def test_a_file_that_another_tool_wrote_again_is_refused_unless_it_is_meant(
    files: Any, command: Command, tmp_path: Path
) -> None:
    import onnx

    arguments = files()
    path = tmp_path / "net.onnx"
    model = onnx.load(str(path))
    model.graph.node[0].name = "renamed_by_another_tool"
    onnx.save(model, str(path))
    done = command("validate", *arguments, "--no-latency")
    assert done.code == 2
    assert "does not match its digest" in done.err
    assert "--allow-modified" in done.err
    saved = tmp_path / "out.json"
    done = command("validate", *arguments, "--no-latency", "--allow-modified", "--json", saved)
    assert done.code == 0, done.out + done.err
    assert "note, modified file, net.onnx" in done.out
    assert [f["kind"] for f in json.loads(saved.read_text())["findings"]].count("modified file") == 1


def test_a_file_whose_digest_is_gone_is_said_to_have_none(
    files: Any, command: Command, tmp_path: Path
) -> None:
    import onnx

    arguments = files()
    model = onnx.load(str(tmp_path / "net.onnx"))
    kept = [p for p in model.metadata_props if p.key != "deployops.digest"]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, str(tmp_path / "net.onnx"))
    done = command("validate", *arguments, "--no-latency")
    assert done.code == 2
    assert "its digest is gone" in done.err
    assert "does not match" not in done.err
    assert command("validate", *arguments, "--no-latency", "--allow-modified").code == 0


def test_allowing_a_modified_file_allows_no_damaged_one(files: Any, command: Command, tmp_path: Path) -> None:
    arguments = files()
    path = tmp_path / "net.onnx"
    path.write_bytes(path.read_bytes()[:200])
    done = command("validate", *arguments, "--no-latency", "--allow-modified")
    assert done.code == 2
    assert "damaged" in done.err


def test_a_gpu_that_is_asked_for_and_not_there_is_no_pass(files: Any, command: Command) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = command("validate", *files(), "--device", "cuda", "--sizes", 1, "--backend", "onnxruntime")
    assert done.code == 3
    assert "torch sees no CUDA device" in done.out
