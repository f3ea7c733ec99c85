"""What no step alone shows: a fusion of the runtime, which is gone where the graph is cut, or errors that add up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from ..record import Cell, Culprit
from . import wording
from .dataflow import Dataflow, Part
from .judging import judged_against
from .reference import Reference
from .runs import Refused, Runs

__all__ = ["uncut"]

Array = npt.NDArray[Any]

# An error is gone that is smaller than this part of what it was.
_GONE = 0.5
# Steps that a window spans; each begins half its length after the one before.
_WINDOWS = (2, 4, 8, 16)


def uncut(
    runs: Runs,
    flow: Dataflow,
    reference: Reference,
    failing: Mapping[str, Cell],
    judge: Callable[[str, Array], Cell],
    parts: list[Part],
) -> tuple[Culprit | None, str]:
    """No step leaves its budget: whether the failure stays when every value between the steps is asked for."""
    names = [name for part in parts for name in part.wanted]
    try:
        (values,) = runs.parts([flow.whole(names)], reference.values)
    except Refused as error:
        return None, wording.uncut_refused(str(error))
    cells = {name: judge(name, values[name]) for name in failing}
    if any(_stays(cells[name], before) for name, before in failing.items()):
        return None, wording.accumulated(flow, _first_over(flow, reference, values, names))
    return None, wording.fused(flow, _window(runs, flow, reference, parts))


def _stays(cell: Cell, before: Cell) -> bool:
    """Whether an output is as wrong as it was, or nearly: a difference at the edge of its budget may slip within."""
    if cell.verdict == "failed":
        return True
    return bool(cell.metrics and before.metrics and cell.metrics.rms > _GONE * before.metrics.rms)


def _first_over(
    flow: Dataflow, reference: Reference, values: Mapping[str, Array], names: list[str]
) -> str | None:
    """The first value that leaves the budget of everything before it."""
    known = frozenset(flow.inputs)
    for name in names:
        wide = reference.wide([name], known)[name]
        if judged_against(reference, name, values[name], wide).verdict == "failed":
            return name
    return None


def _window(runs: Runs, flow: Dataflow, reference: Reference, parts: list[Part]) -> Part | None:
    """The shortest run of steps that fails uncut though each of its steps is right; None where none is so short."""
    goal = {name for part in parts for name in part.wanted}
    cuts = flow.cuts(reference.values)
    for length in _WINDOWS:
        if not runs.left:
            return None
        windows: list[tuple[Part, frozenset[str]]] = []
        for start in range(0, len(cuts) - 1, max(length // 2, 1)):
            first, end = cuts[start], cuts[min(start + length, len(cuts) - 1)]
            known = frozenset(n for n in reference.values if flow.made_by.get(n, -1) < first)
            wanted = [n for n in flow.frontier(end, goal) if flow.made_by[n] >= first]
            if wanted:
                windows.append((flow.part(wanted, known), known))
        try:
            found = runs.parts([part for part, _ in windows], reference.values)
        except Refused:
            return None
        for (part, known), results in zip(windows, found, strict=True):
            wide = reference.wide(part.wanted, known)
            if any(
                judged_against(reference, n, got, wide[n]).verdict == "failed" for n, got in results.items()
            ):
                return part
    return None
