"""Whether an output stays within its budget, from its metrics alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from .budget import HOPELESS, Band, Budget
from .difference import Binade, Metrics, required_atol
from .groups import ENOUGH, Z_SIGN, Group, Z

__all__ = ["allowed_part", "band_of", "budget_used", "judge", "rejudged", "scale_ulps"]


def judge(metrics: Metrics, budget: Budget) -> tuple[Literal["passed", "failed", "not checked"], str]:
    """("passed" | "failed" | "not checked", why). `metrics` were measured with `budget.tolerance()`.

    For metrics that were measured with another budget, see `rejudged`.
    """
    if metrics.count == 0:
        return "passed", "equal (empty)"
    if metrics.identical:
        return "passed", "identical"
    if metrics.nan or metrics.inf:
        parts = [f"{n} of {metrics.count} elements {what}" for n, what in _specials(metrics) if n]
        if metrics.overflowed:
            parts.append(
                f"the original itself is not finite in {metrics.overflowed} elements that are in a wider dtype: it overflows"
            )
        return "failed", "; ".join(parts)
    if budget.exact:
        return "failed", _different(metrics)
    if metrics.overflow and metrics.overflow_gap > budget.atol + budget.rtol * budget.largest:
        return "failed", f"{metrics.overflow} of {metrics.count} elements Inf on one side only"
    if metrics.mismatches:
        return "failed", _out_of_budget(metrics, budget)
    if metrics.rms > budget.rms and _enough(metrics):
        return (
            "failed",
            f"rms error {metrics.rms:.2g} over its budget {budget.rms:.2g}, no single element over",
        )
    for used, reason in _statistics(metrics, budget):
        if used > 1:
            return "failed", reason
    if budget.hopeless:
        return "not checked", (
            f"the original's own rounding error is {budget.own_rms:.2g} rms: "
            "over a tenth of its output, so agreement would prove nothing"
        )
    part = allowed_part(metrics, budget)
    if part > HOPELESS:
        return "not checked", (
            f"the budget allows {part:.2g} of the output (rms), more than a tenth: too coarse to tell a fault from rounding"
        )
    if 2 * metrics.coarse > metrics.nonzero:
        return "not checked", (
            f"the budget of {metrics.coarse} of {metrics.nonzero} elements is over a tenth of the element itself: too coarse "
            f"beside {metrics.scale:.2g}, the largest, to tell a fault from rounding"
        )
    return "passed", ""


def allowed_part(metrics: Metrics, budget: Budget) -> float:
    """What a derived budget lets an output be off by, over the output, both root mean squares; 0 where the user set it.

    Where the rms of the whole is judged it is that, else what the elements may be off by, each on its own. What lies
    within a step of the dtype's smallest numbers is no part of it: any value there may be the next one.
    """
    if budget.exact or budget.own_rms is None or not metrics.scale_rms:
        return 0.0
    allowed = _allowed_rms(metrics, budget)
    if _enough(metrics):
        allowed = min(allowed, budget.rms)
    if budget.source.startswith("twice "):  # golden: the stored value may be as far off again
        allowed /= 2
    smallest = 2.0**-24 if metrics.eps == 2.0**-10 else 2.0**-126 if metrics.eps > 2.0**-50 else 2.0**-1022
    return max(allowed - 4 * smallest, 0.0) / metrics.scale_rms


def _allowed_rms(metrics: Metrics, budget: Budget) -> float:
    """Of what each element may be off by; a row's elements count as having the row's size."""
    square = sum(
        row.count
        * (
            (_band(budget, row.sign, row.exponent).atol if budget.bands else budget.atol)
            + budget.rtol * row.size
        )
        ** 2
        for row in metrics.binades
    )
    return math.sqrt(square / max(metrics.compared, 1))


def _enough(metrics: Metrics) -> bool:
    """Elements for a mean; fewer are judged one by one, and their rms would only say the same more strictly."""
    return sum(r.distinct for r in metrics.binades) >= ENOUGH


def _different(metrics: Metrics) -> str:
    """Of whole numbers and truth values, which must be equal."""
    first = min((w.index for w in metrics.worst), default=())
    by = f" by up to {metrics.max_abs:g}" if metrics.max_abs > 1 else ""
    place = f", the first at {list(first)}" if first else ""
    return f"{metrics.mismatches} of {metrics.count} elements differ{by}{place}; they must be equal"


def _specials(metrics: Metrics) -> list[tuple[int, str]]:
    return [(metrics.nan, "NaN on one side only"), (metrics.inf, "Inf on one side only or of the other sign")]


def _out_of_budget(metrics: Metrics, budget: Budget) -> str:
    text = f"{metrics.mismatches} of {metrics.count} elements out of budget: "
    if not budget.bands:
        return f"{text}needs atol {metrics.excess:.2g}, has {budget.atol:.2g}"
    worst = metrics.worst[0]
    allowed = band_of(budget, worst.want).atol + budget.rtol * abs(worst.want)
    return f"{text}{abs(worst.got - worst.want):.2g} off at {worst.want:.4g}, where {allowed:.2g} is allowed"


def band_of(budget: Budget, want: float) -> Band:
    """The band of an element. The budget has bands."""
    return _band(
        budget, -1 if math.copysign(1.0, want) < 0 else 1, math.frexp(want)[1] - 1 if want else -10_000
    )


def _band(budget: Budget, sign: int, exponent: int) -> Band:
    bands = [b for b in budget.bands if b.sign == sign] or list(budget.bands)
    return next((b for b in bands if exponent >= b.exponent), bands[-1])


def _statistics(metrics: Metrics, budget: Budget) -> list[tuple[float, str]]:
    """Of each group of elements and the whole: the part of the budget used, and what to say if it is over."""
    found = []
    for band, group in _grouped(metrics, budget):
        if not math.isfinite(group.chance):
            continue
        where = f"{group.count} elements of size {'-' if band.sign < 0 else ''}{group.size:.2g}"
        text = f"rms error {group.rms:.2g} of {where}, over its budget {band.rms:.2g}; no single element over"
        found.append((group.rms / band.rms, text))
        allowed = band.bias + group.chance
        text = (
            f"{where} are off by {group.bias:+.2g} on average, where {allowed:.2g} is allowed: not rounding"
        )
        found.append((abs(group.bias) / allowed, text))
        found += _leaning(group, band.lean, where)
    for sign, lean in zip((1, -1), budget.lean, strict=False):
        whole = Group(sign, 0, tuple(r for r in metrics.binades if r.sign == sign))
        found += _leaning(whole, lean, f"the {whole.count} {'positive' if sign > 0 else 'negative'} elements")
    if math.isfinite(budget.gain) and _enough(metrics):
        # independent differences were assumed for the error: equal elements are not
        different = sum(r.distinct for r in metrics.binades)
        chance = Z * metrics.gain_error * math.sqrt(max(metrics.compared / different, 1.0))
        allowed = budget.gain + chance
        text = (
            f"the output is {1 + metrics.gain:.7g} times the original's, within {allowed:.2g} of 1 is allowed"
        )
        found.append((abs(metrics.gain) / allowed, text))
    return found


def _leaning(group: Group, lean: float, where: str) -> list[tuple[float, str]]:
    """Rounding errs to both sides: of the elements that are far off, neither side may outweigh the other by much."""
    more, less = group.far
    # equal elements are off to the same side: they count once
    different = sum((r.more + r.less) * min(r.distinct / r.count, 1.0) for r in group.rows)
    if not math.isfinite(lean) or not different:
        return []
    allowed = lean + Z_SIGN / math.sqrt(different)
    text = (
        f"of {where}, {more} are off by more than two ULPs away from zero and {less} towards it: not rounding, "
        "which errs to both sides"
    )
    return [(abs(more - less) / (more + less) / allowed, text)]


def _grouped(metrics: Metrics, budget: Budget) -> list[tuple[Band, Group]]:
    found: dict[Band, list[Binade]] = {}
    for row in metrics.binades if budget.bands else ():
        found.setdefault(_band(budget, row.sign, row.exponent), []).append(row)
    return [(b, Group(b.sign, b.exponent, tuple(rows))) for b, rows in found.items()]


def rejudged(metrics: Metrics, budget: Budget) -> tuple[Metrics, Literal["passed", "failed"], str]:
    """Saved metrics under a user's atol and rtol: the metrics with `excess` and `over` of these limits, the
    verdict, and why.

    What an rtol needs is known for the steps of `LADDER` only; between them the next lower step counts, so a pass is
    certain and a failure may be by less than the step. Mismatches stay those of the measurement.
    """
    needed = required_atol(metrics, budget.rtol)
    over = needed / budget.atol if budget.atol else (math.inf if needed else 0.0)
    again = replace(metrics, over=over, excess=needed)
    if metrics.count == 0 or metrics.identical:
        return again, "passed", "identical" if metrics.count else "equal (empty)"
    if metrics.nan or metrics.inf or budget.exact:
        return again, "failed", judge(metrics, budget)[1]
    if metrics.overflow:
        return again, "failed", f"{metrics.overflow} of {metrics.count} elements Inf on one side only"
    if over > 1:
        return again, "failed", f"needs atol {needed:.2g} with rtol {budget.rtol:g}, has {budget.atol:.2g}"
    return again, "passed", ""


def budget_used(metrics: Metrics | None, budget: Budget | None) -> float:
    """The part of the budget that was used; above 1 is over, infinity where there is none."""
    if metrics is None or budget is None or metrics.identical or not metrics.count:
        return 0.0
    if metrics.nan or metrics.inf or budget.exact:
        return math.inf
    if budget.bands:
        parts = [metrics.over, *(used for used, _ in _statistics(metrics, budget))]
    else:
        parts = [metrics.excess / budget.atol if budget.atol else (math.inf if metrics.excess else 0.0)]
    if math.isfinite(budget.rms) and _enough(metrics):
        parts.append(metrics.rms / budget.rms if budget.rms else (math.inf if metrics.rms else 0.0))
    return max(parts)


def scale_ulps(metrics: Metrics | None, budget: Budget | None) -> float:
    """The largest difference in units of the last place of the output's largest value.

    `metrics.max_ulp` counts in units of each element's own last place and is huge next to a zero.
    """
    if metrics is None or not metrics.scale or budget is None or budget.exact:
        return 0.0
    return metrics.max_abs / (metrics.eps * metrics.scale)
