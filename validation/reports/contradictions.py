"""Whether a saved report agrees with itself: every cell's verdict and budget are derived anew from the cell's own numbers.

A report may have been edited by hand. What a forger would have to change together is listed in docs/reports.md, and so is
what no numbers of a report can tell.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from ...errors import ModelFileError
from ..latency import limits as timed
from ..parity.budget import HOPELESS
from ..parity.judge import judge
from ..record import FAILED, NOT_CHECKED, PASSED, Limits
from .budget_contradictions import USER, budget_contradiction
from .metrics_contradictions import metrics_contradiction
from .plain_text import cut
from .quantities import number
from .rejudge import LIMITS, needed_atol

if TYPE_CHECKING:
    from ..latency.record import LatencyRecord, Ratio
    from ..parity.budget import Budget
    from ..parity.difference import Metrics
    from ..record import Cell, Report

__all__ = ["cell_contradiction", "expect_consistent"]

BY_VALUE = ("values", "golden", "gradient")
WITHOUT_NUMBERS = ("set", "boxes")  # their passes keep none
SLACK = 1e-9


def expect_consistent(report: Report) -> None:
    """Raises ModelFileError, which names the cell, where a report contradicts itself."""
    missing = {b.name for b in report.backends if b.missing}
    asked = report.environment.get("outputs")
    modes = set(map(str, asked)) if isinstance(asked, list | tuple) else set()
    for cell in report.cells:
        found = _mode_contradiction(cell, modes) or cell_contradiction(cell, report.limits)
        if not found and cell.verdict == PASSED and cell.backend in missing:
            found = "passed on a backend that the report says was missing"
        if found:
            name = f"{cell.subject} {cell.output}" if cell.subject else cell.output
            where = f"cell {cut(name, 60)} at {cut(cell.sample, 60)} on {cut(cell.backend, 60)}"
            raise ModelFileError(
                f"the report contradicts itself: {where} {found}. It was changed after it was written, or written by another "
                "version: validate again"
            )
    found = _of_times(report)
    if found:
        raise ModelFileError(f"the report contradicts itself: {found}. Validate again")


def cell_contradiction(cell: Cell, limits: Limits) -> str:
    """What of a cell does not follow from its numbers; empty where all does, or it has none."""
    m, budget = cell.metrics, cell.budget
    kind = cell.judged_as.partition(":")[0]
    if m is None or budget is None:
        bare = kind in WITHOUT_NUMBERS or (kind == "gradient" and cell.output == "*")
        return "" if cell.verdict != PASSED or bare else "says passed, and has no numbers that show it"
    size = math.prod(cell.shape)
    if kind not in WITHOUT_NUMBERS and m.count != size:
        return f"has numbers of {m.count} elements, and its shape {size}"
    if kind in WITHOUT_NUMBERS:
        return "says passed, and has rows without a counterpart" if cell.verdict == PASSED else ""
    wrong = budget_contradiction(cell, limits) or metrics_contradiction(m, budget) or _identical(m, budget)
    if wrong:
        return f"has numbers that do not fit together: {wrong}"
    if kind in BY_VALUE:
        return _by_value(cell, m, budget)
    if cell.verdict == PASSED and (m.nan or m.inf):
        return "says passed, its numbers say failed: NaN or Inf on one side only"
    if cell.verdict == FAILED and m.identical:
        return "says failed, its numbers say passed: identical"
    return ""


def _mode_contradiction(cell: Cell, modes: set[str]) -> str:
    """A way of judging that nobody asked for, or that says nothing of such an output."""
    if cell.judged_as in BY_VALUE:
        return ""
    if f"{cell.output}:{cell.judged_as}" not in modes:
        return f"is judged as {cut(cell.judged_as, 60)}, which the report's own options do not ask for"
    kind, _, number_of = cell.judged_as.partition(":")
    if kind not in ("argmax", "topk") or cell.verdict != PASSED or cell.budget is None or cell.budget.exact:
        return ""
    count = int(number_of) if number_of.isascii() and number_of.isdigit() else 1
    if not cell.shape or (0 not in cell.shape and count >= cell.shape[-1]):
        return f"says passed, and {cut(cell.judged_as, 60)} of shape {list(cell.shape)} is the same whatever the values are"
    return ""


def _identical(m: Metrics, budget: Budget) -> str:
    """Equal to the original's, so as far from the wider run as the original is."""
    if not m.identical or not m.compared or not m.eps:
        return ""
    most = max(budget.own_max or 0.0, m.eps * m.scale) * (1 + SLACK)
    if (
        USER in budget.source
    ):  # of saved numbers that were judged again: the original's own error is not there any more
        most = HOPELESS * m.scale if not m.mismatches else 0.0
    return "" if m.max_abs <= most else f"identical, and off by {number(m.max_abs)}"


