"""attention against torch's scaled_dot_product_attention, and its own rules where torch has none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from deployops.symbolic import registry
from deployops.symbolic.samples import Sample

registry.load_builtin()
from deployops.symbolic.operators.attention import attention  # noqa: E402


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(
        dtype
    )


@pytest.mark.parametrize("lengths", [(5, 5), (3, 7), (7, 3), (1, 9)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)], ids=str)
def test_it_is_torchs(lengths: tuple[int, int], is_causal: bool, heads: tuple[int, int]) -> None:
    q, k, v = (
        draw(2, heads[0], lengths[0], 8),
        draw(2, heads[1], lengths[1], 8),
        draw(2, heads[1], lengths[1], 6),
    )
    leaves = [t.requires_grad_() for t in (q, k, v)]
    ours = attention(*leaves, is_causal=is_causal)
    theirs = F.scaled_dot_product_attention(*leaves, is_causal=is_causal, enable_gqa=True)
    torch.testing.assert_close(ours, theirs)
    grad = draw(*ours.shape)
    for a, b in zip(
        torch.autograd.grad(ours, leaves, grad), torch.autograd.grad(theirs, leaves, grad), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_bias_and_mask_are_torchs_including_rows_that_see_nothing() -> None:
    q, k, v = draw(2, 3, 4, 8), draw(2, 3, 5, 8), draw(2, 3, 5, 8)
    bias = draw(2, 1, 4, 5)
    mask = torch.tensor(
        [[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool
    )
    torch.testing.assert_close(attention(q, k, v, bias), F.scaled_dot_product_attention(q, k, v, bias))
    masked = attention(q, k, v, None, mask)
    torch.testing.assert_close(masked, F.scaled_dot_product_attention(q, k, v, mask))
    assert not masked[:, :, 1].any()
    both = F.scaled_dot_product_attention(q, k, v, bias.masked_fill(~mask, -torch.inf))
    torch.testing.assert_close(attention(q, k, v, bias, mask), both)


def test_a_row_that_sees_nothing_has_no_gradient_and_no_nan() -> None:
    leaves = [t.requires_grad_() for t in (draw(1, 1, 2, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4), draw(2, 3))]
    mask = torch.tensor([[False] * 3, [True] * 3])
    y = attention(*leaves, mask)
    gradients = torch.autograd.grad(y.sum(), leaves, create_graph=True)
    assert not gradients[0][0, 0, 0].any()
    second = torch.autograd.grad(sum(g.square().sum() for g in gradients), leaves)
    assert all(torch.isfinite(g).all() for g in (*gradients, *second))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("where", ["reference", "body"])
def test_causal_mask_and_bias_together(dtype: torch.dtype, where: str, run_body: Any) -> None:
    q, k, v = draw(2, 4, 6, 8, dtype=dtype), draw(2, 2, 9, 8, dtype=dtype), draw(2, 2, 9, 8, dtype=dtype)
    bias, mask = draw(4, 6, 9, dtype=dtype), draw(2, 1, 1, 9) > 0
    sample = Sample((q, k, v, bias, mask, True, 0.5))
    y = attention(*sample.args) if where == "reference" else run_body(attention, sample)[0]
    seen = mask & torch.ones(6, 9, dtype=torch.bool).tril()
    whole = bias.double().masked_fill(~seen, -torch.inf)
    expected = F.scaled_dot_product_attention(
        *(t.double() for t in (q, k, v)), whole, scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("where", ["reference", "body"])
def test_scores_beyond_float16(where: str, run_body: Any) -> None:
    # q·k is 64 · 60² = 230,400 before it is scaled: no float16.
    q = torch.full((1, 1, 2, 64), 60.0, dtype=torch.float16)
    v = draw(1, 1, 2, 3, dtype=torch.float16)
    y = attention(q, q, v) if where == "reference" else run_body(attention, Sample((q, q, v)))[0]
    torch.testing.assert_close(
        y.double(), v.double().mean(2, keepdim=True).expand(1, 1, 2, 3), rtol=1e-3, atol=1e-3
    )
