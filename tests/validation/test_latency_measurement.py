"""Candidates take turns, warm up until they are stable, and are told apart from what is not their own. No clock runs here."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise, repeat

import numpy as np
import pytest
from pydantic import TypeAdapter

from deployops.validation.latency.interleaving import orders
from deployops.validation.latency.limits import judge
from deployops.validation.latency.measurement import measure, merged, ratio_of, timing_of
from deployops.validation.latency.record import LatencyRecord
from deployops.validation.latency.warm_up import is_settled
from deployops.validation.record import Limits


class Clock:
    """Time that passes only where a candidate says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def candidate(
        self, series: Iterable[float], log: list[str] | None = None, name: str = ""
    ) -> Callable[[], float]:
        times: Iterator[float] = iter(series)

        def once() -> float:
            ms = next(times)
            self.now += ms / 1e3
            if log is not None:
                log.append(name)
            return ms

        return once


def noisy(median: float, seed: int, sigma: float = 0.01) -> Iterator[float]:
    generator = np.random.default_rng(seed)
    while True:
        yield float(median * np.exp(sigma * generator.normal()))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 9])
def test_each_candidate_stands_everywhere_and_follows_each_other_one_equally_often(count: int) -> None:
    square = orders(count)
    assert all(sorted(row) == list(range(count)) for row in square)
    for place in range(count):
        assert len(set(Counter(row[place] for row in square).values())) == 1
    follows = Counter((a, b) for row in square for a, b in pairwise(row))
    assert len(follows) == count * (count - 1)
    assert len(set(follows.values())) <= 1


def test_candidates_run_once_in_each_round_and_in_changing_order() -> None:
    clock, log = Clock(), []
    names = ("pytorch", "b", "c")
    candidates = {n: clock.candidate(repeat(1.0), log, n) for n in names}
    record = measure(candidates, "s", threads=1, seconds=0, runs=12, warmup_s=0, clock=clock)
    warm = record.timings[0].warmup_runs
    rounds = [tuple(log[k : k + 3]) for k in range(3 * warm, len(log), 3)]
    assert len(rounds) == 12
    assert all(sorted(r) == sorted(names) for r in rounds)
    assert len(set(rounds)) == 6


def test_the_first_call_and_the_load_are_in_no_other_number() -> None:
    clock = Clock()
    slow_start = chain([500.0, 40.0], repeat(2.0))
    record = measure(
        {"pytorch": clock.candidate(noisy(1.0, 0)), "onnxruntime": clock.candidate(slow_start)},
        "batch=1",
        threads=2,
        loads={"onnxruntime": 900.0},
        clock=clock,
    )
    timing = record.timings[1]
    assert (timing.first, timing.load, timing.median, timing.p99, timing.mean) == (
        500.0,
        900.0,
        2.0,
        2.0,
        2.0,
    )
    assert timing.warmup[:2] == (500.0, 40.0)
    assert timing.throughput == 500.0
    assert record.ratios[0].ratio == pytest.approx(2.0, rel=0.01)
    assert (record.ratios[0].against, record.threads) == ("pytorch", 2)


def test_the_warm_up_goes_on_until_the_times_are_stable() -> None:
    clock = Clock()
    falling = chain((100.0 * 0.8**k for k in range(25)), repeat(0.4))
    record = measure(
        {"pytorch": clock.candidate(repeat(1.0)), "b": clock.candidate(falling)}, "s", threads=1, clock=clock
    )
    late = record.timings[1]
    assert late.settled
    assert late.warmup_runs >= 25
    assert set(late.times) == {0.4}


def test_a_warm_up_that_does_not_settle_ends_and_is_told() -> None:
    clock = Clock()
    rising = (1.0 * 1.2**k for k in range(10_000))
    record = measure(
        {"a": clock.candidate(rising)}, "s", threads=1, reference="a", most_seconds=5, clock=clock
    )
    assert not record.timings[0].settled
    assert "had not become stable" in record.notes[0]
    assert record.timings[0].unstable


def test_a_slow_model_need_not_warm_up_often() -> None:
    assert is_settled([9000.0, 800.0, 801.0, 799.0])
    assert not is_settled([800.0, 801.0, 799.0])  # the first call does not count
    assert not is_settled([9.0, 5.0, 4.0, 3.0])


def test_the_least_time_and_the_least_runs_both_hold() -> None:
    clock = Clock()
    quick = measure({"a": clock.candidate(repeat(1.0))}, "s", threads=1, seconds=2.0, runs=10, clock=clock)
    assert sum(quick.timings[0].times) == pytest.approx(2000.0, abs=1)
    slow = measure({"a": clock.candidate(repeat(300.0))}, "s", threads=1, seconds=2.0, runs=20, clock=clock)
    assert len(slow.timings[0].times) == 20


