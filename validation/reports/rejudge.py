"""Judge the numbers of a saved report by other limits. Nothing is run, and what the numbers cannot tell is *not checked*."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from ...errors import UsageError
from ..latency.limits import BASELINE, judge, unjudged
from ..latency.record import LatencyRecord
from ..parity import judge as parity
from ..parity.budget import Budget, user
from ..parity.difference import Metrics
from ..record import NOT_CHECKED, PASSED, Cell, Finding, Limits, Report
from .quantities import number

__all__ = ["LIMITS", "needed_atol", "of_another", "rejudged"]

# The kind of the finding that says why a limit could not be held against anything; it is made anew.
LIMITS = "limits"
TOLERANCE = "tolerance"  # of the one that says that saved numbers do not decide
BY_TOLERANCE = ("values", "gradient")  # how an output may have been judged, that a tolerance applies to


def rejudged(report: Report, limits: Limits, baseline: LatencyRecord | None = None) -> Report:
    """The report under other limits. A limit that is None stays as it was in the report.

    Args:
        limits: `atol` and `rtol` replace the budget of every output that was compared by value; those compared exactly
            stay exact. An atol without an rtol, here and in the report, means rtol 0, as it does for `validate`.
        baseline: the latency of an earlier report. Without it, the ratios to a baseline in the report stay.

    Raises:
        UsageError: a limit that no number can be, or `max_regression` without a baseline.
    """
    for name in ("atol", "rtol"):
        value = getattr(limits, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} must be a finite number of at least 0, got {value}")
    if limits.max_regression is not None and baseline is None:
        raise UsageError("max_regression is held against a baseline: give the earlier report as --baseline")
    merged = Limits(
        **{
            f.name: getattr(report.limits, f.name)
            if getattr(limits, f.name) is None
            else getattr(limits, f.name)
            for f in fields(Limits)
        }
    )
    made = replace(report, limits=merged)
    if limits.atol is not None or limits.rtol is not None:
        made = _undecided(made, _by_tolerance(made, user(merged.atol, merged.rtol)))
    timed = (limits.max_slowdown, limits.min_speedup, limits.max_regression)
    if baseline is not None or any(v is not None for v in timed):
        made = _by_time(made, baseline)
    return made


def of_another(baseline: Report, model: str, onnx: str) -> list[Finding]:
    """A note where the baseline is of files with other names: it may be of another model."""
    if (baseline.model, baseline.onnx) == (model, onnx):
        return []
    text = f"the baseline is of {baseline.model} against {baseline.onnx}"
    return [Finding("baseline", "note", text, advice="make sure that it is an earlier report of this model")]


def _undecided(before: Report, after: Report) -> Report:
    """What was compared, and cannot be judged by the new tolerance from the saved numbers, keeps the report from passing."""
    lost = sum(
        old.verdict != NOT_CHECKED and new.verdict == NOT_CHECKED
        for old, new in zip(before.cells, after.cells, strict=True)
    )
    findings = tuple(f for f in after.findings if f.kind != TOLERANCE)
    if lost:
        text = (
            f"{lost} of {len(after.cells)} outputs cannot be judged by this tolerance from the saved numbers"
        )
        advice = "run `deployops validate` with it, or choose one that is clearly above or below"
        findings = (*findings, Finding(TOLERANCE, "not checked", text, advice=advice))
    return replace(after, findings=findings)


# --- values -------------------------------------------------------------------------------------------------------


def _by_tolerance(report: Report, budget: Budget) -> Report:
    cells = tuple(_cell(c, budget) for c in report.cells)
    notes = [
        *report.notes,
        f"judged again from saved numbers with atol {budget.atol:g} and rtol {budget.rtol:g}: nothing was run",
    ]
    if any(c.budget is not None and not _users(c.budget) and _judged(c) for c in report.cells):
        notes.append("the saved differences are from the wider reference, not from the original as given")
    other = sorted({c.judged_as for c in report.cells if c.metrics and c.judged_as not in BY_TOLERANCE})
    if other:
        notes.append(
            f"outputs judged as {', '.join(other)} are not judged by a tolerance and stay as they were"
        )
    return replace(report, cells=cells, notes=tuple(dict.fromkeys(notes)))


def _users(budget: Budget) -> bool:
    return budget.source.startswith("user tolerance")


def _judged(cell: Cell) -> bool:
    """Whether a tolerance applies: it was measured, by value, and need not be exact."""
    return (
        cell.metrics is not None
        and cell.budget is not None
        and not cell.budget.exact
        and cell.judged_as in BY_TOLERANCE
    )


def _cell(cell: Cell, budget: Budget) -> Cell:
    if not _judged(cell) or cell.metrics is None or cell.budget is None:
        return cell
    again, verdict, reason = parity.rejudged(cell.metrics, budget)
    made = replace(cell, metrics=again, budget=budget, verdict=verdict, reason=reason)
    certain = not (again.nan or again.inf or again.overflow)
    if verdict == PASSED or not certain:
        return made
    low, high = needed_atol(cell.metrics, budget.rtol, cell.budget.rtol)
    if low > budget.atol:
        return made
    if high <= budget.atol:
        over = high / budget.atol if budget.atol else 0.0
        return replace(made, metrics=replace(again, over=over, excess=high), verdict=PASSED, reason="")
    reason = (
        f"with rtol {budget.rtol:g} it needs an atol between {number(low)} and {number(high)}, and has {budget.atol:g}: "
        "the saved numbers cannot tell, validate again with these limits"
    )
    return replace(made, verdict=NOT_CHECKED, reason=reason)


def needed_atol(metrics: Metrics, rtol: float, measured_rtol: float | None = None) -> tuple[float, float]:
    """Bounds of the atol that passes together with this rtol.

    The needed atol, max(|got - want| - rtol |want|, 0), is a maximum of functions that fall linearly with rtol: it is
    convex. So between two known points it lies below their chord, and above the chords of their neighbours.
    """
    known = dict(metrics.required)
    known.setdefault(0.0, metrics.max_abs)
    if measured_rtol is not None:
        known.setdefault(measured_rtol, metrics.excess)
    points = sorted(known.items())
    if rtol in known:
        return known[rtol], known[rtol]
    left = [p for p in points if p[0] < rtol]
    right = [p for p in points if p[0] > rtol]
    high = left[-1][1]
    low = right[0][1] if right else 0.0
    if right:
        high = _line(left[-1], right[0], rtol)
    if len(left) > 1:
        low = max(low, _line(left[-2], left[-1], rtol))
    if len(right) > 1:
        low = max(low, _line(right[0], right[1], rtol))
    return min(low, high), high


def _line(a: tuple[float, float], b: tuple[float, float], at: float) -> float:
    return a[1] + (b[1] - a[1]) * (at - a[0]) / (b[0] - a[0])


# --- time ---------------------------------------------------------------------------------------------------------


def _by_time(report: Report, baseline: LatencyRecord | None) -> Report:
    latency, limits = report.latency, report.limits
    findings = [f for f in report.findings if f.kind != LIMITS]
    if latency is not None:
        judged = judge(latency, limits, baseline)
        if baseline is None:  # what the report says of its own baseline stays true
            kept = tuple(r for r in latency.ratios if r.against == BASELINE)
            judged = replace(judged, ratios=(*judged.ratios, *kept))
        latency = judged
    why = unjudged(latency, limits, baseline)
    if why:
        findings.append(
            Finding(LIMITS, "not checked", why, advice="measure latency: `deployops validate --latency`")
        )
    return replace(report, latency=latency, findings=tuple(findings))
