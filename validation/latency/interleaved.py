"""How long the two sides take, measured in turns.

In turns (A, B, A, B, …), because a machine's clock, caches and neighbours change over seconds: measured one
after the other, both sides would see different machines. Medians, because one page fault should not move the
number.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .record import Timing

__all__ = ["interleaved", "timed", "timing"]

# Spread of the middle half over the median, and drift of the second half's median, beyond which no number
# is stable.
WIDEST_SPREAD = 0.25
WIDEST_DRIFT = 0.15


def interleaved(
    original: Callable[[], float],
    candidate: Callable[[], float],
    *,
    warmup_s: float = 0.1,
    seconds: float = 0.5,
    runs: int = 20,
    most_seconds: float = 10.0,
) -> tuple[list[float], list[float]]:
    """Milliseconds of each run of both sides, the very first one of each in front.

    A side is a function that runs once and returns its milliseconds: it may have its own clock and process.

    Warm-up for at least two calls and `warmup_s` seconds, not kept but for the first; then at least `runs`
    runs and `seconds` seconds, and no run begins after `most_seconds`.
    """
    clock = time.perf_counter
    sides = ((original, [original()]), (candidate, [candidate()]))
    start, warm = clock(), 0
    while warm < 2 or clock() - start < min(warmup_s, most_seconds):
        for call, _ in sides:
            call()
        warm += 1
    start, done = clock(), 0
    while done < runs or clock() - start < seconds:
        if done >= 3 and clock() - start > most_seconds:
            break
        # whoever goes second finds its data pushed out of the cache: take turns
        for call, times in sides if done % 2 == 0 else reversed(sides):
            times.append(call())
        done += 1
    return sides[0][1], sides[1][1]


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """`call` as a side of `interleaved`."""

    def once() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return once


def timing(candidate: str, sample: str, times: list[float], load: float | None = None) -> Timing:
    """Summary of `interleaved` times, the first call apart."""
    first, rest = times[0], times[1:]
    if not rest:
        raise ValueError("no runs after the first")
    ordered = sorted(rest)
    median = _quantile(ordered, 0.5)
    spread = (_quantile(ordered, 0.75) - _quantile(ordered, 0.25)) / median if median else 0.0
    half = len(rest) // 2
    early, late = sorted(rest[:half]), sorted(rest[half:])
    drift = _quantile(late, 0.5) / _quantile(early, 0.5) - 1 if half else 0.0
    unstable = ""
    if len(rest) < 10:
        unstable = f"only {len(rest)} runs"
    elif spread > WIDEST_SPREAD:
        unstable = f"the middle half of the runs spreads over {spread:.0%} of the median"
    elif abs(drift) > WIDEST_DRIFT:
        unstable = f"the second half of the runs is {drift:+.0%} against the first"
    return Timing(
        candidate=candidate,
        sample=sample,
        times=tuple(rest),
        first=first,
        median=median,
        p90=_quantile(ordered, 0.9),
        p99=_quantile(ordered, 0.99),
        mean=sum(rest) / len(rest),
        throughput=1e3 / median if median else 0.0,
        load=load,
        drift=drift,
        unstable=unstable,
    )


def _quantile(ordered: list[float], q: float) -> float:
    """Linear interpolation between the neighbours, as numpy's default."""
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
