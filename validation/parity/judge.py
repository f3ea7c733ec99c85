"""Whether an output stays within its budget, from its metrics alone."""

from __future__ import annotations

import math
from typing import Literal

from .budget import Budget
from .metrics import Metrics

__all__ = ["budget_used", "judge", "scale_ulps"]


def judge(metrics: Metrics, budget: Budget) -> tuple[Literal["passed", "failed", "not checked"], str]:
    """("passed" | "failed" | "not checked", why). `metrics` were measured with the budget's atol and rtol."""
    if metrics.count == 0:
        return "passed", "equal (empty)"
    if metrics.identical:
        return "passed", "identical"
    if metrics.nan or metrics.inf:
        parts = [f"{n} of {metrics.count} elements {what}" for n, what in _specials(metrics) if n]
        return "failed", "; ".join(parts)
    if budget.exact:
        return "failed", f"{metrics.mismatches} of {metrics.count} elements differ; they must be equal"
    if metrics.mismatches:
        return "failed", (
            f"{metrics.mismatches} of {metrics.count} elements out of budget: "
            f"needs atol {metrics.excess:.2g}, has {budget.atol:.2g}"
        )
    if metrics.rms > budget.rms:
        return (
            "failed",
            f"rms error {metrics.rms:.2g} over its budget {budget.rms:.2g}, no single element over",
        )
    if budget.hopeless:
        return "not checked", (
            f"the original's own rounding error is {budget.own_rms:.2g} rms: "
            "over a tenth of its output, so agreement would prove nothing"
        )
    return "passed", ""


def _specials(metrics: Metrics) -> list[tuple[int, str]]:
    return [(metrics.nan, "NaN on one side only"), (metrics.inf, "Inf on one side only or of the other sign")]


def budget_used(metrics: Metrics | None, budget: Budget | None) -> float:
    """The part of the budget that was used; above 1 is over, infinity where there is none."""
    if metrics is None or budget is None or metrics.identical or not metrics.count:
        return 0.0
    if metrics.nan or metrics.inf or budget.exact:
        return math.inf
    parts = [metrics.excess / budget.atol if budget.atol else (math.inf if metrics.excess else 0.0)]
    if math.isfinite(budget.rms):
        parts.append(metrics.rms / budget.rms if budget.rms else (math.inf if metrics.rms else 0.0))
    return max(parts)


def scale_ulps(metrics: Metrics | None, budget: Budget | None) -> float:
    """The largest difference in units of the last place of the output's largest value.

    `metrics.max_ulp` counts in units of each element's own last place and is huge next to a zero.
    """
    if metrics is None or not metrics.scale or budget is None or budget.exact:
        return 0.0
    return metrics.max_abs / (metrics.eps * metrics.scale)
