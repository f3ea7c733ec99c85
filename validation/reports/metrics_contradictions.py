"""Numbers of one comparison that cannot stand beside each other: each was computed from the same elements.

What `measure` writes is redundant on purpose of its readers: an element off by 0.1 shows in the worst elements, in the
largest difference, in its row, in the histogram and in the quantiles. Who changes one of them has changed the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..parity.budget import Band, Budget
from ..parity.difference import Binade, Metrics
from ..parity.judge import band_of
from .quantities import number

__all__ = ["metrics_contradiction"]

# Sums are taken in another order here than there.
SLACK = 1e-6
# The histogram's lowest row holds everything below it.
HISTOGRAM_FROM = 2.0**-190


def metrics_contradiction(metrics: Metrics, budget: Budget) -> str:
    """What does not fit, in words; empty where all fits. `budget` is the one that they were measured with."""
    return next(_all(metrics, budget), "")


def _all(m: Metrics, budget: Budget) -> Iterator[str]:
    if m.compared > m.count or m.equal > m.compared or min(m.count, m.compared, m.equal, m.mismatches) < 0:
        yield f"{m.compared} elements compared and {m.equal} equal, of {m.count}"
    if not 0 <= m.coarse <= m.nonzero <= m.compared:
        yield f"{m.compared} elements compared, {m.nonzero} of them not 0, {m.coarse} with a coarse budget"
    if not m.eps:
        yield from _exact(m)
        return
    if not m.compared:
        return
    yield from _of_each_other(m)
    yield from _of_the_rows(m)
    if not budget.source.startswith("user tolerance"):  # it may have been judged again: see `judge.rejudged`
        yield from _of_the_budget(m, budget)


def _exact(m: Metrics) -> Iterator[str]:
    """Of integers and booleans, and of rows without a counterpart."""
    if m.identical and (m.mismatches or m.max_abs):
        yield f"said to be identical, with {m.mismatches} elements that differ"
    if not m.identical and m.count and not m.mismatches:
        yield "not identical, and yet no element differs"


def _of_each_other(m: Metrics) -> Iterator[str]:
    if m.nan + m.inf > m.mismatches:
        yield f"{m.nan} NaN and {m.inf} Inf on one side only, but {m.mismatches} mismatches"
    if m.nan + m.inf and m.identical:
        yield "said to be identical, with NaN or Inf on one side only"
    finite = math.isfinite(m.rms) and math.isfinite(m.max_abs)
    if finite and not m.mean_abs <= m.rms * (1 + SLACK) <= m.max_abs * (1 + SLACK) ** 2:
        yield f"mean {number(m.mean_abs)}, rms {number(m.rms)} and largest difference {number(m.max_abs)}"
    if m.required and dict(m.required).get(0.0, m.max_abs) != m.max_abs:
        yield f"the largest difference is {number(m.max_abs)}, and the tolerance that it needs {number(m.required[0][1])}"
    if any(a[1] < b[1] for a, b in zip(m.required, m.required[1:], strict=False)):
        yield "a larger rtol needs a larger atol"
    if list(m.quantiles) != sorted(m.quantiles) or any(q > m.max_abs for q in m.quantiles):
        yield f"quantiles that do not rise to the largest difference, {number(m.max_abs)}"
    if sum(n for _, n in m.histogram) + m.equal != m.compared:
        yield f"the histogram holds other than the {m.compared} elements"
    if m.histogram and HISTOGRAM_FROM < m.max_abs < math.inf:
        top = m.histogram[-1][0]
        if math.frexp(m.max_abs)[1] - 1 != top:
            yield f"the largest difference is {number(m.max_abs)}, and the histogram ends at 2**{top}"
    seen = [abs(w.got - w.want) for w in m.worst]
    if any(math.isfinite(s) and s > m.max_abs * (1 + SLACK) for s in seen):
        yield f"one of the worst elements is off by more than the largest difference, {number(m.max_abs)}"


def _of_the_rows(m: Metrics) -> Iterator[str]:
    if sum(r.count for r in m.binades) != m.compared:
        yield f"the rows hold other than the {m.compared} elements"
        return
    square = sum(r.count * r.rms**2 for r in m.binades) / m.compared
    if math.isfinite(m.rms) and math.isfinite(square) and not _near(math.sqrt(square), m.rms):
        yield f"rms {number(m.rms)}, and {number(math.sqrt(square))} from its rows"
    if any(abs(r.bias) > r.rms * (1 + SLACK) or r.more + r.less > r.count for r in m.binades):
        yield "a row's mean is larger than its rms, or more elements of it are off than it has"


def _of_the_budget(m: Metrics, budget: Budget) -> Iterator[str]:
    special = m.nan + m.inf
    if (m.over > 1) != (m.mismatches > special):
        yield f"{m.mismatches - special} elements out of budget, and the worst used {number(m.over)} of it"
    if m.binades and not _near(max(r.excess for r in m.binades), m.excess):
        yield f"it needs atol {number(m.excess)}, and its rows {number(max(r.excess for r in m.binades))}"
    for row in m.binades:
        if m.mismatches == special and row.excess > _allowed(row, m, budget) * (1 + SLACK):
            yield f"no element is out of budget, and one of size 2**{row.exponent} needs atol {number(row.excess)}"
    if m.coarse < (least := _surely_coarse(m, budget)):
        yield f"{m.coarse} elements with a coarse budget, and at least {least} by the rows"
    worst = m.worst[0] if m.worst else None
    if worst is None or special or m.overflow or not math.isfinite(worst.got - worst.want):
        return
    error = abs(worst.got - worst.want)
    atol = band_of(budget, worst.want).atol if budget.bands else budget.atol
    allowed = atol + budget.rtol * abs(worst.want)
    over = error / allowed if allowed else (math.inf if error else 0.0)
    if not _near(over, m.over):
        yield f"the worst element uses {number(over)} of its budget, not {number(m.over)}"


def _allowed(row: Binade, m: Metrics, budget: Budget) -> float:
    """The largest atol of the elements that the row may hold."""
    if not budget.bands:
        return budget.atol
    bands = [b for b in budget.bands if b.sign == row.sign] or list(budget.bands)
    rows = [r.exponent for r in m.binades if r.sign == row.sign]
    above = min((e for e in rows if e > row.exponent), default=10_000)
    below = -10_000 if row.exponent == min(rows) else row.exponent
    return max(b.atol for k, b in enumerate(bands) if _reaches(bands, k, below, above))


def _surely_coarse(m: Metrics, budget: Budget) -> int:
    """Elements of rows of which every one may be off by over a tenth of itself; the lowest rows may hold zeros."""
    part, floor = budget.tolerance().coarse, max(2.0**-10, 16 * m.eps)
    if not math.isfinite(part):
        return 0
    count = 0
    for row in m.binades:
        same = [r.exponent for r in m.binades if r.sign == row.sign]
        if row.exponent == min(same):
            continue
        top = (
            2.0 ** min(e for e in (*same, 1024) if e > row.exponent) if row.exponent < max(same) else math.inf
        )
        bands = [b for b in budget.bands if b.sign == row.sign] or list(budget.bands)
        least = min((b.atol for b in bands), default=budget.atol) + budget.rtol * 2.0**row.exponent
        count += row.count if least > max(part * top, floor) * (1 + SLACK) else 0
    return count


def _reaches(bands: list[Band], k: int, below: int, above: int) -> bool:
    """Whether band k has elements of a power of two from `below` up to under `above`; the last one has all below it."""
    low = -20_000 if k + 1 == len(bands) else bands[k].exponent
    high = bands[k - 1].exponent if k else 20_000
    return low < above and high > below


def _near(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= SLACK * max(abs(a), abs(b))
