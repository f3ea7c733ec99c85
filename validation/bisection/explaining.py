"""What can be said of the node that was found: its inputs, its weights, and whether the file or the runtime is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...export.graph.passes import SOURCE_KEY
from ..parity.float_types import is_float
from ..record import Culprit, ValueRange
from . import wording
from .dataflow import Dataflow, Part
from .declared_attributes import OtherAttribute, attributes_otherwise
from .file_reference import as_written
from .judging import judged, value_range
from .reference import Reference
from .runs import Refused, Runs
from .steps import Suspect
from .submodel import Workshop
from .written_by_export import written_otherwise

__all__ = ["culprit_of", "raising"]

Array = npt.NDArray[Any]

# A constant of the file farther than this from every parameter of its shape is none of them.
_RELATED = 0.5
_STANDARD = ("", "ai.onnx")


def culprit_of(workshop: Workshop, reference: Reference, suspect: Suspect) -> tuple[Culprit, list[str]]:
    """The culprit, and remarks on it."""
    flow, part = workshop.flow, suspect.part
    attributes = attributes_otherwise(flow, reference, suspect)
    remarks = [_who(workshop, reference, suspect, attributes)]
    weights = _weights(workshop, reference, suspect)
    remarks += [*weights, *(a.text for a in attributes)]
    if remarks[0] not in (wording.BACKEND_AT_FAULT, wording.KERNEL_AT_FAULT) and not weights:
        remarks += written_otherwise(flow, reference, suspect, workshop.array)
    ranges = [value_range(name, reference.values[name]) for name in part.given if name in reference.values]
    for name in sorted({n for k in part.nodes for n in flow.reads[k] if n in flow.stored}):
        array = workshop.array(name)
        if array is not None and is_float(array):
            ranges.append(value_range(name, array))
    made = replace(
        _culprit(flow, reference, suspect.name, part, ranges, suspect.cell.reason),
        metrics=suspect.cell.metrics,
        budget=suspect.cell.budget,
    )
    return made, [r for r in remarks if r]


def _culprit(
    flow: Dataflow, reference: Reference, name: str, part: Part, ranges: Sequence[ValueRange], reason: str
) -> Culprit:
    node = flow.nodes[flow.made_by[name]]
    origin = reference.origin(name)
    stored = next((p.value for p in node.metadata_props if p.key == SOURCE_KEY), "")
    return Culprit(
        node.name,
        node.op_type,
        node.domain,
        name,
        origin.module or stored,
        origin.line,
        tuple(ranges),
        reason=reason,
        among=wording.among(flow, part),
    )


def _who(
    workshop: Workshop, reference: Reference, suspect: Suspect, attributes: Sequence[OtherAttribute]
) -> str:
    """Whether the nodes say something else than the original, or the backend does something else than they say.

    `attributes`: those of a declared operator's node that are not those of the call. They are the file's fault, though
    the body next to them gives the right value.
    """
    name = suspect.name
    want = reference.expected(name)
    if not reference.of_the_model:
        return wording.BACKEND_AT_FAULT
    written = as_written(workshop, suspect.part, reference.values).get(name)
    if written is None and all(workshop.flow.nodes[k].domain not in _STANDARD for k in suspect.part.nodes):
        return wording.no_body_but(attributes) if attributes else wording.KERNEL_AT_FAULT
    if written is None or written.shape != want.shape:
        return ""
    with np.errstate(all="ignore"):
        cell = judged(
            name, written.astype(want.dtype), want, reference.wide([name], suspect.part.given)[name]
        )
    if cell.verdict == "failed":
        return wording.FILE_AT_FAULT
    return wording.body_against_node(attributes) if attributes else wording.BACKEND_AT_FAULT


def _weights(workshop: Workshop, reference: Reference, suspect: Suspect) -> list[str]:
    """Constants of the file that are not what the original holds."""
    behind = reference.weights(suspect.name)
    found = []
    for name in sorted({n for k in suspect.part.nodes for n in workshop.flow.reads[k]}):
        array = workshop.array(name)
        if array is None or not is_float(array):
            continue
        if any(_same(array, value) for value in _views(behind, array)):
            continue
        named = reference.weight(name)
        related = [named] if named is not None else _related(array, behind)
        for target, value in related[:1]:
            if value.shape != array.shape:
                found.append(wording.other_shape(name, array.shape, target, value.shape))
            elif not _same(array, value):
                with np.errstate(all="ignore"):
                    apart = np.abs(array.astype(np.float64) - value.astype(np.float64))
                at = tuple(int(i) for i in np.unravel_index(int(np.nan_to_num(apart).argmax()), apart.shape))
                differ = int((array != value).sum())
                found.append(wording.other_weight(name, target, float(apart[at]), at, differ, array.size))
    return found


def _views(behind: dict[str, Array], array: Array) -> list[Array]:
    """The parameters as they may stand in the file: as they are, or transposed."""
    values = [*behind.values(), *(v.T for v in behind.values() if v.ndim > 1)]
    values += [v.swapaxes(-1, -2) for v in behind.values() if v.ndim > 2]
    return [v for v in values if v.shape == array.shape]


def _related(array: Array, behind: dict[str, Array]) -> list[tuple[str, Array]]:
    """The parameter nearest to the constant, where one is near."""
    best: tuple[float, str, Array] | None = None
    for target, value in sorted(behind.items()):
        for view in _views({target: value}, array):
            with np.errstate(all="ignore"):
                a, b = array.astype(np.float64), view.astype(np.float64)
                apart = float(np.linalg.norm(a - b)) / (float(np.linalg.norm(b)) or np.inf)
            if apart <= _RELATED and (best is None or apart < best[0]):
                best = (apart, target, view)
    return [] if best is None else [(best[1], best[2])]


def _same(a: Array, b: Array) -> bool:
    if a.dtype != b.dtype and is_float(a) and is_float(b):  # one of them was cast: to the narrower one
        a, b = (a.astype(b.dtype), b) if a.dtype.itemsize > b.dtype.itemsize else (a, b.astype(a.dtype))
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def raising(
    runs: Runs, flow: Dataflow, reference: Reference, parts: Sequence[Part], error: Refused
) -> tuple[Culprit, str]:
    """The first of the steps that the backend refuses on the reference's values, by halving; all together raised `error`."""
    first, end, text = 0, len(parts), str(error)
    while end - first > 1:
        middle = (first + end) // 2
        now = _refusal(runs, reference, parts[first:middle])
        if now is None:
            first = middle
        else:
            end, text = middle, now
    part = parts[first]
    ranges = [value_range(n, reference.values[n]) for n in part.given if n in reference.values]
    culprit = _culprit(flow, reference, part.wanted[0], part, ranges, f"the backend fails: {text}")
    return culprit, wording.refuses(culprit)


def _refusal(runs: Runs, reference: Reference, parts: Sequence[Part]) -> str | None:
    try:
        runs.parts(parts, reference.values)
    except Refused as error:
        return str(error)
    return None
