"""Case 21: one large feature in float16 must not turn a row of a layer norm into zeros."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deployops.native.cpu_library import CpuLibrary
from deployops.symbolic.operators.add_rms_norm import add_rms_norm
from deployops.symbolic.operators.layer_norm import layer_norm
from deployops.symbolic.operators.rms_norm import rms_norm


@pytest.fixture
def rows() -> torch.Tensor:
    """64 numbers about 0 and a feature of 2000, whose square is no float16; and a plain row."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((2, 64))
    x[0, 7] = 2000
    return torch.from_numpy(x).half()


def exact_layer_norm(x: torch.Tensor) -> np.ndarray:
    z = x.double().numpy()
    d = z - z.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-5)


def test_layer_norm_keeps_the_row(rows: torch.Tensor, shipped_library: str) -> None:
    [y] = CpuLibrary(shipped_library).run(layer_norm, (rows,))
    truth = exact_layer_norm(rows)
    assert truth[0].max() == pytest.approx(7.94, abs=0.01)
    np.testing.assert_allclose(y.double().numpy(), truth, rtol=2**-10, atol=2**-15)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_rms_norms_keep_it_too(scale: float, rows: torch.Tensor, shipped_library: str) -> None:
    x, weight = (rows * scale), torch.ones(64).half()
    z = x.double().numpy()
    truth = z / np.sqrt((z**2).mean(-1, keepdims=True) + 1e-6)
    kernels = CpuLibrary(shipped_library)
    [y] = kernels.run(rms_norm, (x, weight))
    np.testing.assert_allclose(y.double().numpy(), truth, rtol=2**-10)
    y, total = kernels.run(add_rms_norm, (x, torch.zeros_like(x), weight))
    np.testing.assert_allclose(y.double().numpy(), truth, rtol=2**-10)
    assert torch.equal(total, x)


def test_the_largest_float16_numbers(shipped_library: str) -> None:
    x = torch.tensor([[65504.0, -65504.0, 65504.0, -65504.0]]).half()
    [y] = CpuLibrary(shipped_library).run(layer_norm, (x,))
    assert y.tolist() == [[1.0, -1.0, 1.0, -1.0]]


def test_an_eps_that_is_zero_in_float16(shipped_library: str) -> None:
    x = torch.zeros(1, 8).half()
    [y] = CpuLibrary(shipped_library).run(rms_norm, (x, None, 1e-12))
    assert y.tolist() == [[0.0] * 8]