def _by_value(cell: Cell, m: Metrics, budget: Budget) -> str:
    if budget.source.startswith(USER):
        return _by_tolerance(cell, m, budget)
    verdict, reason = judge(m, budget)
    # where autograd through a reference with a kink is wrong, finite differences decide: see `gradients`
    if cell.judged_as == "gradient" and (cell.verdict, verdict) == (NOT_CHECKED, FAILED):
        return ""
    if cell.verdict == verdict:
        return ""
    why = f" ({reason})" if reason else ""
    return f"says {cell.verdict}, its numbers say {verdict}{why}"


def _by_tolerance(cell: Cell, m: Metrics, budget: Budget) -> str:
    """A user's tolerance: `excess` is the atol that it needs, or the bound of it that a judgement of saved numbers found."""
    if m.count == 0 or m.identical:
        return "" if cell.verdict == PASSED else f"says {cell.verdict}, its numbers say passed: identical"
    if (
        m.nan
        or m.inf
        or (
            m.overflow
            and cell.verdict == PASSED
            and m.overflow_gap > budget.atol + budget.rtol * budget.largest
        )
    ):
        return (
            ""
            if cell.verdict == FAILED
            else f"says {cell.verdict}, its numbers say failed: NaN or Inf on one side only"
        )
    low, high = needed_atol(m, budget.rtol)
    at_most = max([high, *(a for step, a in m.required if step <= budget.rtol)])
    if (
        not low * (1 - SLACK)
        <= m.excess
        <= max(at_most, m.max_abs if not m.required else at_most) * (1 + SLACK)
    ):
        return f"needs atol {number(m.excess)}, and by its ladder {number(low)} to {number(at_most)}"
    within = m.excess <= budget.atol
    near = math.isclose(m.excess, budget.atol, rel_tol=SLACK)
    if cell.verdict == PASSED and not within and not near:
        return f"says passed, its numbers say failed: it needs atol {number(m.excess)}, and has {number(budget.atol)}"
    if cell.verdict == FAILED and within and not near and not m.overflow:
        return f"says failed, its numbers say passed: it needs atol {number(m.excess)}, and has {number(budget.atol)}"
    if cell.verdict == NOT_CHECKED and high <= budget.atol:
        return "says not checked, its numbers say passed"
    return ""


def _of_times(report: Report) -> str:
    """Ratios to the original against the report's limits; those to a baseline need the baseline."""
    record, limits = report.latency, report.limits
    without = replace(limits, max_regression=None)
    if record is not None:
        for t in record.timings:
            if t.times and not math.isclose(t.median, median(t.times), rel_tol=SLACK):
                return f"the median of {cut(t.candidate, 60)} at {cut(t.sample, 60)} is {number(median(t.times))} by its times"
        again = timed.judge(record, without).ratios
        own = [r for r in record.ratios if r.against != timed.BASELINE]
        for was, now in zip(own, again, strict=True):
            what = (
                f"the time of {cut(was.candidate, 60)} over {cut(was.against, 60)} at {cut(was.sample, 60)}"
            )
            if was.verdict != now.verdict:
                return f"{what} says {was.verdict}, its interval says {now.verdict}"
            if not was.unstable and not was.low <= was.ratio <= was.high:
                return f"{what} is {number(was.ratio)}, outside of its interval {number(was.low)} to {number(was.high)}"
            found = _of_medians(was, record)
            if found:
                return f"{what} is {number(was.ratio)}, and {number(found)} by the saved times"
    baseline = any(r.against == timed.BASELINE for r in record.ratios) if record is not None else False
    why = timed.unjudged(record, without if baseline else limits)
    if why and not any(f.kind == LIMITS for f in report.findings):
        return f"{why}, and no finding says so"
    return ""


def _of_medians(ratio: Ratio, record: LatencyRecord) -> float | None:
    """The ratio by the saved times, where it is another one; None where it is this one, or there are no such times."""
    times = {t.candidate: t.times for t in record.timings if t.sample == ratio.sample}
    ours, theirs = times.get(ratio.candidate, ()), times.get(ratio.against, ())
    rounds = min(len(ours), len(theirs))
    if not rounds or min(*ours, *theirs) <= 0 or not ratio.ratio:
        return None
    found = median(ours[:rounds]) / median(theirs[:rounds])
    return None if math.isclose(found, ratio.ratio, rel_tol=1e-6) else found
