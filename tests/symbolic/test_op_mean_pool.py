"""mean_pool: which dims it pools, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deployops.symbolic import registry
from deployops.symbolic.samples import Sample

registry.load_builtin()
from deployops.symbolic.operators.mean_pool import mean_pool  # noqa: E402


def test_four_dims_are_pooled_over_height_and_width_and_two_over_the_last() -> None:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mean_pool(x), torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
    torch.testing.assert_close(mean_pool(x[0, 0]), torch.stack([row.mean() for row in x[0, 0]]))


@pytest.mark.parametrize("rank", [0, 1, 3, 5])
def test_any_other_rank_is_refused(rank: int) -> None:
    with pytest.raises(
        ValueError, match=rf"x has {rank} dimensions; expected 4, \(N, C, H, W\) .* or 2, \(N, L\)"
    ):
        mean_pool(torch.zeros([2] * rank))


@pytest.mark.parametrize("where", ["reference", "body"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_summed_in_float32(dtype: torch.dtype, where: str, run_body: Any) -> None:
    # The sum is 8.2e7, no float16; and added one by one in bfloat16, it stops growing at 256 times an addend.
    x = torch.full((1, 1, 64, 64), 20000.0, dtype=dtype)
    y = mean_pool(x) if where == "reference" else run_body(mean_pool, Sample((x,)))[0]
    assert y.item() == x[0, 0, 0, 0].item()


@pytest.mark.parametrize("where", ["reference", "body"])
def test_the_mean_of_nothing_is_nan(where: str, run_body: Any) -> None:
    x = torch.zeros(2, 3, 0, 5)
    y = mean_pool(x) if where == "reference" else run_body(mean_pool, Sample((x,)))[0]
    assert y.shape == (2, 3)
    assert y.isnan().all()
