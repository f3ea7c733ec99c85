"""Case 24: correct float16 passes where copied tolerances fail it, and a dropped bias or zeros do not pass.

The pairs of the case: its network in float16 against itself, with the bias of the last layer dropped on one class, and
zeros for outputs that are all tiny.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from deployops.ort_ops.arrays import to_array
from deployops.validation import Sample
from deployops.validation.original import Expected, Original
from deployops.validation.parity.compare import compare_output
from deployops.validation.record import Cell

CLASS = 7


class Scaled(nn.Module):
    """The network; `factor` makes its outputs tiny."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [m for _ in range(6) for m in (nn.Linear(256, 256), nn.GELU())]
        self.net, self.factor = nn.Sequential(*layers, nn.Linear(256, 10)), factor
        for layer in self.net:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
                nn.init.normal_(layer.bias, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x) * self.factor
        return out


@torch.no_grad()
def reference(dtype: torch.dtype, factor: float = 1.0) -> tuple[Scaled, torch.Tensor, Expected]:
    net = Scaled(factor).eval().to(dtype)
    x = torch.randn(32, 256, generator=torch.Generator().manual_seed(1)).to(dtype)
    return net, x, Original(net).expected(Sample("case", (x,)))[0]


def judged(expected: Expected, got: np.ndarray) -> Cell:
    return compare_output("case", "y", "onnxruntime", got, expected)


@torch.no_grad()
def single(net: Scaled, x: torch.Tensor) -> torch.Tensor:
    """float16 weights, everything else in float32: what ONNX Runtime's CPU does."""
    result: torch.Tensor = net.float()(x.float())
    return result


DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_correct_result_passes_although_copied_tolerances_fail_it(dtype: torch.dtype) -> None:
    net, x, expected = reference(dtype)
    got = to_array(single(net, x).to(dtype))
    if dtype != torch.float32:
        copied = np.allclose(got.astype(np.float32), expected.array.astype(np.float32), rtol=1e-3, atol=1e-5)
        assert not copied
    assert judged(expected, got).verdict == "passed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_dropped_bias_fails_although_a_loose_tolerance_passes_it(dtype: torch.dtype) -> None:
    net, x, expected = reference(dtype)
    got = single(net, x)
    got[:, CLASS] -= net.net[-1].bias[CLASS].detach()
    array = to_array(got.to(dtype))
    assert np.allclose(array.astype(np.float64), expected.wide, rtol=0, atol=1e-1)
    cell = judged(expected, array)
    assert cell.verdict == "failed"
    if dtype == torch.float32:
        assert {w.index[-1] for w in cell.metrics.worst} == {CLASS}  # type: ignore[union-attr]


def test_in_bfloat16_the_same_bias_is_below_the_rounding() -> None:
    """What docs/budget.md says of it, checked: the bias is smaller than the error PyTorch itself makes."""
    net, _, expected = reference(torch.bfloat16)
    assert expected.wide is not None
    own = np.abs(expected.array.astype(np.float64) - expected.wide)
    assert abs(float(net.net[-1].bias[CLASS].detach())) < own.max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_for_tiny_outputs_fail(dtype: torch.dtype) -> None:
    net, x, expected = reference(dtype, 1e-4)
    assert np.allclose(
        np.zeros(expected.array.shape), expected.array.astype(np.float64), rtol=1e-3, atol=1e-3
    )
    assert judged(expected, to_array(single(net, x).to(dtype))).verdict == "passed"
    assert judged(expected, np.zeros_like(expected.array)).verdict == "failed"
