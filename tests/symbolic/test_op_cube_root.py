"""cube_root at the numbers that formulas of it get wrong (case 40), and over the whole range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deployops.symbolic import registry
from deployops.symbolic.samples import Sample

registry.load_builtin()
from deployops.symbolic.operators.cube_root import cube_root  # noqa: E402

CASE_40 = [
    -27, -8, -1, -1e-30, -0.0, 0.0, 1e-30, 1.401298464324817e-45, 1, 8, 27, 1e38, np.inf, -np.inf, np.nan,
]  # fmt: skip


def sweep(dtype: torch.dtype) -> torch.Tensor:
    """Both signs of every exponent, subnormals included, 20 numbers each."""
    info = torch.finfo(dtype)
    low, high = np.log2(info.smallest_normal * info.eps), np.log2(info.max)
    powers = np.linspace(low, high, 20 * int(high - low), dtype=np.longdouble)
    numbers = torch.from_numpy(np.exp2(powers[:-1]).astype(np.float64)).to(dtype)
    return torch.cat([numbers, -numbers])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("where", ["reference", "body"])
def test_within_two_ulps_of_cbrt_everywhere(
    dtype: torch.dtype, where: str, run_body: Any, assert_within: Any
) -> None:
    x = sweep(dtype)
    y = cube_root(x) if where == "reference" else run_body(cube_root, Sample((x,)))[0]
    expected = torch.from_numpy(np.cbrt(x.double().numpy().astype(np.longdouble)).astype(np.float64))
    assert_within(y, expected, expected, 2 if dtype in (torch.float32, torch.float64) else 0.51)


@pytest.mark.parametrize("where", ["reference", "body"])
def test_signs_zeros_subnormals_and_infinities(where: str, run_body: Any) -> None:
    x = torch.tensor(CASE_40, dtype=torch.float32)
    y = (cube_root(x) if where == "reference" else run_body(cube_root, Sample((x,)))[0]).numpy()
    expected = np.cbrt(x.numpy())
    np.testing.assert_array_max_ulp(y[:-1], expected[:-1], 1)
    np.testing.assert_array_equal(np.signbit(y[:-1]), np.signbit(expected[:-1]))
    assert np.isnan(y[-1])
    assert y[9] == 2  # 8 exactly


def test_the_gradient_at_zero_is_zero_and_finite_beside_it() -> None:
    x = torch.tensor([-8.0, -0.0, 0.0, 8.0, 1e-45], requires_grad=True)
    (gradient,) = torch.autograd.grad(cube_root(x).sum(), x, create_graph=True)
    assert gradient[:4].tolist() == pytest.approx([1 / 12, 0, 0, 1 / 12])
    assert torch.isfinite(gradient).all()
    (second,) = torch.autograd.grad(gradient[:4].sum(), x)
    # −2/9 · x^(−5/3), odd
    assert second[:4].tolist() == pytest.approx([2 / 9 / 32, 0, 0, -2 / 9 / 32])
