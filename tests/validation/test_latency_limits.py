"""Verdicts from numbers alone: beyond a limit, within it, or across it; and against an earlier record."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from deployops.errors import UsageError
from deployops.validation.latency.limits import judge, unjudged
from deployops.validation.latency.measurement import ratio_of, timing_of
from deployops.validation.latency.record import LatencyRecord, Ratio
from deployops.validation.record import Limits

HERE = {"processor": "P", "torch": "2"}


def series(median: float, seed: int, count: int = 200, sigma: float = 0.02) -> list[float]:
    return list(median * np.exp(sigma * np.random.default_rng(seed).normal(size=count)))


def record(
    original: float,
    candidate: float,
    seed: int = 0,
    *,
    name: str = "onnxruntime",
    device: str = "cpu",
    count: int = 200,
) -> LatencyRecord:
    reference = timing_of("pytorch", "s", series(original, seed, count))
    timing = timing_of(name, "s", series(candidate, seed + 1000, count), device=device)
    return LatencyRecord(1, (reference, timing), (ratio_of(timing, reference),), fingerprint=HERE)


def only(found: LatencyRecord, against: str = "pytorch") -> Ratio:
    (ratio,) = [r for r in found.ratios if r.against == against]
    return ratio


def with_interval(low: float, high: float, unstable: str = "") -> LatencyRecord:
    ratio = Ratio("onnxruntime", "pytorch", "s", math.sqrt(low * high), low, high, unstable=unstable)
    return LatencyRecord(1, (), (ratio,))


@pytest.mark.parametrize(
    ("low", "high", "limits", "verdict"),
    [
        (1.02, 1.08, Limits(max_slowdown=1.1), "passed"),
        (1.02, 1.10, Limits(max_slowdown=1.1), "passed"),
        (1.12, 1.20, Limits(max_slowdown=1.1), "failed"),
        (1.05, 1.15, Limits(max_slowdown=1.1), "not checked"),
        (0.45, 0.49, Limits(min_speedup=2.0), "passed"),
        (0.51, 0.60, Limits(min_speedup=2.0), "failed"),
        (0.49, 0.51, Limits(min_speedup=2.0), "not checked"),
        (0.55, 0.60, Limits(min_speedup=2.0, max_slowdown=1.1), "failed"),  # both must hold
        (1.12, 1.20, Limits(), "none"),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, limits: Limits, verdict: str) -> None:
    found = only(judge(with_interval(low, high), limits))
    assert found.verdict == verdict
    assert bool(found.reason) == (verdict in ("failed", "not checked"))


@pytest.mark.parametrize("limits", [Limits(max_slowdown=1.1), Limits(min_speedup=9.0)])
def test_no_verdict_from_what_is_unstable(limits: Limits) -> None:
    found = only(judge(with_interval(3.0, 3.1, "only 4 rounds"), limits))
    assert found.verdict == "not checked"
    assert "only 4 rounds" in found.reason


def test_a_true_slowdown_fails_and_an_equal_pair_passes() -> None:
    assert only(judge(record(1.0, 1.2), Limits(max_slowdown=1.1))).verdict == "failed"
    assert only(judge(record(1.0, 1.0), Limits(max_slowdown=1.1))).verdict == "passed"


def test_a_saved_record_is_judged_again_with_other_limits() -> None:
    adapter = TypeAdapter(LatencyRecord)
    first = judge(record(1.0, 1.2), Limits(max_slowdown=1.1), record(1.0, 1.2, seed=5))
    read = adapter.validate_json(adapter.dump_json(first))
    assert read == first
    again = judge(read, Limits(max_slowdown=1.5))
    assert [(r.against, r.verdict) for r in again.ratios] == [("pytorch", "passed")]
    assert judge(read, Limits(max_slowdown=1.1), record(1.0, 1.2, seed=5)) == first


@pytest.mark.parametrize(
    ("now", "limit", "verdict"),
    [
        (1.0, None, "passed"),
        (1.2, None, "failed"),
        (0.7, None, "passed"),
        (1.2, 0.5, "passed"),
        (1.03, 0.01, "failed"),
        (1.05, 0.05, "not checked"),
    ],
)
def test_a_regression_is_what_lies_beyond_the_interval_and_the_limit(
    now: float, limit: float | None, verdict: str
) -> None:
    found = only(judge(record(1.0, now), Limits(max_regression=limit), record(1.0, 1.0, seed=7)), "baseline")
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(now, rel=0.02)
    assert found.low < found.ratio < found.high


def test_the_same_regression_on_a_machine_that_became_slower_itself() -> None:
    """The original takes 10 % longer too: that is the machine, and what remains is the candidate's."""
    before = record(1.0, 1.0, seed=7)
    assert only(judge(record(1.1, 1.1), Limits(), before), "baseline").verdict == "passed"
    slower = only(judge(record(1.1, 1.1 * 1.2), Limits(), before), "baseline")
    assert slower.verdict == "failed"
    assert slower.ratio == pytest.approx(1.2, rel=0.02)


