"""The values that a graph is searched by, each with the nodes between it and the values before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..record import Cell
from .dataflow import Dataflow, Part
from .judging import judged_against
from .reference import Reference
from .runs import Runs

__all__ = ["Suspect", "chunked", "judge_parts", "steps_to"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A value that left its budget although what it was computed from was the reference's.

    Attributes:
        part: the nodes that compute it; the last one makes it.
        got: what the backend made of it.
        cell: the verdict, with metrics and budget.
    """

    name: str
    part: Part
    got: Array
    cell: Cell


def steps_to(flow: Dataflow, reference: Reference, goal: set[str]) -> list[Part]:
    """One part per node that makes a value known to the reference and needed for the goal, in order."""
    known = frozenset(reference.values)
    by_node: dict[int, list[str]] = {}
    for name in flow.made_by:
        if name in known and name in goal and name not in flow.constant:
            by_node.setdefault(flow.made_by[name], []).append(name)
    return [flow.part(names, known) for _, names in sorted(by_node.items())]


def chunked(parts: Sequence[Part], values: Mapping[str, Array], memory: int) -> Iterator[list[Part]]:
    """The parts in order, as many at a time as keep inputs and results within `memory` bytes."""
    chunk: list[Part] = []
    held = 0
    for part in parts:
        size = size_of(part, values)
        if chunk and held + size > memory:
            yield chunk
            chunk, held = [], 0
        chunk.append(part)
        held += size
    if chunk:
        yield chunk


def size_of(part: Part, values: Mapping[str, Array]) -> int:
    """Bytes that the part is given and makes; its inner values are not counted."""
    return sum(values[name].nbytes for name in (*part.given, *part.wanted) if name in values)


def judge_parts(runs: Runs, reference: Reference, parts: Sequence[Part]) -> list[Suspect]:
    """Run parts side by side; the values that leave their budgets, in order. Raises Refused."""
    found = runs.parts(parts, reference.values)
    suspects = []
    for part, results in zip(parts, found, strict=True):
        wide = reference.wide(part.wanted, frozenset(part.given))
        for name, got in results.items():
            cell = judged_against(reference, name, got, wide[name])
            if cell.verdict == "failed":
                suspects.append(Suspect(name, part, got, cell))
    return suspects
