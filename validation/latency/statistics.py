"""What a series of times says, and how far a ratio of two medians can be trusted.

Times are no independent draws from a bell curve: they are skewed, have outliers, and neighbours in time resemble
each other. So medians and quantiles instead of means, and an interval from a block bootstrap, which assumes no
distribution and keeps neighbours together:

- The runs are interleaved, so run k of both sides saw the same machine. Rounds are drawn, not runs: what both sides
  have in common cancels.
- Circular blocks of consecutive rounds (Politis and Romano, 1992) are as long as the series remembers: the length
  minimises the error of the estimated variance (Politis and White, 2004, with the correction of Patton, Politis and
  White, 2009), from the autocorrelation of the ratio's influence function.
- The interval is that of the bootstrap's percentiles (Efron and Tibshirani, 1993), of the ratio of the medians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "CONFIDENCE",
    "FEWEST_RUNS",
    "Interval",
    "Summary",
    "drift",
    "log_medians",
    "log_ratios",
    "outliers",
    "ratio_interval",
    "summary",
]

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# Fewer of them for long series, whose medians differ less: 4 million draws, and never too few for the tails.
RESAMPLES, FEWEST_RESAMPLES, MOST_DRAWS = 2000, 800, 4_000_000
# Fewer runs than these say nothing about their own spread.
FEWEST_RUNS = 10
# Elements that are drawn at once: bounds the memory, 32 MB for indices and values.
_CHUNK = 2_000_000
# The far fence of Tukey (1977). Clocks tick: an interquartile range below their tick is none.
_FAR = 3.0
_TICK_MS = 1e-4


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one series: milliseconds; `spread` is the interquartile range over the median."""

    median: float
    p90: float
    p99: float
    mean: float
    spread: float
    drift: float
    outliers: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio of medians, and where it lies with the given confidence.

    Attributes:
        block: rounds drawn together.
        effective: how many rounds without memory would say as much (Bartlett: n·(1 − ρ)/(1 + ρ), ρ that of neighbours).
    """

    ratio: float
    low: float
    high: float
    block: int
    effective: float


def summary(times: Sequence[float]) -> Summary:
    """Median, quantiles (linear between neighbours), mean, spread, drift and outliers of a series.

    Raises:
        ValueError: an empty series.
    """
    series = _series(times)
    low, median, high, p90, p99 = (float(v) for v in np.quantile(series, (0.25, 0.5, 0.75, 0.9, 0.99)))
    return Summary(
        median=median,
        p90=p90,
        p99=p99,
        mean=float(series.mean()),
        spread=(high - low) / median if median else 0.0,
        drift=drift(series),
        outliers=outliers(series),
    )


def outliers(times: Sequence[float] | Floats) -> int:
    """How many runs lie beyond Tukey's far fence, three interquartile ranges outside of the middle half."""
    series = _series(times)
    low, high = np.quantile(series, (0.25, 0.75))
    reach = _FAR * max(float(high - low), _TICK_MS)
    return int(np.count_nonzero((series < low - reach) | (series > high + reach)))


def drift(times: Sequence[float] | Floats) -> float:
    """The median of the second half against that of the first: 0.1 where it became 10 % slower."""
    series = _series(times)
    half = len(series) // 2
    if not half:
        return 0.0
    early = float(np.median(series[:half]))
    return float(np.median(series[half:])) / early - 1 if early else 0.0


