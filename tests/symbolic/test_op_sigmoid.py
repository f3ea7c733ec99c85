"""sigmoid and swish far from zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deployops.symbolic import registry
from deployops.symbolic.samples import Sample

registry.load_builtin()
from deployops.symbolic.operators.sigmoid import sigmoid  # noqa: E402
from deployops.symbolic.operators.swish import swish  # noqa: E402


def exact(x: torch.Tensor) -> torch.Tensor:
    with np.errstate(all="ignore"):
        return torch.from_numpy(
            (1 / (1 + np.exp(-x.double().numpy().astype(np.longdouble)))).astype(np.float64)
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("where", ["reference", "body"])
def test_relative_accuracy_until_underflow(
    dtype: torch.dtype, where: str, run_body: Any, assert_within: Any
) -> None:
    reach = 760 if dtype == torch.float64 else 110
    x = torch.linspace(-reach, reach, 20001, dtype=torch.float64).to(dtype)
    y = sigmoid(x) if where == "reference" else run_body(sigmoid, Sample((x,)))[0]
    assert_within(y, exact(x), exact(x), 3 if dtype in (torch.float32, torch.float64) else 0.51)


def test_it_is_not_zero_where_onnx_runtimes_own_float32_sigmoid_is(run_body: Any) -> None:
    x = torch.tensor([-18.0, -100.0])
    for y in (sigmoid(x), run_body(sigmoid, Sample((x,)), optimised=True)[0]):
        assert y.tolist() == pytest.approx([1.522998e-08, 3.783506e-44], rel=1e-6)


def test_the_gradient_does_not_vanish_where_the_function_is_one() -> None:
    x = torch.tensor([-60.0, -20.0, 20.0, 60.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(sigmoid(x).sum(), x)
    expected = exact(x.detach()) * exact(-x.detach())
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-6, atol=0)


def test_beta_gradient_of_halves_is_summed_in_float32() -> None:
    # 20,000 addends of about 0.2: a float16 sum stops growing at 2048.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20000, 2, generator=generator).abs().half()
    beta = torch.ones(2, dtype=torch.float16, requires_grad=True)
    wide = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(swish(x, beta), beta, torch.ones_like(x))
    formula = x.double() * torch.sigmoid(wide * x.double())
    (expected,) = torch.autograd.grad(formula.sum(), wide)
    torch.testing.assert_close(got.double(), expected, rtol=2**-11, atol=0)


def test_swish_with_beta_one_is_silu() -> None:
    x = torch.linspace(-30, 30, 1001)
    torch.testing.assert_close(swish(x, torch.ones(())), torch.nn.functional.silu(x), rtol=1e-5, atol=1e-12)


def test_beta_follows_its_axis() -> None:
    x, beta = torch.ones(3, 3), torch.tensor([0.0, 1.0, 100.0])
    rows = swish(x, beta, 0)
    assert torch.equal(rows, swish(x, beta, 1).T)
    assert rows[:, 0].tolist() == pytest.approx([0.5, 0.7310586, 1.0])
