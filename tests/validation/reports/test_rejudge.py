"""Saved numbers under other limits: the same verdict as measuring again gives, or *not checked*, never a guess."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployops.errors import ModelFileError, UsageError
from deployops.validation.latency.record import LatencyRecord, Ratio
from deployops.validation.parity.budget import EXACT, Budget, derived, own_rtol, user
from deployops.validation.parity.judge import judge
from deployops.validation.parity.metrics import measure, measure_exact
from deployops.validation.record import Cell, Finding, Limits, Report
from deployops.validation.reports.command import latency_of, read_report, render
from deployops.validation.reports.json_file import dumps, loads
from deployops.validation.reports.rejudge import needed_atol, rejudged

DERIVED = Budget(1e-7, 4 * 2.0**-23, 1e-7, "derived")


def arrays(seed: int, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Values over some magnitudes, and the same with errors that are partly relative, partly absolute."""
    draw = np.random.default_rng(seed)
    want = draw.normal(size=200) * 10.0 ** draw.integers(-3, 2, 200)
    got = want * (1 + error * draw.normal(size=200)) + error * 0.1 * draw.normal(size=200)
    return got.astype(np.float32), want.astype(np.float32)


def saved(got: np.ndarray, want: np.ndarray, budget: Budget = DERIVED) -> Report:
    metrics = measure(got, want, tolerance=budget.tolerance())
    verdict, reason = judge(metrics, budget)
    cell = Cell("s", "y", "b", verdict, reason, "float32", want.shape, metrics, budget)
    return loads(dumps(Report("m", "o", (cell,))))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([1e-8, 1e-6, 1e-4, 1e-2]),
    st.floats(1e-8, 1.0) | st.just(0.0),
    st.floats(1e-7, 0.5) | st.sampled_from([0.0, 1e-5, 1e-3]),
)
def test_it_agrees_with_measuring_again(seed: int, error: float, atol: float, rtol: float) -> None:
    got, want = arrays(seed, error)
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    allowed = atol + rtol * np.abs(want.astype(np.float64))
    truth = "passed" if bool((difference <= allowed).all()) else "failed"
    report = rejudged(saved(got, want), Limits(atol, rtol))
    assert report.cells[0].verdict in (truth, "not checked")
    if report.cells[0].verdict == "passed":
        assert report.cells[0].used <= 1
    assert loads(dumps(report)).verdict == report.verdict


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 1))
def test_the_bounds_hold_the_truth(seed: int, rtol: float) -> None:
    got, want = arrays(seed, 1e-3)
    metrics = measure(got, want, rtol=DERIVED.rtol, atol=DERIVED.atol)
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    truth = max(float((difference - rtol * np.abs(want.astype(np.float64))).max()), 0.0)
    low, high = needed_atol(metrics, rtol, DERIVED.rtol)
    slack = 1e-12 * metrics.max_abs
    assert low - slack <= truth <= high + slack


