"""Case 31: the first call of a shape is many times slower; it stands apart, and so does the load."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat

import pytest

from deployops.validation.latency.measurement import measure, timing_of
from deployops.validation.latency.record import Timing

# As recorded for the case: one call of 3.5 s, one of 111 ms, and 98 of about 83.8.
RECORDED = [3500.0, 111.0, *(83.0 + 0.4 * ((k * 7) % 5) for k in range(98))]


def measured(series: Iterable[float], **options: float) -> Timing:
    """The series as a candidate, on a clock that moves only by what it says; it goes on with its last 98 values."""
    values = list(series)
    now = [0.0]

    def candidate() -> Callable[[], float]:
        place = -1

        def once() -> float:
            nonlocal place
            place += 1
            ms = values[place] if place < len(values) else values[-98 + (place - len(values)) % 98]
            now[0] += ms / 1e3
            return ms

        return once

    record = measure(
        {"onnxruntime": candidate()},
        "s",
        threads=1,
        most_seconds=60,
        clock=lambda: now[0],
        **options,  # type: ignore[arg-type]
    )
    return record.timings[0]


def test_the_numbers_of_the_recorded_series() -> None:
    """With the first calls in it the mean is 118.2, which no call took; the median is 83.8."""
    whole = timing_of("onnxruntime", "s", RECORDED)
    assert (round(whole.median, 1), round(whole.mean, 1), round(whole.p99, 1)) == (83.8, 118.2, 144.9)


def test_measured_the_first_calls_are_in_no_number() -> None:
    found = measured(RECORDED)
    assert found.first == 3500.0
    assert found.warmup[:2] == (3500.0, 111.0)
    assert round(found.median, 1) == 83.8
    assert found.mean == pytest.approx(83.8, abs=0.1)
    assert max(found.times) < 85
    assert found.outliers == 0
    assert found.unstable == ""


@pytest.mark.parametrize("factor", [3, 40, 600])
@pytest.mark.parametrize("slow_calls", [1, 2, 6])
def test_however_slow_and_however_many_the_first_calls_are(factor: int, slow_calls: int) -> None:
    steady = [2.0 + 0.01 * (k % 3) for k in range(98)]
    found = measured([2.0 * factor / (k + 1) for k in range(slow_calls)] + steady)
    assert found.first == 2.0 * factor
    assert found.median == pytest.approx(2.01, abs=0.011)
    assert found.p99 < 2.03


def test_each_shape_warms_up_for_itself() -> None:
    shapes = {"batch=1": 1.0, "batch=8": 8.0}
    for label, ms in shapes.items():
        calls = chain([ms * 30], repeat(ms))
        record = measure(
            {"onnxruntime": lambda calls=calls: next(calls)}, label, threads=1, most_runs=50, seconds=0
        )  # type: ignore[misc]
        assert record.timings[0].first == ms * 30
        assert set(record.timings[0].times) == {ms}


def test_opening_the_file_is_in_no_latency() -> None:
    record = measure({"onnxruntime": lambda: 1.0}, "s", threads=1, loads={"onnxruntime": 700.0}, most_runs=50)
    assert record.timings[0].load == 700.0
    assert record.timings[0].mean == 1.0
