"""Intervals that hold what they promise, from series whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from deployops.validation.latency.statistics import drift, outliers, ratio_interval, summary

Floats = npt.NDArray[np.float64]
TRIALS = 250


def remembering(generator: np.random.Generator, count: int, memory: float) -> Floats:
    """A stationary series of standard deviation 1 in which neighbours correlate by `memory`."""
    noise = generator.normal(size=count)
    series = np.empty(count)
    last = generator.normal()
    for k in range(count):
        last = memory * last + math.sqrt(1 - memory**2) * noise[k]
        series[k] = last
    return series


def pair(kind: str, generator: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Two series of equal medians."""
    if kind == "skewed":
        return tuple(1 + 0.1 * generator.exponential(size=count) for _ in range(2))  # type: ignore[return-value]
    if kind == "remembering":
        return tuple(np.exp(0.05 * remembering(generator, count, 0.5)) for _ in range(2))  # type: ignore[return-value]
    if kind == "common":
        common = 0.1 * remembering(generator, count, 0.9)
        return tuple(np.exp(common + 0.03 * generator.normal(size=count)) for _ in range(2))  # type: ignore[return-value]
    a, b = (np.exp(0.05 * generator.normal(size=count)) for _ in range(2))
    if kind == "outliers":
        for series in (a, b):
            series[generator.random(count) < 0.05] *= 8
    return a, b


def lowest(promised: float) -> float:
    """What a true coverage of `promised` does not fall below in TRIALS trials but once in a thousand."""
    return promised - 3.1 * math.sqrt(promised * (1 - promised) / TRIALS)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("plain", 40), ("skewed", 40), ("outliers", 40), ("remembering", 120), ("common", 60)],
)
@pytest.mark.parametrize("truth", [1.0, 1.1])
def test_the_interval_covers_the_truth_as_often_as_it_says(kind: str, count: int, truth: float) -> None:
    """With truth 1: an equal pair is not called different more often than it may be."""
    generator = np.random.default_rng(20)
    hits = 0
    for trial in range(TRIALS):
        a, b = pair(kind, generator, count)
        found = ratio_interval(list(truth * a), list(b), seed=trial)
        assert found.low <= found.ratio <= found.high
        hits += found.low <= truth <= found.high
    assert hits / TRIALS >= lowest(0.95)


def test_the_interval_is_no_wider_than_theory_has_it() -> None:
    """Of normal logarithms: the median's standard error is √(π/2)·σ/√n, of a difference of two √2 of that."""
    generator = np.random.default_rng(3)
    count, sigma = 100, 0.05
    widths = []
    for trial in range(TRIALS):
        a, b = pair("plain", generator, count)
        found = ratio_interval(list(a), list(b), seed=trial)
        widths.append(math.log(found.high / found.low))
    expected = 2 * 1.96 * math.sqrt(2) * math.sqrt(math.pi / 2) * sigma / math.sqrt(count)
    assert np.mean(widths) == pytest.approx(expected, rel=0.15)


def test_what_both_sides_have_in_common_cancels() -> None:
    """The spread of each is 0.1, of the ratio 0.03·√2: paired by round, the interval is that of the latter."""
    generator = np.random.default_rng(4)
    a, b = pair("common", generator, 400)
    paired = ratio_interval(list(a), list(b))
    shuffled = ratio_interval(list(generator.permutation(a)), list(b))
    assert math.log(paired.high / paired.low) < 0.7 * math.log(shuffled.high / shuffled.low)


def test_three_per_cent_are_found() -> None:
    generator = np.random.default_rng(5)
    found = 0
    for trial in range(100):
        a, b = pair("plain", generator, 200)
        found += ratio_interval(list(1.03 * a), list(b), seed=trial).low > 1
    assert found >= 95  # by theory 99.7 %


def test_neighbours_that_resemble_each_other_are_drawn_together_and_told() -> None:
    generator = np.random.default_rng(6)
    plain = ratio_interval(*(list(s) for s in pair("plain", generator, 400)))
    walk = [list(np.exp(0.05 * remembering(generator, 400, 0.9))) for _ in range(2)]
    found = ratio_interval(*walk)
    assert found.block > 2 * plain.block
    # Bartlett: n·(1 − ρ)/(1 + ρ) with the correlation of the signs of a normal series, (2/π)·arcsin 0.9
    signs = 2 / math.pi * math.asin(0.9)
    assert found.effective == pytest.approx(400 * (1 - signs) / (1 + signs), rel=0.4)
    assert plain.effective > 300


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = pair("skewed", np.random.default_rng(7), 50)
    assert ratio_interval(list(a), list(b), seed=1) == ratio_interval(list(a), list(b), seed=1)
    assert ratio_interval(list(a), list(b), seed=1) != ratio_interval(list(a), list(b), seed=2)


def test_a_confidence_of_its_own() -> None:
    a, b = (list(s) for s in pair("plain", np.random.default_rng(8), 100))
    wide, narrow = ratio_interval(a, b, confidence=0.99), ratio_interval(a, b, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("series", [([1.0], [1.0, 2.0]), ([], []), ([0.0, 1.0], [1.0, 1.0])])
def test_what_is_no_pair_of_series_is_refused(series: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match=r"rounds|no runs|positive"):
        ratio_interval(*series)


def test_quantiles_are_those_of_numpy() -> None:
    series = list(np.random.default_rng(0).normal(10, 0.1, 101))
    found = summary(series)
    assert found.median == np.median(series)
    assert (found.p90, found.p99) == pytest.approx((np.quantile(series, 0.9), np.quantile(series, 0.99)))
    assert found.mean == pytest.approx(math.fsum(series) / 101)


def test_outliers_lie_beyond_the_far_fence() -> None:
    """Of 0, 1, …, 100 the middle half is 25 to 75: the fences stand at −125 and 225."""
    series = [float(k) for k in range(101)]
    assert outliers(series) == 0
    # each further value moves the quartiles a little: 230 is beyond, 220 is not
    assert outliers([*series, 220.0]) == 0
    assert outliers([*series, 260.0, -200.0, 1e9]) == 3


def test_a_tick_of_the_clock_is_no_outlier() -> None:
    assert outliers([1.0] * 50 + [1.0001]) == 0
    assert outliers([1.0] * 50 + [1.1]) == 1


def test_drift_is_the_change_of_the_second_half() -> None:
    assert drift([10.0] * 30 + [12.0] * 30) == pytest.approx(0.2)
    assert drift([10.0]) == 0.0