@pytest.mark.parametrize("rtol", [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_at_the_steps_of_the_ladder_it_is_exact(rtol: float, factor: float) -> None:
    got, want = arrays(7, 1e-2)
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
    needed = float((difference - rtol * np.abs(want.astype(np.float64))).max())
    if needed <= 0:
        pytest.skip("this rtol alone passes")
    report = rejudged(saved(got, want), Limits(needed * factor, rtol))
    assert report.verdict == ("passed" if factor > 1 else "failed")


def test_what_the_numbers_cannot_tell_is_not_checked_and_says_so() -> None:
    got, want = arrays(7, 1e-2)
    report = saved(got, want)
    metrics = report.cells[0].metrics
    assert metrics is not None
    low, high = needed_atol(metrics, 3e-3, DERIVED.rtol)
    assert low < high
    between = rejudged(report, Limits((low + high) / 2, 3e-3))
    assert between.verdict == "not checked"
    assert "the saved numbers cannot tell" in between.cells[0].reason
    assert rejudged(report, Limits(high, 3e-3)).verdict == "passed"
    assert rejudged(report, Limits(low * 0.999, 3e-3)).verdict == "failed"


def test_nan_and_infinity_pass_no_tolerance() -> None:
    for bad in (np.nan, np.inf):
        got, want = arrays(1, 1e-8)
        got[3] = bad
        report = rejudged(saved(got, want), Limits(1e30, 1e30))
        assert report.verdict == "failed"


def test_whole_numbers_stay_exact() -> None:
    metrics = measure_exact(np.array([1, 2, 3]), np.array([1, 2, 4]))
    verdict, reason = judge(metrics, EXACT)
    cell = Cell("s", "y", "b", verdict, reason, "int64", (3,), metrics, EXACT)
    assert rejudged(Report("m", "o", (cell,)), Limits(10.0, 10.0)).cells == (cell,)


def test_what_was_not_measured_stays_as_it_was() -> None:
    cells = (
        Cell("s", "*", "b", "not checked", "could not run"),
        Cell("s", "y", "b", "failed", "shape [3], the original returns [4]"),
    )
    assert rejudged(Report("m", "o", cells), Limits(1e9, 1.0)).cells == cells


def test_outputs_judged_otherwise_stay_and_the_report_says_so() -> None:
    got, want = arrays(3, 1e-2)
    cell = replace(saved(got, want).cells[0], judged_as="argmax", verdict="passed", reason="")
    report = rejudged(Report("m", "o", (cell,)), Limits(0.0, 0.0))
    assert report.cells == (cell,)
    assert "outputs judged as argmax are not judged by a tolerance and stay as they were" in report.notes


def test_the_report_says_what_it_was_judged_by() -> None:
    got, want = arrays(3, 1e-4)
    report = rejudged(saved(got, want), Limits(0.5, 0.25))
    assert report.limits == Limits(0.5, 0.25)
    assert "judged again from saved numbers with atol 0.5 and rtol 0.25: nothing was run" in report.notes
    assert report.cells[0].budget == user(0.5, 0.25)
    assert rejudged(report, Limits(0.5, 0.25)).notes.count(report.notes[0]) == 1


def test_limits_that_are_not_given_stay() -> None:
    got, want = arrays(3, 1e-4)
    first = rejudged(saved(got, want), Limits(atol=0.1, rtol=0.2))
    again = rejudged(first, Limits(atol=0.3))
    assert (again.limits.atol, again.limits.rtol) == (0.3, 0.2)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_impossible_limits_are_refused(value: float) -> None:
    for limits in (Limits(atol=value), Limits(rtol=value)):
        with pytest.raises(UsageError, match="finite number of at least 0"):
            rejudged(Report("m", "o", ()), limits)


# Latency.


@pytest.fixture
def timed(make_cell: Callable[..., Cell]) -> Report:
    ratio = Ratio("onnxruntime", "pytorch", "s", 0.8, 0.75, 0.85)
    return Report("m", "o", (make_cell("s", "y", "onnxruntime"),), latency=LatencyRecord(1, (), (ratio,)))


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        (Limits(max_slowdown=0.9), "passed"),
        (Limits(max_slowdown=0.8), "not checked"),
        (Limits(max_slowdown=0.7), "failed"),
        (Limits(min_speedup=1.1), "passed"),
        (Limits(min_speedup=1.5), "failed"),
    ],
)
def test_time_is_judged_by_its_interval(timed: Report, limits: Limits, verdict: str) -> None:
    assert rejudged(timed, limits).verdict == verdict


def test_without_limits_on_time_its_verdicts_stay(timed: Report) -> None:
    slow = rejudged(timed, Limits(max_slowdown=0.7))
    assert slow.verdict == "failed"
    assert rejudged(slow, Limits(atol=1.0, rtol=0.0)).verdict == "failed"


