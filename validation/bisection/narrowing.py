"""A graph too large to be run step by step in few runs: halved first, each half uncut and from the reference's values."""

from __future__ import annotations

from collections.abc import Sequence

from .dataflow import Dataflow, Part
from .reference import Reference
from .runs import Refused, Runs
from .steps import chunked, judge_parts, size_of

__all__ = ["narrowed"]

# Runs that the steps may take, and those that are kept for what comes after them.
_FEW, _KEPT = 3, 3


def narrowed(runs: Runs, flow: Dataflow, reference: Reference, parts: list[Part], memory: int) -> list[Part]:
    """The steps among which the failure arises, as few as take `_FEW` runs, where the runs that are left allow it."""
    cuts = flow.cuts(reference.values)
    goal = {name for part in parts for name in part.wanted}
    while runs.left > _FEW + _KEPT and len(list(chunked(parts, reference.values, memory))) > _FEW:
        first, end = flow.made_by[parts[0].wanted[0]], flow.made_by[parts[-1].wanted[0]] + 1
        middle = _middle(flow, reference, parts, [c for c in cuts if first < c < end])
        if middle is None:
            break
        known = frozenset(n for n in reference.values if flow.made_by.get(n, -1) < first)
        wanted = [n for n in flow.frontier(middle, goal) if flow.made_by[n] >= first]
        try:
            fails = bool(judge_parts(runs, reference, [flow.part(wanted, known)]))
        except Refused:
            fails = True
        if fails:
            parts = [p for p in parts if flow.made_by[p.wanted[0]] < middle]
        else:
            parts = [p for p in parts if flow.made_by[p.wanted[0]] >= middle]
    return parts


def _middle(flow: Dataflow, reference: Reference, parts: Sequence[Part], cuts: Sequence[int]) -> int | None:
    """The cut that leaves the most even number of bytes on both sides."""
    sizes = [(flow.made_by[p.wanted[0]], size_of(p, reference.values)) for p in parts]
    total = sum(size for _, size in sizes)
    return min(cuts, key=lambda cut: abs(total - 2 * sum(s for at, s in sizes if at < cut)), default=None)
