"""Code that a command runs for its user: what ends the process, what it prints, where it is looked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

PRINTING = """
import torch
print("while it is loaded")
class Doubled(torch.nn.Module):
    def forward(self, x):
        print("while it runs")
        return 2 * x
"""


@pytest.mark.parametrize("ends", ["sys.exit(0)", "sys.exit()", "exit(0)", "raise SystemExit"])
@pytest.mark.parametrize(
    "words", [["validate", "--op", "all"], ["ops", "check"], ["ops", "list"], ["compile"], ["emulate"]]
)
def test_a_file_that_ends_the_process_is_no_success(
    words: list[str], ends: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "script.py"
    file.write_text(f"import sys\nif sys.argv:\n    {ends}\n")
    done = command(*words, "--ops", file)
    assert done.code == 2
    assert f"{file}:3 ends the process" in done.err
    assert '`if __name__ == "__main__":`' in done.err


@pytest.mark.parametrize("place", ["load", "__init__", "forward"])
def test_a_model_that_ends_the_process_is_not_exported(
    place: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    file, out = tmp_path / "ending.py", tmp_path / "out.onnx"

    def at(this: str) -> str:
        return "sys.exit(0)" if place == this else "pass"

    file.write_text(
        "import sys, torch\n"
        "class Ending(torch.nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {at('__init__')}\n"
        f"    def forward(self, x):\n        {at('forward')}\n        return x\n{at('load')}\n"
    )
    torch.save({}, tmp_path / "empty.pt")
    given = ("--model", f"{file}:Ending", "--input", "x:float32[2]", "-o", out)
    done = command("export", tmp_path / "empty.pt", *given)
    assert done.code == 2, done.err
    assert "ends the process" in done.err
    assert str(file) in done.err
    assert not out.exists()


def test_json_is_all_that_is_printed(command: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "printing.py"
    file.write_text(PRINTING)
    torch.save({}, tmp_path / "empty.pt")
    given = ("--model", f"{file}:Doubled", "--input", "x:float32[2]", "-o", tmp_path / "out.onnx", "--json")
    done = command("export", tmp_path / "empty.pt", *given)
    assert done.code == 0, done.err
    assert json.loads(done.out)["path"]
    assert "while it runs" in done.err


def test_the_current_folder_is_searched_only_for_what_is_named(tmp_path: Path) -> None:
    """Libraries try modules that may be missing: a file of that name is not run."""
    for name in ("tqdm", "pynvml", "triton", "cuda", "my_ops"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")

    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu()

    torch.export.save(torch.export.export(Same(), (torch.ones(2),)), tmp_path / "same.pt2")

    def run(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "deployops.cli", *words]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""

    assert run("export", "same.pt2", "-o", "same.onnx") == ""
    assert run("ops", "list") == ""
    assert "my_ops" in run("ops", "list", "--ops", "my_ops")