def test_a_regression_that_was_found_does_not_vanish(timed: Report) -> None:
    """Other limits say nothing of the baseline: only another baseline can."""
    assert timed.latency is not None
    worse = Ratio("onnxruntime", "baseline", "s", 1.3, 1.2, 1.4, verdict="failed", reason="slower")
    latency = replace(timed.latency, ratios=(*timed.latency.ratios, worse))
    report = rejudged(replace(timed, latency=latency), Limits(max_slowdown=2.0))
    assert report.verdict == "failed"
    assert report.latency is not None
    assert worse in report.latency.ratios


def test_a_limit_on_time_without_times_is_not_checked(timed: Report) -> None:
    report = rejudged(replace(timed, latency=None), Limits(max_slowdown=2.0))
    assert report.exit_code == 3
    assert [f.kind for f in report.findings] == ["limits"]
    again = rejudged(report, Limits(max_slowdown=3.0))
    assert len(again.findings) == 1


def test_other_findings_stay(timed: Report) -> None:
    finding = Finding("crash", "failed", "it ended")
    assert rejudged(replace(timed, findings=(finding,)), Limits(max_slowdown=2.0)).findings == (finding,)


def test_a_regression_limit_needs_a_baseline(timed: Report) -> None:
    with pytest.raises(UsageError, match="--baseline"):
        rejudged(timed, Limits(max_regression=0.1))


# The command: read, judge, render.


def test_a_saved_report_is_rendered_as_it_was(full_report: Report, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(dumps(full_report))
    made = render(file, html=tmp_path / "a.html", junit=tmp_path / "b.xml", width=0)
    assert made.printed == full_report.text()
    assert made.exit_code == 1
    assert [p.name for p, _ in made.files] == ["a.html", "b.xml"]
    assert made.files[0][1].startswith("<!doctype html>")
    assert made.files[1][1].startswith("<?xml")
    assert list(tmp_path.iterdir()) == [file]  # whoever calls it writes
    assert render(file, as_json=True).printed + "\n" == dumps(full_report)


def test_other_limits_give_another_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    got, want = arrays(1, 1e-4)
    wide = want.astype(np.float64)
    own = measure(want, want, wide, rtol=own_rtol(np.float32))
    budget = derived(own, np.float32, "the original's own error against float64")
    file.write_text(dumps(saved(got, want, budget)))
    assert render(file).exit_code == 1
    assert render(file, limits=Limits(atol=1.0)).exit_code == 0
    assert render(file, limits=Limits(atol=1e-12)).exit_code == 1


@pytest.mark.parametrize(
    ("content", "kind"), [(None, UsageError), ("{}", ModelFileError), ("\x00", ModelFileError)]
)
def test_what_is_no_report_is_refused_by_name(
    tmp_path: Path, content: str | None, kind: type[Exception]
) -> None:
    file = tmp_path / "report.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(kind, match=r"report\.json"):
        render(file)


def test_a_folder_and_a_baseline_without_times_are_refused(tmp_path: Path, full_report: Report) -> None:
    with pytest.raises(UsageError, match="not a file"):
        read_report(tmp_path)
    file = tmp_path / "report.json"
    file.write_text(dumps(replace(full_report, latency=None)))
    with pytest.raises(UsageError, match="no latency to compare with"):
        latency_of(read_report(file), file)


def test_a_baseline_of_another_machine_is_not_compared_with(full_report: Report, tmp_path: Path) -> None:
    assert full_report.latency is not None
    file, other = tmp_path / "report.json", tmp_path / "other.json"
    file.write_text(dumps(full_report))
    elsewhere = replace(full_report.latency, fingerprint={"processor": "another"})
    other.write_text(dumps(replace(full_report, latency=elsewhere)))
    made = render(file, baseline=other)
    assert made.report.latency is not None
    found = [r for r in made.report.latency.ratios if r.against == "baseline"]
    assert found
    assert {r.verdict for r in found} == {"not checked"}
    assert "other machine or versions" in made.printed
