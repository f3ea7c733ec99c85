"""What stands for the original where a file is narrow inside: rounding alone, at both ends of the range and on every sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from deployops.validation.narrow_original import NarrowOriginal
from deployops.validation.original import Expected
from deployops.validation.parity import budget as parity
from deployops.validation.parity.compare import compare_output


class Normed(nn.Module):
    """Beyond float16: squares of large rows, and the epsilon that keeps empty rows from 0/0."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1000 / ((x * 1000).norm(dim=-1, keepdim=True) + 1e-8)


def test_small_numbers_stay_as_large_ones_do() -> None:
    x = torch.tensor([[300.0, 400.0], [0.0, 0.0]])
    made = NarrowOriginal(Normed(), torch.float32, None, torch.float16, {})
    got = made(x)
    assert made.keeps_range
    np.testing.assert_allclose(got.float().numpy(), [[0.6, 0.8], [0.0, 0.0]], atol=1e-3)


class Branching(nn.Module):
    """On long inputs the float16 copy raises: a product with float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(1, len(x)) @ x if len(x) > 2 else x.sum(0, keepdim=True)


def test_a_copy_that_raises_on_one_sample_is_replaced() -> None:
    class Copy(Branching):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.half())

    made = NarrowOriginal(Branching(), torch.float32, Copy(), torch.float16, {})
    assert made(torch.ones(2, 3)).dtype == torch.float16
    assert made(torch.ones(4, 3)).tolist() == [[4.0, 4.0, 4.0]]


def test_copies_keep_their_buffers() -> None:
    class Counts(nn.Module):
        count: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    model = Counts()
    made = NarrowOriginal(model, torch.float32, model, torch.float16, {})
    assert [float(made(torch.zeros(1))) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert model.count == 0


@pytest.mark.parametrize("lost", [np.inf, np.nan])
def test_an_overflow_inside_the_file_is_a_failure(lost: float) -> None:
    """In float16 the original is Inf as well; what the file ought to give is 70,000."""
    want: Any = np.array([70000.0, 1.0])
    narrow = np.array([np.inf, 1.0], np.float16)
    expected = Expected(narrow, want, parity.user(1e-3, 1e-3), apart=True)
    cell = compare_output("s", "y", "b", np.array([lost, 1.0], np.float32), expected)
    assert cell.verdict == "failed"
    assert "1 of 2 elements Inf or NaN, and finite in the original" in cell.reason
    assert compare_output("s", "y", "b", want.astype(np.float32), expected).verdict == "not checked"


def test_the_original_runs_once_for_a_sample_that_is_repeated_or_nudged() -> None:
    class Counted(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
            self.calls += 1
            return torch.tanh(x) * k

    model, copy = Counted(), Counted()
    made = NarrowOriginal(model, torch.float32, copy, torch.float16, {})
    x = torch.linspace(-2, 2, 9).half()
    for value in (x, x, x * (1 + 2**-10)):
        made(value, 2)
    assert (model.calls, copy.calls) == (1, 3)
    made(x * 2, 2)
    made(x * 2, 3)
    assert model.calls == 3


def test_a_sample_of_the_same_shapes_that_overflows_is_still_noticed() -> None:
    made = NarrowOriginal(Normed(), torch.float32, _Half(Normed()), torch.float16, {})
    assert made(torch.tensor([[0.03, 0.04]]).half()).isfinite().all()
    assert not made.keeps_range
    np.testing.assert_allclose(
        made(torch.tensor([[300.0, 400.0]]).half()).float().numpy(), [[0.6, 0.8]], atol=1e-3
    )
    assert made.keeps_range


class _Half(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(x.half())
        return out
