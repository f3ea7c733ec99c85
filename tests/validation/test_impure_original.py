"""An original that goes by places in memory, or by earlier calls, gives no silent pass."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import deployops
from deployops.symbolic import registry
from deployops.symbolic.adopt import adopt
from deployops.validation.record import Report


def doubled(path: Path, constant: float = 2.0, op: str = "Mul") -> Path:
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "c"], ["y"], name="only")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])],
        [onnx.numpy_helper.from_array(np.array(constant, np.float32), "c")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class ByPlace(nn.Module):
    """Takes rows for dense, as a hand-written kernel does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, x.shape, (x.shape[1], 1)) * 2


class Counting(nn.Module):
    steps: torch.Tensor

    def __init__(self, grows: bool) -> None:
        super().__init__()
        self.grows = grows
        self.register_buffer("steps", torch.tensor(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x + (self.steps if self.grows else 5.0)


def findings(report: Report, kind: str) -> list[tuple[str, str]]:
    return [(f.severity, f.text) for f in report.findings if f.kind == kind]


def test_an_original_that_takes_rows_for_dense_fails_in_another_layout(tmp_path: Path) -> None:
    path = doubled(tmp_path / "m.onnx")
    x = torch.arange(12.0).reshape(4, 3).t()  # the same numbers, stored by columns
    report = deployops.validate(ByPlace(), path, (x,), latency=False)
    assert [s for s, _ in findings(report, "layout")] == ["failed"]
    assert "goes by places in memory" in findings(report, "layout")[0][1]
    assert report.verdict == "failed"


def test_sound_originals_pass_in_every_layout(tmp_path: Path) -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    path = doubled(tmp_path / "m.onnx")
    x = torch.arange(12.0).reshape(4, 3).t()
    report = deployops.validate(Doubles(), path, (x,), latency=False)
    assert report.verdict == "passed"
    assert not findings(report, "layout")


@pytest.mark.parametrize("grows", [True, False])
def test_state_that_shows_in_a_second_call_is_said(tmp_path: Path, grows: bool) -> None:
    path = doubled(tmp_path / "m.onnx", 5.0, "Add")
    model = Counting(grows)
    report = deployops.validate(model, path, (torch.ones(2, 3),), latency=False)
    assert model.steps == 4
    if grows:
        assert [s for s, _ in findings(report, "state")] == ["not checked"]
        assert "(steps)" in findings(report, "state")[0][1]
        assert report.verdict == "not checked"
    else:
        assert not findings(report, "state")
        assert report.verdict == "passed"


def test_another_order_of_summation_is_no_fault(tmp_path: Path) -> None:
    """A convolution sums otherwise in another layout, and argmax of near ties may follow; a tolerance tells nothing of ties."""

    class Convolution(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = nn.Conv2d(64, 64, 3, padding=1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.conv(x)
            return y, y.argmax(1)

    net = Convolution()
    path = deployops.export_model(net, ["x:float32[2,64,9,9]"], out=tmp_path / "m.onnx").path
    x = torch.randn(2, 64, 9, 9, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last
    )
    for tolerance in ({}, {"atol": 1e-3}):
        report = deployops.validate(net, path, (x,), latency=False, **tolerance)
        assert not findings(report, "layout")


def first_column(path: Path) -> Path:
    """The file of `acme13::first_col`: a slice and a squeeze."""
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "zero"], ["y"], axis=1),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [onnx.numpy_helper.from_array(np.array(0, np.int64), "zero")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def by_address() -> None:
    """Case 13's operator: it reads four bytes for each element, from the first on, whatever it is given."""

    @torch.library.custom_op("acme13::first_col", mutates_args=())
    def first_col(x: torch.Tensor) -> torch.Tensor:
        n, c = x.shape
        buffer = (ctypes.c_float * (n * c)).from_address(x.data_ptr())
        return torch.tensor([buffer[i * c] for i in range(n)], dtype=x.dtype)

    @first_col.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty([x.shape[0]])


class FirstColumn(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.acme13.first_col(x)
        return found


@pytest.mark.parametrize("declared", [True, False])
def test_an_operator_that_reads_by_address_is_named(declared: bool, by_address: None, tmp_path: Path) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).t()
    path = first_column(tmp_path / "m.onnx")
    if declared:
        adopt("acme13::first_col", dtypes=("float32",))
    try:
        report = deployops.validate(FirstColumn(), path, (x,), latency=False)
        dense = deployops.validate(FirstColumn(), path, (x.contiguous(),), latency=False)
    finally:
        if declared:
            registry.remove(registry.by_overload(torch.ops.acme13.first_col.default))  # type: ignore[arg-type]
    [(severity, text)] = findings(report, "layout")
    assert severity == "failed"
    assert text.startswith("acme13::first_col gives other values for a non-contiguous argument")
    assert report.exit_code == 1
    assert dense.exit_code == 0, dense.text()
