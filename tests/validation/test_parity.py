"""The budget on case 24: correct float16 passes where copied tolerances fail it, and faults do not pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from deployops.validation.parity import budget as parity
from deployops.validation.parity.groups import either, groups_of, pooled
from deployops.validation.parity.judge import budget_used, judge, rejudged
from deployops.validation.parity.metrics import Binade, Metrics, measure, measure_exact
from deployops.validation.parity.running import row_of


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
    return judge(measure(got, original, wide, tolerance=budget.tolerance()), budget)[0]


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


def row(sign: int = 1, exponent: int = 0, count: int = 100, **numbers: float) -> Binade:
    found = {"size": 1.5 * 2.0**exponent, "excess": 0.0, "rms": 0.0, "bias": 0.0, **numbers}
    return Binade(sign, exponent, count=count, distinct=count, **found)


def test_the_formula() -> None:
    """Against the formulas of docs/budget.md, with numbers small enough to follow by hand."""
    rows = (row(excess=2e-6, rms=1e-6, bias=-3e-8),)
    own = Metrics(
        100, 100, max_abs=3e-6, rms=1e-6, scale=2.0, scale_rms=1.5, gain=1e-7, identical=False, binades=rows
    )
    budget = parity.derived(own, np.float32, "test")
    eps, luck, tiny = 2.0**-23, 1.08, 2.0**-126
    [band] = budget.bands
    assert budget.rtol == 4 * eps
    assert band.atol == pytest.approx(8 * luck * 2e-6 + 4 * eps * 1.0 + tiny)
    assert band.rms == pytest.approx(4 * (luck * 1e-6 + eps * 1.5) + eps)
    assert band.bias == pytest.approx(8 * 3e-8 + 2 * eps * 1.5 + eps)
    assert budget.rms == pytest.approx(4 * (luck * 1e-6 + eps * 1.5))
    assert budget.gain == pytest.approx(8 * 1e-7 + 2 * eps)
    longer = parity.derived(own, np.float32, "test", longer=True)
    assert longer.bands[0].atol == pytest.approx(8 * luck * 2e-6 + 4 * eps * 2.0)

    half = parity.derived(own, np.float16, "test")
    eps = 2.0**-10
    floor = 16 * 2.0**-23 + 2 * 2.0**-24
    [band] = half.bands
    assert half.rtol == 2 * eps
    assert band.atol == pytest.approx(2 * luck * 2e-6 + floor)
    assert band.rms == pytest.approx(1.5 * (luck * 1e-6 + eps * 1.5 / 12**0.5) + floor)
    assert band.bias == pytest.approx(4 * 3e-8 + 0.6 * eps * 1.5 + floor)
    assert half.rms == pytest.approx(1.5 * (luck * 1e-6 + eps * 1.5 / 12**0.5) + 2 * 2.0**-24)


def test_bands_follow_the_magnitude() -> None:
    """Errors of 1e-2 at 256 and of 1e-5 at 1: what is right for the large is wrong for the small."""
    rows = (
        row(exponent=8, excess=1e-2, rms=1e-2),
        row(exponent=4),
        row(exponent=2),
        row(excess=1e-5, rms=1e-5),
    )
    own = Metrics(400, 400, rms=5e-3, scale=300.0, scale_rms=150.0, identical=False, binades=rows)
    budget = parity.derived(own, np.float32, "test")
    allowed = budget.tolerance().rows
    assert allowed is not None
    assert allowed[row_of(300.0)] == budget.bands[0].atol > 8e-2
    assert allowed[row_of(1.5)] == allowed[row_of(0.0)] < 1e-4
    assert allowed[row_of(-1.5)] == allowed[row_of(1.5)]  # no negative element was seen


def test_rows_without_enough_elements_are_joined() -> None:
    rows = (
        row(exponent=3, count=20),
        row(exponent=2, count=20),
        row(exponent=0, count=40),
        row(exponent=-9, count=9),
    )
    assert [(g.exponent, g.count) for g in groups_of(rows)] == [(2, 40), (-9, 49)]


def test_runs_are_pooled_row_by_row() -> None:
    first = Metrics(
        100, 100, rms=1.0, binades=(row(exponent=1, rms=1.0, bias=0.5), row(exponent=-1, rms=1.0))
    )
    other = Metrics(
        100, 100, rms=2.0, binades=(row(exponent=1, rms=2.0, bias=-0.8), row(exponent=-7, rms=3.0))
    )
    [large, small] = pooled([first, other]).binades
    assert large.rms == pytest.approx(math.sqrt(2.5))
    assert large.bias == -0.8  # not the mean: two runs may err to different sides
    assert (small.count, small.rms) == (200, pytest.approx(math.sqrt(5)))
    assert either(first, other).binades[0].rms == 2.0


def test_one_element_gives_no_licence_to_fail() -> None:
    """A single output that PyTorch happened to hit exactly: a few ULPs remain allowed."""
    one = np.float32([1.0])
    budget = parity.derived(measure(one, one, rtol=parity.own_rtol(np.float32)), np.float32, "test")
    for ulps, verdict in ((3, "passed"), (100, "failed")):
        got = one + np.float32(ulps * 2.0**-23)
        assert judge(measure(got, one, tolerance=budget.tolerance()), budget)[0] == verdict


RNG = np.random.default_rng(3)


def half_budget(wide: np.ndarray) -> tuple[np.ndarray, parity.Budget]:
    original = wide.astype(np.float16)
    own = measure(original, original, wide, rtol=parity.own_rtol(np.float16))
    return original, parity.derived(own, np.float16, "test")


@pytest.mark.parametrize(("shift", "reason"), [(0.0, ""), (0.9, "on average"), (2.5, "out of budget")])
def test_a_small_error_of_every_element_is_told_from_rounding(shift: float, reason: str) -> None:
    """`shift` ULPs on every element of a float16 output that is otherwise rounded correctly."""
    wide = RNG.standard_normal(4000)
    original, budget = half_budget(wide)
    spacing = 2.0 ** (np.floor(np.log2(np.abs(wide))) - 10)
    got = (wide + np.sign(wide) * shift * spacing).astype(np.float16)
    verdict, why = judge(measure(got, original, wide, tolerance=budget.tolerance()), budget)
    assert verdict == ("failed" if shift else "passed")
    assert reason in why or "rms" in why


def test_far_elements_that_err_to_one_side_are_no_rounding() -> None:
    """Noise of eight ULPs in the small elements, which PyTorch has too: to both sides it passes, to one it fails."""
    wide = np.concatenate([RNG.uniform(0.5, 1, 2000), RNG.uniform(0.01, 0.015, 2000)])
    noise = np.concatenate([np.zeros(2000), RNG.uniform(-1, 1, 2000) * 8 * 2.0**-17])
    original = (wide + noise).astype(np.float16)
    own = measure(original, original, wide, rtol=parity.own_rtol(np.float16))
    budget = parity.derived(own, np.float16, "test")
    tolerance = budget.tolerance()
    mirrored = (wide - noise).astype(np.float16)
    assert judge(measure(mirrored, original, wide, tolerance=tolerance), budget)[0] == "passed"
    leaning = np.where(np.arange(4000) % 25, 0, np.abs(noise))  # 80 elements, too few for the mean
    found = measure((wide + leaning).astype(np.float16), original, wide, tolerance=tolerance)
    verdict, why = judge(found, budget)
    assert verdict == "failed"
    assert "which errs to both sides" in why


def test_equal_elements_prove_no_bias() -> None:
    """A constant output errs to one side everywhere: that is one observation, not a thousand."""
    wide = np.full(1000, 1.3)
    original, budget = half_budget(wide)
    got = (original + np.float16(2.0**-10)).astype(np.float16)
    assert judge(measure(got, original, wide, tolerance=budget.tolerance()), budget)[0] == "passed"


def test_infinity_beside_the_largest_number_is_rounding() -> None:
    wide = np.concatenate([np.full(50, 65519.0), RNG.uniform(3e4, 6e4, 50)])
    original, budget = half_budget(wide)
    for value, verdict in ((65520.5, "passed"), (80000.0, "failed")):
        spoiled, reference = original.copy(), wide.copy()
        reference[0], spoiled[0] = value, np.inf
        found = measure(original, spoiled, reference, tolerance=budget.tolerance())
        assert judge(found, budget)[0] == verdict


@pytest.mark.parametrize(("atol", "rtol"), [(1e-3, 0.0), (0.0, 1e-2), (1e-4, 5e-3), (1e-5, 1e-5), (0.2, 0.0)])
def test_a_saved_report_is_judged_again_never_too_mildly(atol: float, rtol: float) -> None:
    want = RNG.standard_normal(3000).astype(np.float32)
    got = (want * (1 + 2e-3 * RNG.standard_normal(3000))).astype(np.float32)
    own = measure(want, want, rtol=parity.own_rtol(np.float32))
    saved = measure(got, want, tolerance=parity.derived(own, np.float32, "test").tolerance())
    metrics, verdict, _ = rejudged(saved, parity.user(atol, rtol))
    really = bool(
        np.all(np.abs(got.astype(np.float64) - want) <= atol + rtol * np.abs(want.astype(np.float64)))
    )
    assert not (verdict == "passed" and not really)
    assert (verdict == "passed") == (metrics.over <= 1)
    assert budget_used(metrics, parity.user(atol, rtol)) == pytest.approx(metrics.over)


def test_judging_again_forgives_no_lost_nan() -> None:
    nan = np.float32([np.nan, 1])
    assert rejudged(measure(np.float32([0, 1]), nan), parity.user(9.0, 9.0))[1] == "failed"
    assert rejudged(measure_exact(np.array([1]), np.array([2])), parity.EXACT)[1] == "failed"


def test_a_subnormal_scale_has_the_spacing_of_subnormals() -> None:
    own = Metrics(4, 4, scale=1e-7, scale_rms=1e-7)
    assert parity.derived(own, np.float16, "test").atol >= 2.0**-24