def test_a_machine_that_is_another_one_by_its_speed_is_not_compared_with() -> None:
    found = only(judge(record(2.0, 2.0), Limits(), record(1.0, 1.0, seed=7)), "baseline")
    assert found.verdict == "not checked"
    assert "the machine is not as it was" in found.reason


def test_another_device_is_not_corrected_by_the_original_s_processor() -> None:
    before = record(1.0, 1.0, seed=7, device="cuda:0")
    found = only(judge(record(1.2, 1.0, device="cuda:0"), Limits(), before), "baseline")
    assert found.ratio == pytest.approx(1.0, rel=0.02)
    assert found.verdict == "passed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fingerprint": {**HERE, "processor": "Q"}}, "processor is P, in the baseline Q"),
        ({"fingerprint": {"processor": "P"}}, "torch is 2, in the baseline not told"),
        ({"threads": 4}, "threads is 1, in the baseline 4"),
        ({"fingerprint": {}}, "does not say which machine"),
    ],
)
def test_another_machine_is_not_compared_with(change: dict[str, object], words: str) -> None:
    baseline = replace(record(1.0, 0.1, seed=7), **change)  # type: ignore[arg-type]
    found = only(judge(record(1.0, 1.0), Limits(max_regression=0.01), baseline), "baseline")
    assert found.verdict == "not checked"
    assert words in found.reason


def test_a_long_record_is_compared_with_a_short_one() -> None:
    found = only(judge(record(1.0, 1.2, count=4000), Limits(), record(1.0, 1.0, seed=7)), "baseline")
    assert found.verdict == "failed"


def test_candidates_that_are_on_one_side_only_are_told() -> None:
    found = judge(record(1.0, 1.0, name="new"), Limits(), record(1.0, 1.0, seed=7, name="old")).ratios
    verdicts = {r.candidate: (r.verdict, r.reason) for r in found if r.against == "baseline"}
    assert verdicts["new"] == ("not checked", "the baseline has no new at s")
    assert verdicts["old"] == ("not checked", "the baseline has old at s, which was not measured now")


def test_two_starts_of_one_program_are_seldom_called_a_regression() -> None:
    """By theory, a 5 % limit is eight standard errors away from an equal pair."""
    verdicts = [
        only(judge(record(1.0, 1.0, seed=k), Limits(), record(1.0, 1.0, seed=500 + k)), "baseline").verdict
        for k in range(20)
    ]
    assert set(verdicts) == {"passed"}


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_slowdown=0.0),
        Limits(min_speedup=-1.0),
        Limits(max_slowdown=math.nan),
        Limits(max_regression=-2.0),
    ],
)
def test_limits_that_nothing_can_reach_are_refused(limits: Limits) -> None:
    with pytest.raises(UsageError, match="finite number"):
        judge(record(1.0, 1.0), limits)


def test_limits_that_nothing_was_held_against_do_not_pass_silently() -> None:
    alone = LatencyRecord(1, (timing_of("pytorch", "s", series(1, 0)),))
    assert "not measured" in unjudged(None, Limits(max_slowdown=1.1))
    assert "no candidate" in unjudged(alone, Limits(min_speedup=1.1))
    assert "no baseline" in unjudged(record(1, 1), Limits(max_regression=0.1))
    assert unjudged(None, Limits()) == ""
    assert unjudged(judge(record(1, 1), Limits(max_slowdown=1.1)), Limits(max_slowdown=1.1)) == ""
