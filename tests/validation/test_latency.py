"""How sides are timed and what is said of a series."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from deployops.validation.latency.interleaved import interleaved, timing


def test_sides_take_turns_and_first_calls_stand_apart() -> None:
    calls: list[str] = []

    def side(name: str, times: list[float]) -> Callable[[], float]:
        def once() -> float:
            calls.append(name)
            return times.pop(0) if times else 1.0

        return once

    a, b = interleaved(side("a", [50.0]), side("b", [70.0]), warmup_s=0, seconds=0, runs=10)
    assert (a[0], b[0]) == (50.0, 70.0)
    assert (len(a), len(b)) == (11, 11)
    assert calls[:6] == ["a", "b", "a", "b", "a", "b"]
    assert all({calls[i], calls[i + 1]} == {"a", "b"} for i in range(0, len(calls), 2))
    assert timing("x", "s", a).median == 1.0
    assert timing("x", "s", a).first == 50.0


def test_quantiles_of_a_series() -> None:
    series = list(np.random.default_rng(0).normal(10, 0.1, 101))
    t = timing("x", "s", [99.0, *series])
    assert t.median == pytest.approx(np.median(series))
    assert t.p90 == pytest.approx(np.quantile(series, 0.9))
    assert (len(t.times), t.unstable) == (101, "")


@pytest.mark.parametrize(
    ("series", "word"),
    [
        ([1.0, 3.0] * 20, "spreads"),
        ([1.0] * 20 + [1.2] * 20, "against the first"),
        ([1.0] * 5, "only 5 runs"),
    ],
)
def test_unstable_series_are_called_so(series: list[float], word: str) -> None:
    assert word in timing("x", "s", [1.0, *series]).unstable
