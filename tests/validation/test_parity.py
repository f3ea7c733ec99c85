"""The budget on case 24: correct float16 passes where copied tolerances fail it, and faults do not pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from deployops.validation.parity import budget as parity
from deployops.validation.parity.judge import judge
from deployops.validation.parity.metrics import Metrics, measure


@pytest.fixture(scope="module")
def case_24() -> dict[str, np.ndarray]:
    """The network of the case, its output in float16, float32 and float64, float16 weights throughout."""
    torch.manual_seed(0)
    layers = [m for _ in range(6) for m in (nn.Linear(256, 256), nn.GELU())]
    net = nn.Sequential(*layers, nn.Linear(256, 10)).eval()
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, std=0.02)
    x = torch.randn(32, 256).half()
    with torch.no_grad():
        half = net.half()(x)
        single = net.float()(x.float())
        double = net.double()(x.double())
    out = {"half": half.numpy(), "single": single.numpy(), "double": double.numpy()}
    out["bias"] = net[-1].bias.detach().numpy()
    return out


def judged(got: np.ndarray, original: np.ndarray, wide: np.ndarray) -> str:
    own = measure(original, original, wide, rtol=parity.own_rtol(original.dtype))
    budget = parity.derived(own, original.dtype, "test")
    return judge(measure(got, original, wide, rtol=budget.rtol, atol=budget.atol), budget)[0]


def test_correct_float16_passes(case_24: dict[str, np.ndarray]) -> None:
    half, single, double = case_24["half"], case_24["single"], case_24["double"]
    got = single.astype(np.float16)  # float32 inside, rounded once: as good as float16 gets
    assert not np.allclose(got, half, rtol=1e-3, atol=1e-5)  # the copied tolerance
    assert judged(got, half, double) == "passed"


def test_dropped_bias_fails(case_24: dict[str, np.ndarray]) -> None:
    half, single, double = case_24["half"], case_24["single"], case_24["double"]
    bad = single.copy()
    bad[:, 7] -= case_24["bias"][7]
    assert np.allclose(bad, half, rtol=0, atol=1e-1)  # the tolerance people then choose
    assert judged(bad.astype(np.float16), half, double) == "failed"
    assert judged(bad, single, double) == "failed"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_zeros_against_tiny_fail(case_24: dict[str, np.ndarray], dtype: type) -> None:
    tiny = case_24["double"] * 1e-4
    assert np.allclose(np.zeros_like(tiny), tiny, rtol=1e-3, atol=1e-3)
    assert judged(np.zeros(tiny.shape, dtype), tiny.astype(dtype), tiny) == "failed"
    assert judged(tiny.astype(dtype), tiny.astype(dtype), tiny) == "passed"


def test_the_formula() -> None:
    """Against the docstring's formula, with numbers small enough to follow by hand."""
    own = Metrics(16, 16, max_abs=3e-6, rms=1e-6, scale=2.0, scale_rms=1.0, excess=2e-6, identical=False)
    eps = 2.0**-23
    budget = parity.derived(own, np.float32, "test")
    assert budget.atol == pytest.approx(8 * 1.5 * 2e-6 + 4 * eps * 2.0)
    assert budget.rtol == 4 * eps
    assert budget.rms == pytest.approx(4 * (1.5 * 1e-6 + eps * 1.0))
    half = parity.derived(own, np.float16, "test")
    eps = 2.0**-10
    assert half.atol == pytest.approx(2 * 1.5 * 2e-6 + eps * 2.0)
    assert half.rms == pytest.approx(1.5 * (1.5 * 1e-6 + eps / 12**0.5))


def test_one_element_gives_no_licence_to_fail() -> None:
    """A single output that PyTorch happened to hit exactly: a few ULPs remain allowed."""
    own = Metrics(1, 1, scale=1.0, scale_rms=1.0)
    budget = parity.derived(own, np.float32, "test")
    one = np.float32([1.0])
    for ulps, verdict in ((3, "passed"), (100, "failed")):
        got = one + np.float32(ulps * 2.0**-23)
        m = measure(got, one, rtol=budget.rtol, atol=budget.atol)
        assert judge(m, budget)[0] == verdict


def test_a_subnormal_scale_has_the_spacing_of_subnormals() -> None:
    own = Metrics(4, 4, scale=1e-7, scale_rms=1e-7)
    assert parity.derived(own, np.float16, "test").atol >= 2.0**-24
