"""A validation that is told to end, as a pipeline does it, leaves no process and no folder behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SLOW = """
import time, torch
class Slow(torch.nn.Linear):
    def forward(self, v):
        time.sleep(30)
        return super().forward(v)
def make():
    return Slow(4, 3)
"""


def descendants(pid: int) -> set[int]:
    """Processes with this one among their ancestors."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    while more := {p for p, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_sigterm_ends_everything_and_leaves_nothing(tmp_path: Path, export: Callable[..., Path]) -> None:
    net = nn.Linear(4, 3).eval()
    path = export(net, (torch.zeros(2, 4),))
    torch.save(net.state_dict(), tmp_path / "net.pt")
    (tmp_path / "slow_model.py").write_text(SLOW)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [
        sys.executable,
        "-m",
        "deployops.cli",
        "validate",
        str(tmp_path / "net.pt"),
        "--onnx",
        str(path),
    ]
    command += ["--model", "slow_model:make", "--input", "input:float32[batch,4]", "--no-latency"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + 120
        # until the original itself is running in its own process
        while not (any(temporary.iterdir()) and descendants(process.pid)):
            assert process.poll() is None, process.stdout.read().decode()  # type: ignore[union-attr]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(1)
        children = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        code = process.wait(30)
    finally:
        process.kill()
        process.wait()
    assert code == 143
    deadline = time.monotonic() + 10
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, children))
    assert list(temporary.iterdir()) == []
