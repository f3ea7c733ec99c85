"""layer_norm, rms_norm and add_rms_norm where half precision breaks them (cases 21 and 42)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from deployops.symbolic import registry
from deployops.symbolic.samples import Sample

registry.load_builtin()
from deployops.symbolic.operators.add_rms_norm import add_rms_norm  # noqa: E402
from deployops.symbolic.operators.layer_norm import layer_norm  # noqa: E402
from deployops.symbolic.operators.rms_norm import rms_norm  # noqa: E402

WHERE = pytest.mark.parametrize("where", ["reference", "body", "optimised"])
HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def run(op: Any, where: str, run_body: Any, *args: Any) -> torch.Tensor:
    if where == "reference":
        result = op(*args)
        return result if isinstance(result, torch.Tensor) else result[0]
    return run_body(op, Sample(args), optimised=where == "optimised")[0]


@WHERE
@HALVES
def test_one_large_feature_does_not_zero_the_row(dtype: torch.dtype, where: str, run_body: Any) -> None:
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(0))
    x[0, 3] = 2000.0  # its square is no float16
    x = x.to(dtype)
    expected = F.layer_norm(x.double(), (64,))
    y = run(layer_norm, where, run_body, x)
    assert y[0].abs().max() > 7.9
    torch.testing.assert_close(y.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-4)


@WHERE
@HALVES
@pytest.mark.parametrize("eps", [1e-5, 1e-8, 1e-12])
def test_a_constant_row_is_the_bias_however_small_eps(
    dtype: torch.dtype, eps: float, where: str, run_body: Any
) -> None:
    x = torch.full((2, 8), 3.0, dtype=dtype)
    weight, bias = torch.ones(8, dtype=dtype), torch.arange(8.0).to(dtype)
    assert torch.equal(run(layer_norm, where, run_body, x, weight, bias, eps), bias.expand(2, 8))
    zeros = torch.zeros(2, 8, dtype=dtype)
    assert torch.equal(run(rms_norm, where, run_body, zeros, weight, eps), zeros)


@WHERE
@HALVES
def test_the_largest_float16_does_not_overflow(dtype: torch.dtype, where: str, run_body: Any) -> None:
    x = torch.tensor([[65504.0, -65504.0, 65504.0, 0.0]]).to(dtype)
    torch.testing.assert_close(
        run(rms_norm, where, run_body, x, None, 1e-6).double(),
        F.rms_norm(x.double(), (4,)),
        rtol=1e-2,
        atol=0,
    )
    torch.testing.assert_close(
        run(layer_norm, where, run_body, x).double(), F.layer_norm(x.double(), (4,)), rtol=1e-2, atol=0
    )


@WHERE
def test_a_mean_far_from_zero_costs_no_accuracy(where: str, run_body: Any) -> None:
    # E[x²] − E[x]² in float32 has no correct digit left here: 1e8 ± 8 against a variance of 1. And the mean
    # itself, rounded to float32, is up to 5e-4 off.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 256, generator=generator) + 1e4
    expected = F.layer_norm(x.double(), (256,))
    assert (run(layer_norm, where, run_body, x) - expected).abs().max() < 2e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_torch(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*s, generator=generator, dtype=dtype).requires_grad_() for s in ((3, 5, 16), (16,), (16,))
    )
    grad = torch.randn(3, 5, 16, generator=generator, dtype=dtype)
    for ours, theirs, leaves in (
        (layer_norm(x, weight, bias), F.layer_norm(x, (16,), weight, bias), (x, weight, bias)),
        (rms_norm(x, weight, 1e-5), F.rms_norm(x, (16,), weight, 1e-5), (x, weight)),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        got, expected = (torch.autograd.grad(y, leaves, grad) for y in (ours, theirs))
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@WHERE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_fused_pair_is_the_addition_and_then_the_norm(
    dtype: torch.dtype, where: str, run_body: Any
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 64, generator=generator).to(dtype)
    residual = (torch.randn(4, 64, generator=generator) * 100).to(dtype)
    weight = torch.rand(64, generator=generator).to(dtype)
    fused = add_rms_norm(x, residual, weight)
    if where != "reference":
        fused = run_body(add_rms_norm, Sample((x, residual, weight)), optimised=where == "optimised")
    assert torch.equal(fused[1], x + residual)
    assert torch.equal(fused[0], run(rms_norm, where, run_body, x + residual, weight))


def test_a_gradient_reaches_the_residual_through_either_output() -> None:
    x, residual, weight = (
        torch.randn(*s, dtype=torch.float64).requires_grad_() for s in ((2, 4), (2, 4), (4,))
    )
    y, total = add_rms_norm(x, residual, weight)
    d_x, d_residual = torch.autograd.grad(y.sum(), (x, residual), retain_graph=True)
    assert torch.equal(d_x, d_residual)
    d_x, d_residual = torch.autograd.grad(total.sum(), (x, residual))
    assert torch.equal(d_x, torch.ones_like(x))
    assert torch.equal(d_residual, torch.ones_like(x))
