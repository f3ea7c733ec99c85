"""Budgets that do not follow from what they say they follow from: the formula of docs/budget.md, run on saved numbers.

A report does not keep the rows of PyTorch's own error, so a band's numbers are held against the most that the formula
gives for the saved own error; the rms of the whole is derived exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..parity import budget as parity
from ..parity.budget import EXACT, HOPELESS, Budget
from ..parity.difference import Metrics
from ..parity.float_types import FloatType, float_type
from ..record import Cell, Limits
from .quantities import number

__all__ = ["budget_contradiction"]

USER = "user tolerance"
TWICE = "twice "
BLIND = " ULPs of the output's scale ("
# Of sums that are taken over other runs: a nudged input has an output of nearly the same scale.
SLACK = 1e-3
# The own error is pooled over at most so many runs.
MOST_RUNS = 64


def budget_contradiction(cell: Cell, limits: Limits) -> str:
    """What does not fit, in words; empty where all fits, or nothing is known."""
    if cell.budget is None:
        return ""
    return next(_all(cell, cell.budget, limits), "")


def _all(cell: Cell, budget: Budget, limits: Limits) -> Iterator[str]:
    kind = _kind(cell.dtype)
    if budget.exact:
        if replace(budget, hopeless=False) != EXACT:
            yield "an exact budget with tolerances"
        return
    if kind is None:
        yield f"a budget for {cell.dtype[:40]!r}, which is no floating-point type: such outputs must be equal"
        return
    golden = budget.source.startswith(TWICE)
    if golden != (cell.judged_as == "golden"):
        yield "a budget of golden outputs, which is twice the derived one, for an output that is none"
        return
    if golden:
        half = {name: getattr(budget, name) / 2 for name in ("atol", "rtol", "rms", "gain")}
        bands = tuple(replace(b, atol=b.atol / 2, rms=b.rms / 2, bias=b.bias / 2) for b in budget.bands)
        budget = replace(budget, bands=bands, source=budget.source.removeprefix(TWICE), **half)
    if budget.source.startswith(USER):
        if limits.atol is None and limits.rtol is None:
            yield "a tolerance of the user, and the report has none"
        elif budget != parity.user(limits.atol, limits.rtol):
            yield f"a tolerance of {budget.source[:80]}, and the report's is {_shown(limits)}"
    elif BLIND in budget.source:
        yield from _blind(cell.metrics, budget, kind)
    else:
        yield from _derived(cell.metrics, budget, kind, golden)


def _kind(dtype: str) -> FloatType | None:
    import ml_dtypes
    import numpy as np

    try:
        found: Any = np.dtype(getattr(ml_dtypes, dtype, dtype))
        return float_type(found) if found.kind not in "biuc" else None
    except (TypeError, ValueError):
        return None


def _shown(limits: Limits) -> str:
    return f"atol {limits.atol or 0.0:g}, rtol {limits.rtol or 0.0:g}"


def _blind(m: Metrics | None, budget: Budget, kind: FloatType) -> Iterator[str]:
    if m is None or not _whole(m):
        return
    expected = parity.blind(m.scale, kind.name, "")
    if not _near(budget.atol, expected.atol) or not _near(budget.rtol, expected.rtol):
        yield f"atol {number(budget.atol)} for an output of scale {number(m.scale)}, {number(expected.atol)} is derived"


def _derived(m: Metrics | None, budget: Budget, kind: FloatType, golden: bool) -> Iterator[str]:
    own_max, own_rms, n = budget.own_max, budget.own_rms, budget.observations
    if own_max is None or own_rms is None or not (own_rms >= 0 and n > 0):
        yield "a derived budget without the own error that it is derived from"
        return
    longer = "each step rounded" in budget.source
    f = parity.factors(kind, longer)
    if not _near(budget.rtol, f.relative * kind.eps):
        yield f"rtol {number(budget.rtol)}, {number(f.relative * kind.eps)} is derived"
    if own_rms > own_max * (1 + SLACK):
        yield f"PyTorch's own error is {number(own_rms)} rms and at most {number(own_max)}"
    if m is None or not _whole(m):
        return
    if own_max > own_rms * math.sqrt(MOST_RUNS * max(m.compared, 1)) * (1 + SLACK):
        yield f"PyTorch's own error is at most {number(own_max)}, and {number(own_rms)} rms of {m.compared} elements"
    wide = 4.0 if golden else 1.0 + SLACK  # the golden output's scale, not the original's
    most = parity.most(own_max, n, m.scale, kind, f, longer)
    if budget.bands and not _near(budget.atol, max(b.atol for b in budget.bands)):
        yield f"atol {number(budget.atol)}, other than the largest of its bands"
    for what, got in (
        ("atol", max((b.atol for b in budget.bands), default=budget.atol)),
        ("rms", max((b.rms for b in budget.bands), default=0.0)),
        ("bias", max((b.bias for b in budget.bands), default=0.0)),
    ):
        if not got <= getattr(most, what) * wide:
            yield f"{what} {number(got)}, from an own error of {number(own_max)} it is at most {number(getattr(most, what))}"
    lean = [*budget.lean, *(b.lean for b in budget.bands)]
    if any(v >= 1 and (f.narrow and not golden) for v in lean):
        yield "a lean of 1 or more"
    if m.scale_rms and not golden:
        gain = f.own_bias * own_max / m.scale_rms + f.bias * kind.eps
        if not budget.gain <= 2 * gain:
            yield f"gain {number(budget.gain)}, at most {number(gain)} is derived"
        rms = parity.rms_of(own_rms, n, m.scale_rms, kind, f)
        if not _near(budget.rms, rms, 10 * SLACK):
            yield f"rms {number(budget.rms)}, {number(rms)} is derived"
        limit = HOPELESS * m.scale_rms + max(kind.eps * m.scale_rms, kind.smallest)
        if not _near(own_rms, limit, 10 * SLACK) and budget.hopeless != (own_rms > limit):
            yield f"an own error of {number(own_rms)} rms beside an output of {number(m.scale_rms)}, hopeless or not"


def _whole(m: Metrics) -> bool:
    """Whether the same elements were compared as PyTorch's own error is known from."""
    return m.compared >= 1 and not (m.nan or m.inf or m.overflow or m.overflowed) and m.eps > 0


def _near(a: float, b: float, slack: float = SLACK) -> bool:
    return a == b or abs(a - b) <= slack * max(abs(a), abs(b))
