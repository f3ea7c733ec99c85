"""The verdict on a whole report, from its numbers alone: a saved report can be judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .record import FAILED, NOT_CHECKED, PASSED, Verdict

if TYPE_CHECKING:
    from .record import Cell, Report

__all__ = ["coverage", "exit_code", "overall"]

# They fail a report, but no backend has to have them.
_ASIDE = ("gradient", "golden")


def overall(report: Report) -> Verdict:
    """Failed if anything failed; passed if every output passed at least once on every backend that must be; else not checked.

    A backend must be checked where the user required it; where none is required, those that could be used.
    """
    ratios = report.latency.ratios if report.latency is not None else ()
    if (
        any(c.verdict == FAILED for c in report.cells)
        or any(f.severity == FAILED for f in report.findings)
        or any(r.verdict == FAILED for r in ratios)
    ):
        return FAILED
    if any(f.severity == NOT_CHECKED for f in report.findings):
        return NOT_CHECKED
    if any(r.verdict == NOT_CHECKED for r in ratios):
        return NOT_CHECKED
    asked = [b for b in report.backends if b.required]
    used = asked or [b for b in report.backends if not b.missing]
    names = [b.name for b in used] or list(dict.fromkeys(c.backend for c in report.cells))
    outputs = {
        (c.subject, c.output)
        for c in report.cells
        if c.output != "*" and c.judged_as not in _ASIDE and (c.backend in names or not used)
    }
    passed = {(c.backend, c.subject, c.output) for c in report.cells if c.verdict == PASSED and _compared(c)}
    complete = all((name, *output) in passed for name in names for output in outputs)
    # an operator that nothing could run has no outputs by name
    subjects = {c.subject for c in report.cells}
    ran = {(backend, subject) for backend, subject, _ in passed}
    complete = complete and all((name, subject) in ran for name in names for subject in subjects)
    return PASSED if outputs and complete else NOT_CHECKED


def _compared(cell: Cell) -> bool:
    """An empty output, and one that is NaN or Inf throughout, agree with anything: they are no evidence."""
    return cell.metrics is None or cell.metrics.compared > 0


def exit_code(report: Report) -> int:
    """0 passed, 1 failed, 3 not checked."""
    return {PASSED: 0, FAILED: 1, NOT_CHECKED: 3}[overall(report)]


def coverage(report: Report) -> tuple[int, int]:
    """(checked, all) cells of the matrix."""
    return sum(c.verdict != NOT_CHECKED for c in report.cells), len(report.cells)
