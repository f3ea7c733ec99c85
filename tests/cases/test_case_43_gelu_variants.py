"""Case 43: the two forms of GELU differ by 5e-4; a file that follows the other one is not passed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

import deployops

X = np.linspace(-6, 6, 241, dtype=np.float32)


def erf_form(x: Any) -> Any:
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.astype(np.float64)])


def tanh_form(x: Any) -> Any:
    wide = x.astype(np.float64)
    return 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))


FORMS = {"none": erf_form, "tanh": tanh_form}


class Gelu(torch.nn.Module):
    def __init__(self, approximate: str) -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x, approximate=self.approximate)


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("form", ["none", "tanh"])
def test_each_form_is_kept(deploy: Any, form: str, opset: int) -> None:
    exported = deploy(Gelu(form), ["x:float32[n]"], opset=opset)
    got = exported.run(X)[0]
    other = FORMS["tanh" if form == "none" else "none"](X)
    assert np.abs(got - FORMS[form](X)).max() < 1e-6
    assert np.abs(got - other).max() > 3e-4
    if "Gelu" in exported.ops:
        assert exported.attributes("Gelu")["approximate"] == form.encode()


def test_the_sigmoid_form_is_neither(deploy: Any) -> None:
    class Quick(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(1.702 * x)

    wide = X.astype(np.float64)
    got = deploy(Quick(), ["x:float32[n]"]).run(X)[0]
    np.testing.assert_allclose(got, wide / (1 + np.exp(-1.702 * wide)), atol=1e-6)


def test_a_lost_attribute_fails_validation(command: Any, tmp_path: Path) -> None:
    """The planted fault: its error of 4.7e-4 passes an atol of 1e-3, and must not pass here."""
    torch.export.save(torch.export.export(Gelu("tanh"), (torch.from_numpy(X),)), tmp_path / "net.pt2")
    np.savez(tmp_path / "in.npz", x=X)
    done = command("export", tmp_path / "net.pt2", "-o", tmp_path / "good.onnx")
    assert done.code == 0, done.err
    model = onnx.load(str(tmp_path / "good.onnx"))
    (node,) = [n for n in model.graph.node if n.op_type == "Gelu"]
    del node.attribute[:]
    del model.metadata_props[:]
    model.producer_name = "another tool"
    onnx.save(model, str(tmp_path / "lost.onnx"))
    options = ["--no-latency", "--input-data", tmp_path / "in.npz"]
    good = command("validate", tmp_path / "net.pt2", "--onnx", tmp_path / "good.onnx", *options)
    assert good.code == 0, good.out + good.err
    lost = command("validate", tmp_path / "net.pt2", "--onnx", tmp_path / "lost.onnx", *options)
    assert lost.code == 1, lost.out + lost.err
    tolerated = command(
        "validate",
        tmp_path / "net.pt2",
        "--onnx",
        tmp_path / "lost.onnx",
        *options,
        "--atol",
        "1e-3",
        "--rtol",
        "0",
    )
    assert tolerated.code == 0
    assert "user tolerance" in tolerated.out  # allowed, and shown as such


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_the_report_says_which_form_the_file_follows(deploy: Any, form: str) -> None:
    exported = deploy(Gelu(form), ["x:float32[n]"])
    other = deployops.validate(
        Gelu("tanh" if form == "none" else "none"), exported.path, (torch.from_numpy(X),), latency=False
    )
    assert other.verdict == "failed"
    assert "the file follows that form" in other.text()


def test_another_fault_is_not_explained_by_gelu(deploy: Any) -> None:
    exported = deploy(Gelu("none"), ["x:float32[n]"])

    class Moved(Gelu):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1e-3

    report = deployops.validate(Moved("none"), exported.path, (torch.from_numpy(X),), latency=False)
    assert report.verdict == "failed"
    assert "follows" not in report.text()