def test_no_run_begins_after_the_most_time_and_the_series_is_called_short() -> None:
    clock = Clock()
    record = measure({"a": clock.candidate(repeat(4000.0))}, "s", threads=1, most_seconds=20.0, clock=clock)
    assert len(record.timings[0].times) == 6
    assert record.timings[0].unstable == "only 6 runs"


def test_the_number_of_samples_is_bounded() -> None:
    clock = Clock()
    record = measure({"a": clock.candidate(repeat(1e-3))}, "s", threads=1, most_runs=500, clock=clock)
    assert len(record.timings[0].times) == 500


def test_the_garbage_collector_is_off_while_it_is_measured_and_on_again() -> None:
    states = []

    def once() -> float:
        states.append(gc.isenabled())
        if len(states) > 40:
            raise RuntimeError("stop")
        return 1.0

    with pytest.raises(RuntimeError, match="stop"):
        measure({"a": once}, "s", threads=1)
    assert not any(states)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("series", "word"),
    [
        ([1.0, 3.0] * 20, "spreads"),
        ([1.0] * 20 + [1.2] * 20, "against the first"),
        ([1.0] * 5, "only 5 runs"),
    ],
)
def test_unstable_series_are_called_so(series: list[float], word: str) -> None:
    assert word in timing_of("x", "s", series).unstable


def ratio(ours: list[float], theirs: list[float]) -> str:
    return ratio_of(timing_of("b", "s", ours), timing_of("pytorch", "s", theirs)).unstable


def test_ratios_that_cannot_be_trusted_say_why() -> None:
    steady = [v for v, _ in zip(noisy(1.0, 1), range(60), strict=False)]
    assert ratio([1.5 * v for v in steady], steady) == ""
    assert ratio(steady[:5], steady[:5]) == "only 5 rounds"
    drifting = [v * (1.0 if k < 30 else 1.5) for k, v in enumerate(steady)]
    assert ratio(drifting, steady)
    wild = [v for v, _ in zip(noisy(1.0, 2, sigma=1.5), range(40), strict=False)]
    assert "too wide" in ratio(wild, steady)
    assert "no time" in ratio([0.0] * 20, [1.0] * 20)


def test_what_drifts_on_both_sides_leaves_the_ratio_alone() -> None:
    """Each side becomes 50 % slower: no number of either is stable, but their ratio is."""
    slower = [1.0 if k < 50 else 1.5 for k in range(100)]
    a = [s * v for s, v in zip(slower, noisy(1.0, 3), strict=False)]
    b = [s * v for s, v in zip(slower, noisy(2.0, 4), strict=False)]
    assert timing_of("a", "s", a).unstable
    found = ratio_of(timing_of("b", "s", b), timing_of("a", "s", a))
    assert found.unstable == ""
    assert found.low < 2.0 < found.high


def test_a_candidate_that_fails_at_once_is_told_and_no_limit_passes_by_it() -> None:
    def broken() -> float:
        raise RuntimeError("no kernel\nfor this")

    clock = Clock()
    candidates = {"pytorch": clock.candidate(noisy(1, 9)), "b": broken, "c": clock.candidate(noisy(1, 10))}
    record = measure(candidates, "s", threads=1, clock=clock)
    assert [t.candidate for t in record.timings] == ["pytorch", "c"]
    assert "latency of b at s not measured: RuntimeError: no kernel for this" in record.notes
    verdicts = {r.candidate: r.verdict for r in judge(record, Limits(max_slowdown=1.5)).ratios}
    assert verdicts == {"b": "not checked", "c": "passed"}
    with pytest.raises(RuntimeError, match="no kernel"):
        measure({"b": broken}, "s", threads=1)
    with pytest.raises(ValueError, match="no candidates"):
        measure({}, "s", threads=1)


def test_a_record_survives_json() -> None:
    clock = Clock()
    record = measure(
        {"pytorch": clock.candidate(noisy(1.0, 5)), "b": clock.candidate(noisy(2.0, 6))},
        "s",
        threads=1,
        fingerprint={"machine": "x"},
        pools={"b": 1},
        clock=clock,
    )
    adapter = TypeAdapter(LatencyRecord)
    assert adapter.validate_json(adapter.dump_json(record)) == record
    assert record.timings[1].threads == 1


def test_records_of_several_samples_become_one_and_of_other_settings_do_not() -> None:
    clock = Clock()

    def one(sample: str, threads: int = 1) -> LatencyRecord:
        return measure(
            {"pytorch": clock.candidate(noisy(1, 7)), "b": clock.candidate(noisy(2, 8))},
            sample,
            threads=threads,
            clock=clock,
        )

    both = merged([one("batch=1"), one("batch=8")])
    assert [(t.candidate, t.sample) for t in both.timings] == [
        ("pytorch", "batch=1"), ("b", "batch=1"), ("pytorch", "batch=8"), ("b", "batch=8"),
    ]  # fmt: skip
    assert len(both.ratios) == 2
    with pytest.raises(ValueError, match="settings"):
        merged([one("batch=1"), one("batch=8", threads=2)])
