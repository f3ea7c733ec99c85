"""Of several nodes that would each explain a failure, the one that does.

A node that differs from the original need not be wrong. A tool that moves a factor from one node to another changes
both, and the file is as right as before; each of the two, carried on in the original, makes the output fail. So the
right value is put in the place of each, one after the other down the graph, and the file run on from there. Where that
makes the output worse, something behind makes up for the node. Where, further down, the error is what it was, the nodes so
far make up for each other, and the fault is behind them. Where it is gone, they are wrong together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from ..record import Cell
from . import wording
from .dataflow import Dataflow, Part
from .judging import judged
from .reference import Reference
from .runs import NoMoreRuns, Refused, Runs
from .steps import Suspect

__all__ = ["MOST", "settled"]

Array = npt.NDArray[Any]

MOST = 4  # that are put right side by side, in one run of as many copies of the file
# An output that is so many times farther off than before, with a value put right, had that value made up for.
_WORSE = 1.2


def settled(
    runs: Runs,
    flow: Dataflow,
    reference: Reference,
    failing: Mapping[str, Cell],
    got: Mapping[str, Array],
    judge: Callable[[str, Array], Cell],
    explaining: Sequence[Suspect],
) -> tuple[Suspect | None, str]:
    """The culprit among those that explain the failure, and what to remark; None and why where it is none of them alone.

    `got`: the outputs of the file as it is.
    """
    explaining = explaining[:MOST]
    if len(explaining) < 2:
        return explaining[0], ""
    parts = [_rest(flow, suspect, failing) for suspect in explaining]
    try:
        results = iter(runs.parts([p for p in parts if p is not None], reference.values))
    except (Refused, NoMoreRuns):
        return explaining[0], ""
    outcomes = [{} if p is None else {n: a for n, a in next(results).items() if n in failing} for p in parts]
    innocent = max((k + 1 for k, o in enumerate(outcomes) if _unchanged(o, got)), default=0)
    if innocent == len(explaining):
        return None, wording.together(flow, explaining)
    remark = wording.made_up_for(flow, explaining[:innocent]) if innocent else ""
    cells = {name: judge(name, array) for name, array in outcomes[innocent].items()}
    if innocent + 1 < len(explaining) and _left(cells, failing) > _WORSE:
        return None, wording.together(flow, explaining[innocent:])
    behind = wording.ANOTHER_BEHIND if any(c.verdict == "failed" for c in cells.values()) else ""
    return explaining[innocent], ". ".join(p for p in (remark, behind) if p)


def _unchanged(repaired: Mapping[str, Array], got: Mapping[str, Array]) -> bool:
    """Whether the file gives what it gave before: what comes up to here differs from the original, and is as good."""
    return bool(repaired) and all(
        name in got and judged(name, array, got[name], None).verdict != "failed"
        for name, array in repaired.items()
    )


def _rest(flow: Dataflow, suspect: Suspect, failing: Mapping[str, Cell]) -> Part | None:
    """The file from the suspect's right value and the inputs on, to the failing outputs that depend on it."""
    wanted = [name for name in failing if name != suspect.name and suspect.name in flow.needed([name])]
    return flow.part(wanted, {suspect.name, *flow.inputs}) if wanted else None


def _left(cells: Mapping[str, Cell], before: Mapping[str, Cell]) -> float:
    """The error that is left of the outputs that depend on a value put right, over what it was: the largest ratio."""
    ratios = [0.0]
    for name, cell in cells.items():
        if cell.metrics is not None and (was := before[name].metrics) is not None and was.rms > 0:
            ratios.append(cell.metrics.rms / was.rms)
        elif cell.verdict == "failed":
            ratios.append(1.0)
    return max(r for r in ratios if r == r)
