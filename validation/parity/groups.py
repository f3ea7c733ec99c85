"""Differences by sign and magnitude: rows joined into groups, and several runs into one.

A group has enough different elements for a mean to be worth anything. Joined runs tell what PyTorch's own error can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from .difference import Binade, Metrics

__all__ = ["ENOUGH", "Z_SIGN", "Group", "Z", "either", "groups_of", "lean_of", "pooled"]

# Different values that a mean is taken over, at least.
ENOUGH = 32
# Standard errors that a mean may be off by chance: 2e-9 of normal variables are.
Z = 6.0
# The same for a sign: fair coins. 6e-7 of samples are beyond, and no sample of less than 25.
Z_SIGN = 5.0


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring rows of one sign with enough elements for a mean."""

    sign: int
    exponent: int
    rows: tuple[Binade, ...]

    @property
    def count(self) -> int:
        return sum(r.count for r in self.rows)

    @property
    def distinct(self) -> int:
        return sum(r.distinct for r in self.rows)

    @property
    def excess(self) -> float:
        return max((r.excess for r in self.rows), default=0.0)

    @property
    def rms(self) -> float:
        return math.sqrt(sum(r.count * r.rms**2 for r in self.rows) / max(self.count, 1))

    @property
    def size(self) -> float:
        return math.sqrt(sum(r.count * r.size**2 for r in self.rows) / max(self.count, 1))

    @property
    def bias(self) -> float:
        return sum(r.count * r.bias for r in self.rows) / max(self.count, 1)

    @property
    def far(self) -> tuple[int, int]:
        """Elements off by more than two ULPs, to either side."""
        return sum(r.more for r in self.rows), sum(r.less for r in self.rows)

    @property
    def chance(self) -> float:
        """What the mean may be by chance, from the spread of the differences themselves."""
        if self.distinct < ENOUGH:
            return math.inf
        return Z * math.sqrt(max(self.rms**2 - self.bias**2, 0.0) / min(self.distinct, self.count))


def pooled(errors: list[Metrics], factor: float = 1.0) -> Metrics:
    """PyTorch's own error from several measurements of one output; `factor` scales it to its dtype."""
    count = sum(m.compared for m in errors)
    square = sum(m.rms**2 * m.compared for m in errors) / max(count, 1)
    first = errors[0]

    def row(r: Binade) -> Binade:
        same = [r, *(o for m in errors[1:] for o in _within(r, first, m))]
        n = sum(o.count for o in same)
        return replace(
            r,
            count=n,
            distinct=sum(o.distinct for o in same),
            excess=factor * max(o.excess for o in same),
            rms=factor * math.sqrt(sum(o.count * o.rms**2 for o in same) / n),
            **_one_sided(same, factor),
        )

    return replace(
        first,
        compared=count,
        max_abs=factor * max(m.max_abs for m in errors),
        rms=factor * math.sqrt(square),
        excess=factor * max(m.excess for m in errors),
        gain=factor * max((m.gain for m in errors), key=abs),
        binades=tuple(row(r) for r in first.binades),
    )


def either(first: Metrics, other: Metrics) -> Metrics:
    """The larger of two own errors, row by row: two ways of computing the same, both sound."""

    def row(r: Binade) -> Binade:
        same = [r, *_within(r, first, other)]
        return replace(
            r,
            excess=max(o.excess for o in same),
            rms=max(o.rms for o in same),
            **_one_sided(same, 1.0),
        )

    return replace(
        first,
        max_abs=max(first.max_abs, other.max_abs),
        rms=max(first.rms, other.rms),
        excess=max(first.excess, other.excess),
        gain=max(first.gain, other.gain, key=abs),
        binades=tuple(row(r) for r in first.binades),
    )


def _one_sided(same: list[Binade], factor: float) -> dict[str, Any]:
    """Of several runs, the one whose errors lie most to one side: in the mean of two runs they may cancel."""
    far = max(same, key=lambda o: (abs(o.more - o.less), -o.more - o.less))
    return {"bias": factor * max((o.bias for o in same), key=abs), "more": far.more, "less": far.less}


def _within(row: Binade, first: Metrics, other: Metrics) -> list[Binade]:
    """The rows of `other` whose elements `row` of `first` would have taken."""
    rows = [r.exponent for r in first.binades if r.sign == row.sign]
    above = min((e for e in rows if e > row.exponent), default=10_000)
    below = -10_000 if row.exponent == min(rows) else row.exponent
    return [r for r in other.binades if r.sign == row.sign and below <= r.exponent < above]


def groups_of(binades: tuple[Binade, ...]) -> list[Group]:
    """Neighbouring rows of one sign, from the largest down, until a group has enough different values."""
    found: list[Group] = []
    for sign in (1, -1):
        rows: list[Binade] = []
        mine: list[Group] = []
        for row in (r for r in binades if r.sign == sign):
            rows.append(row)
            if sum(r.distinct for r in rows) >= ENOUGH:
                mine.append(Group(sign, row.exponent, tuple(rows)))
                rows = []
        if rows and mine:
            mine[-1] = Group(sign, rows[-1].exponent, (*mine[-1].rows, *rows))
        elif rows:
            mine.append(Group(sign, rows[-1].exponent, tuple(rows)))
        found += mine
    return found


def lean_of(group: Group) -> float:
    """The part of the far elements by which one side outweighs the other; small where there are few."""
    more, less = group.far
    return abs(more - less) / (more + less + ENOUGH)
