"""Runs that are not counted: until the times have become stable, and no longer than they may take.

The first call of a shape allocates, chooses kernels, compiles, touches its pages for the first time; the second one may
still do. How long that goes on differs by orders of magnitude between runtimes, so it is seen from the times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["WarmUp", "is_settled", "warmed_up"]

# Two successive windows of WINDOW runs, whose medians differ by no more than TOLERANCE; or FEW runs that all do: a slow
# model need not run eleven times to show that it is steady.
WINDOW = 5
FEW = 3
TOLERANCE = 0.05
# Times of the warm-up that a record keeps: what happens in it, happens in the beginning.
KEPT = 100


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The first times of each candidate, the first call in front, and whether it had become stable in the end."""

    times: tuple[tuple[float, ...], ...]
    runs: int
    settled: tuple[bool, ...]


def is_settled(times: Sequence[float]) -> bool:
    """Have the last runs the median of those before them, or are the last few alike? The first call does not count."""
    last = times[1:][-FEW:]
    if len(last) == FEW and max(last) <= (1 + TOLERANCE) * min(last):
        return True
    if len(times) < 1 + 2 * WINDOW:
        return False
    late = statistics.median(times[-WINDOW:])
    early = statistics.median(times[-2 * WINDOW : -WINDOW])
    return abs(late - early) <= TOLERANCE * early


def warmed_up(
    candidates: Sequence[Callable[[], float]],
    first: Sequence[float],
    *,
    seconds: float,
    most_seconds: float,
    clock: Callable[[], float],
) -> WarmUp:
    """Run all candidates in turn until each has settled and `seconds` have passed, or `most_seconds` have.

    All of them until the last has settled, so that they meet the caches in the state in which they are measured. Each
    runs at least once more. `first` are the times of the first calls, which compile and may take any time: they are in no
    limit.
    """
    times: list[list[float]] = [[ms] for ms in first]
    start = clock()
    while True:
        for call, of in zip(candidates, times, strict=True):
            of.append(call())
        passed = clock() - start
        if passed < min(seconds, most_seconds):
            continue
        settled = tuple(is_settled(of) for of in times)
        if all(settled) or passed >= most_seconds:
            kept = tuple(tuple(of[:KEPT]) for of in times)
            return WarmUp(kept, len(times[0]), settled)
