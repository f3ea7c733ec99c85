"""One huge element, whose own error is that of large numbers, hides no fault at the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from deployops.validation.backends import Sample
from deployops.validation.original import Original
from deployops.validation.parity.compare import compare_output
from deployops.validation.record import Cell

# case 45: ties, and a number whose neighbours are half apart
TIES = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.5, 2.675, 1.005, float("nan"), float("inf")]


def judged(function: Callable[..., torch.Tensor], x: torch.Tensor, got: np.ndarray) -> Cell:
    with torch.no_grad():
        expected = Original(function).expected(Sample("s", (x,)))[0]
    return compare_output("s", "y", "b", got.astype(expected.array.dtype), expected)


def few() -> torch.Tensor:
    return torch.tensor([0.3, 1.2, 2.1, -0.4, 0.9, 8388609.0, 3.3, 0.7, -1.5, 2.2, 1.1, 0.6])


def column() -> torch.Tensor:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    x[:, 7] = 1e6
    return x


def test_half_away_from_zero() -> None:
    x = torch.tensor(TIES)
    with np.errstate(all="ignore"):
        got = np.sign(x.numpy()) * np.floor(np.abs(x.numpy()) + np.float32(0.5))
    cell = judged(torch.round, x, got)
    assert cell.verdict != "passed"
    assert "too coarse beside 8.4e+06" in cell.reason or cell.verdict == "failed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize(("x", "off"), [(few(), 1.0), (column(), 0.1)])
def test_an_offset_beside_it(x: torch.Tensor, off: float, scale: float, dtype: torch.dtype) -> None:
    x = (x * scale).to(dtype)
    want = torch.relu(x).numpy()
    got = np.where(np.abs(want) < 1e5 * scale, want + off * scale, want)
    assert judged(torch.relu, x, got).verdict != "passed"


def test_most_elements_small_but_nothing_beside_one() -> None:
    """Probabilities: most are nothing beside the largest, and the pass says what it says."""
    x = torch.randn(8, 10, generator=torch.Generator().manual_seed(1)) * 30
    want = torch.softmax(x.double(), -1).float().numpy()
    assert judged(lambda v: torch.softmax(v, -1), x, want * np.float32(1 + 2**-22)).verdict == "passed"


def test_a_budget_of_the_size_of_most_elements_is_no_pass_at_any_size() -> None:
    """A product whose large terms cancel in most of its many elements, beside others where they do not."""
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(2))
    x[0] *= 1e9

    def cancelling(v: torch.Tensor) -> torch.Tensor:
        return torch.cat([v[:1], (v[1:] + 3e6) - 3e6])

    with torch.no_grad():
        want = cancelling(x).numpy()
    got = want.copy()
    got[1:] *= np.float32(1.02)
    assert judged(cancelling, x, got).verdict == "not checked"
