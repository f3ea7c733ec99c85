"""No false alarms: sound models at several dtypes, seeds and depths pass, on the budget that finds faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from deployops.validation import validate


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v + self.down(nn.functional.silu(self.up(self.norm(v))))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        q, k, w = self.qkv(v).chunk(3, -1)
        return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ w


def dense(activation: nn.Module, depth: int = 3) -> nn.Module:
    return nn.Sequential(
        *[m for _ in range(depth) for m in (nn.Linear(24, 24), activation)], nn.Linear(24, 3)
    )


STACKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "relu": (lambda: dense(nn.ReLU()), (5, 24)),
    "gelu": (lambda: dense(nn.GELU()), (5, 24)),
    "gelu-tanh": (lambda: dense(nn.GELU(approximate="tanh")), (5, 24)),
    "tanh-deep": (lambda: dense(nn.Tanh(), 12), (1, 24)),
    "sigmoid": (lambda: dense(nn.Sigmoid()), (2, 24)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2)
        ),
        (2, 3, 11, 13),
    ),
    "pool": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
        ),
        (1, 3, 9, 9),
    ),
    "residual": (lambda: nn.Sequential(Residual(), Residual(), Residual()), (2, 5, 24)),
    "attention": (Attention, (2, 7, 16)),
    "softmax": (lambda: nn.Softmax(-1), (4, 300)),
    "elementwise": (lambda: nn.Sequential(nn.Tanh(), nn.GELU(), nn.Sigmoid()), (6, 50)),
    "scalar": (lambda: nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)), (1, 64)),
    "gru": (lambda: First(nn.GRU(8, 12, batch_first=True)), (2, 5, 8)),
}


class First(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(v)[0]
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("stack", STACKS)
def test_sound_models_pass(stack: str, dtype: torch.dtype, export: Callable[..., Path]) -> None:
    make, shape = STACKS[stack]
    for seed in range(4):
        torch.manual_seed(seed)
        net = make().eval()
        for layer in net.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)
        net = net.to(dtype)
        sample = torch.randn(shape).to(dtype)
        options = {"open_axis": False} if stack == "gru" else {}  # the traced state has the example's batch
        path = export(net, (sample,), **options)
        report = validate(net, path, (sample,), latency=False, isolate=False, seed=seed)
        assert report.exit_code == 0, report.text()
        assert all(c.verdict == "passed" for c in report.cells), report.text()


@pytest.mark.parametrize("magnitude", [1e-6, 1e-3, 1e3, 1e6])
def test_magnitude_does_not_matter_in_float32(magnitude: float, export: Callable[..., Path]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    sample = torch.randn(8, 32) * magnitude
    report = validate(net, export(net, (sample,)), (sample,), latency=False, isolate=False)
    assert report.exit_code == 0, report.text()


def test_float64_model(export: Callable[..., Path]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).double().eval()
    sample = torch.randn(8, 32).double()
    path = export(net, (sample,))
    report = validate(net, path, (sample,), latency=False, isolate=False)
    assert report.exit_code == 0, report.text()
    budget = report.cells[0].budget
    assert budget is not None
    assert budget.atol < 1e-12
    net[2].bias.data[1] += 1e-9
    assert validate(net, path, (sample,), latency=False, isolate=False).exit_code == 1


def test_bfloat16_where_the_runtime_has_the_kernels(build: Callable[..., Path]) -> None:
    """ONNX Runtime CPU computes nothing in bfloat16, but casts: a model may take and return it."""

    class Affine(nn.Module):
        def __init__(self, bias: float) -> None:
            super().__init__()
            self.bias = bias

        def forward(self, v: torch.Tensor) -> torch.Tensor:
            return (v.float() * 1.5 + self.bias).to(torch.bfloat16)

    nodes = [
        helper.make_node("Cast", ["v"], ["f"], to=1),
        helper.make_node("Mul", ["f", "k"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=16),
    ]
    constants = {"k": np.float32(1.5), "b": np.float32(0.25)}
    path = build(nodes, [("v", "bfloat16", ["n", 16])], [("y", "bfloat16", ["n", 16])], constants)
    sample = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    report = validate(Affine(0.25), path, (sample,), latency=False, isolate=False)
    assert report.exit_code == 0, report.text()
    assert report.cells[0].dtype == "bfloat16"
    assert validate(Affine(0.0), path, (sample,), latency=False, isolate=False).exit_code == 1
