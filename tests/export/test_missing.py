"""What the export says of operators that cannot be exported yet: pasted as it stands, it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import deployops
from deployops.errors import ExportError
from deployops.symbolic import registry

NET = """
import torch

@torch.library.custom_op("{space}::halve", mutates_args=())
def halve(x: torch.Tensor, eps: float = 1e-05) -> torch.Tensor:
    return x / 2

{fake}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return halve(self.linear(x))
"""
FAKE = "@halve.register_fake\ndef _(x, eps=1e-05): return torch.empty_like(x)"


def deployops_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deployops.cli", *arguments], cwd=folder, text=True, capture_output=True
    )


@pytest.mark.parametrize(
    ("place", "model", "fake"),
    [("net_a.py", "net_a:Net", FAKE), ("sub/net_b.py", "sub/net_b.py:Net", "")],
    ids=["a module", "a file elsewhere, no fake kernel"],
)
def test_what_is_printed_is_a_file_that_works(tmp_path: Path, place: str, model: str, fake: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(NET.format(space="missing_test", fake=fake))
    torch.save(torch.nn.Sequential(torch.nn.Linear(4, 4)).state_dict(), tmp_path / "net.pt")
    state = torch.load(tmp_path / "net.pt")
    torch.save({f"linear.{k[2:]}": v for k, v in state.items()}, tmp_path / "net.pt")
    options = ["export", "net.pt", "--model", model, "--input", "x:float32[batch,4]", "-o", "net.onnx"]
    refused = deployops_in(tmp_path, *options)
    assert refused.returncode == 1
    assert "missing_test::halve(Tensor x, float eps=1e-05) -> Tensor, called at " in refused.stderr
    content = refused.stderr.partition("before the export):\n\n")[2]
    (tmp_path / "mine.py").write_text(content)
    done = deployops_in(tmp_path, *options, "--ops", "mine.py")
    assert done.returncode == 0, done.stderr
    assert "1 × missing_test::Halve" in done.stdout
    assert "--custom-ops function" not in done.stdout  # it has no body to put there
    assert "@op.body" in done.stdout


def test_an_operator_of_ours_without_a_fake_kernel_gets_it_in_its_own_file(deploy: Any) -> None:
    @deployops.operator("missing_test::plain")
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return plain(x)

    try:
        with pytest.raises(ExportError) as refused:
            deploy(Net(), ["x:float32[batch,4]"])
    finally:
        registry.remove(plain)
    text = str(refused.value)
    assert f"in {Path(__file__).name}, below `def plain`, write:" in text
    assert "@plain.fake" in text
    assert "register_fake" not in text
    assert "--ops" not in text