def ratio_interval(
    ours: Sequence[float], theirs: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """Median of `ours` over that of `theirs`, which were measured in turn: run k of both is round k.

    Raises:
        ValueError: series of different lengths, empty ones, or times that are not positive.
    """
    a, b = _rounds(ours, theirs)
    block = _block_length(_influence(a) - _influence(b))
    drawn = _log_ratios(a, b, block, seed)
    tail = (1 - confidence) / 2
    low, high = np.exp(np.quantile(drawn, (tail, 1 - tail)))
    # of the rounds' own ratios: what both sides have in common is no memory of the ratio's
    own = np.log(a / b)
    alike = max(0.0, _neighbours(np.sign(own - np.median(own))))
    effective = len(a) * (1 - alike) / (1 + alike)
    return Interval(float(np.median(a) / np.median(b)), float(low), float(high), block, effective)


def log_ratios(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0) -> Floats:
    """The bootstrap distribution of the logarithm of the ratio of medians; raises as `ratio_interval`."""
    a, b = _rounds(ours, theirs)
    return _log_ratios(a, b, _block_length(_influence(a) - _influence(b)), seed)


def log_medians(times: Sequence[float], *, seed: int = 0) -> Floats:
    """The same of the logarithm of one series' median, where there is nothing to pair it with."""
    series, ones = _rounds(times, np.ones(len(times)))
    return _log_ratios(series, ones, _block_length(_influence(series)), seed)


def _rounds(ours: Sequence[float] | Floats, theirs: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    a, b = _series(ours), _series(theirs)
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} runs are no rounds")
    if min(a.min(), b.min()) <= 0:
        raise ValueError("a time that is not positive")
    return a, b


def _log_ratios(a: Floats, b: Floats, block: int, seed: int) -> Floats:
    count = len(a)
    generator = np.random.default_rng(seed)
    blocks = math.ceil(count / block)
    offsets = np.arange(block)
    # the series and its beginning once more: blocks that go over the end need no modulo
    a, b = np.concatenate((a, a[:block])), np.concatenate((b, b[:block]))
    resamples = min(RESAMPLES, max(FEWEST_RESAMPLES, MOST_DRAWS // count))
    at_once = max(1, _CHUNK // count)
    found = []
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        starts = generator.integers(0, count, (rows, blocks))
        rounds = (starts[:, :, None] + offsets).reshape(rows, -1)[:, :count]
        found.append(np.log(_medians(a[rounds])) - np.log(_medians(b[rounds])))
    return np.concatenate(found)


def _medians(rows: Floats) -> Floats:
    """Of each row, which is sorted in place: numpy sorts short rows many times faster than it selects in them."""
    rows.sort(axis=1)
    middle = rows.shape[1] // 2
    upper: Floats = rows[:, middle]
    return upper if rows.shape[1] % 2 else (rows[:, middle - 1] + upper) / 2


def _influence(series: Floats) -> Floats:
    """How each run pulls at the logarithm of the median, but for a factor that both sides share.

    A median moves by the sign of a run's deviation over the density at the median; densities of like shape are as
    one over the relative interquartile range.
    """
    low, median, high = np.quantile(series, (0.25, 0.5, 0.75))
    signs: Floats = np.sign(series - median) * float((high - low) / median)
    return signs


def _neighbours(series: Floats) -> float:
    """The correlation of a series with itself one step later."""
    centred = series - series.mean()
    variance = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / variance if variance else 0.0


def _block_length(series: Floats) -> int:
    """That of Politis and White, and at least the cube root of the number of rounds, which misses short memory less."""
    return max(_remembered(series), int(np.cbrt(len(series)) + 0.5))


def _remembered(series: Floats) -> int:
    """The length for circular blocks of Politis and White (2004); 1 for a series without memory."""
    count = len(series)
    centred = series - series.mean()
    variance = float(centred @ centred) / count
    if count < 8 or variance == 0:
        return 1
    most = math.ceil(math.sqrt(count)) + max(5, math.ceil(math.log10(count)))
    most = min(most, count - 1)
    covariance = np.array([float(centred[: count - k] @ centred[k:]) / count for k in range(most + 1)])
    quiet = np.abs(covariance[1:] / variance) < 2 * math.sqrt(math.log10(count) / count)
    in_a_row = max(5, math.ceil(math.sqrt(math.log10(count))))
    last = _last_correlated(quiet, in_a_row)
    lags = min(2 * last, most)
    if lags == 0:
        return 1
    k = np.arange(-lags, lags + 1)
    # the flat-top window: 1 up to half of the lags, then down to 0
    window = np.clip(2 * (1 - np.abs(k) / lags), 0, 1)
    weighted = window * covariance[np.abs(k)]
    spectrum = float(weighted.sum())
    slope = float((np.abs(k) * weighted).sum())
    if spectrum <= 0:
        return 1
    length = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return int(min(max(1, math.ceil(length)), math.ceil(min(3 * math.sqrt(count), count / 3))))


def _last_correlated(quiet: npt.NDArray[np.bool_], in_a_row: int) -> int:
    """The lag after which `in_a_row` lags are no more than noise; else the last one that is more."""
    for lag in range(len(quiet)):
        if quiet[lag : lag + in_a_row].all():
            return lag
    loud = np.flatnonzero(~quiet)
    return int(loud[-1]) + 1 if len(loud) else 0


def _series(times: Sequence[float] | Floats) -> Floats:
    series = np.asarray(times, dtype=np.float64)
    if not series.size:
        raise ValueError("no runs")
    return series
