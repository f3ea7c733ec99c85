"""The first node whose output leaves its budget although its inputs are the reference's.

Not by halving alone. One run computes every step of the graph side by side, each from the reference's values, so that
no error reaches the next step and none masks another; that is a handful of runs whatever the depth. What leaves its
budget there is carried on in the original, which tells, without a run, whether it explains the output. Halving is
left for what no single step shows: a fusion of the runtime, which is gone where the graph is cut, and a graph too
large to be run in few pieces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ...errors import DeployOpsError
from ...ort_ops.diagnosis import parsed
from ..backends import Sample
from ..backends.torch import described
from ..inputs.samples import named_inputs
from ..original import Expected, Original, OriginalFailed
from ..parity.compare import compare_output
from ..record import Bisection, Cell, Culprit
from . import wording
from .dataflow import Dataflow, Part
from .explaining import culprit_of, raising
from .feeds import feeds_of
from .file_reference import FileReference
from .fusion import uncut
from .judging import judged
from .narrowing import narrowed
from .reference import Reference, Unmappable
from .references import Frozen, reference_for
from .runs import NoMoreRuns, OpenBackend, Refused, Runs
from .settling import MOST, settled
from .steps import Suspect, chunked, judge_parts, steps_to
from .submodel import Workshop

__all__ = ["bisect"]

Array = npt.NDArray[Any]

MOST_RUNS = 12
MEMORY = 1 << 30
# Suspects that are carried on in the original at most; each costs a part of a run of it.
MOST_CARRIED = 24
# A suspect that explains at least this part of the output's error is the culprit, though the rest of the
# error leaves its own effect just within the budget.
MOST_OF_IT = 0.5


@dataclass(slots=True)
class _Case:
    """What is searched: the file on one sample, and what its outputs should be.

    `failing` and `got`, its outputs, are empty where the backend does not run the file at all; `refusal` is what it said.
    """

    flow: Dataflow
    workshop: Workshop
    runs: Runs
    expected: dict[str, Expected]
    failing: dict[str, Cell]
    reference: Reference
    refusal: str
    mode: str
    got: dict[str, Array]

    def cell(self, name: str, got: Array) -> Cell:
        """The verdict on an output, judged as the failed cell was."""
        return compare_output("", name, "", got, self.expected[name], self.mode)


def bisect(
    original: Original,
    onnx_path: Path,
    sample: Sample,
    failed: Cell,
    open_backend: OpenBackend,
    *,
    most_runs: int = MOST_RUNS,
    memory: int = MEMORY,
    passing: Sample | None = None,
) -> Bisection:
    """Find where an output of the file begins to differ from the original.

    Args:
        original: as the file was compared with it, in the file's precision.
        onnx_path: the file. It is read, and never written to.
        sample: the inputs of the failed cell.
        failed: the cell; its output, or every failing one where it names none.
        open_backend: opens a model file on the backend that failed, with its options and libraries.
        most_runs: of the backend.
        memory: bytes of intermediate values that one run may take and return.
        passing: a sample on which the output passed; with it the text says whether the node fails there too.

    Returns:
        `culprit` is None where no single node explains the failure; `text` says what was found instead.
    """
    import torch

    path = Path(onnx_path)
    bisection = Bisection(sample.label, failed.output, failed.backend, None, "", 0, 0, "")
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="deployops-bisect-") as folder:
        try:
            workshop = Workshop(path, parsed(path), Path(folder))
        except (DeployOpsError, OSError) as error:
            return replace(bisection, text=f"the file cannot be taken apart: {described(error)}")
        runs = Runs(workshop, open_backend, most_runs)
        bisection = replace(bisection, nodes=len(workshop.flow.nodes))
        try:
            culprit, text, words = _searched(original, path, sample, failed, workshop, runs, memory, passing)
        except OriginalFailed as error:
            culprit, text, words = None, f"the original does not run this sample: {error}", ""
        except NoMoreRuns:
            culprit, text, words = None, wording.no_more_runs(runs.most), ""
        return replace(bisection, culprit=culprit, text=text, runs=runs.count, reference=words)


def _searched(
    original: Original,
    path: Path,
    sample: Sample,
    failed: Cell,
    workshop: Workshop,
    runs: Runs,
    memory: int,
    passing: Sample | None,
) -> tuple[Culprit | None, str, str]:
    flow = workshop.flow
    named = named_inputs(original.source or original.model, sample)
    expected = original.expected(sample)
    refused, got = None, {}
    try:
        got = runs.whole(path, named)
    except Refused as error:
        refused = error
    wanted = _by_output(flow, expected, len(got) or len(flow.outputs))
    if wanted is None:
        return None, wording.other_outputs(len(flow.outputs), len(expected)), ""
    failing = {} if refused else _failing(failed, got, wanted)
    if not failing and refused is None:
        return None, wording.NOT_AGAIN, ""
    goal = flow.needed(failing or flow.outputs)
    found = reference_for(
        original, workshop, runs, sample, feeds_of(flow, named), list(wanted.values()), goal
    )
    if isinstance(found, Frozen):
        return None, found.text, found.words
    if isinstance(found, Unmappable):
        return None, str(found), ""
    if isinstance(found, FileReference) and (text := _file_differs(found, failing, wanted)):
        return None, text, found.words
    case = _Case(
        flow,
        workshop,
        runs,
        wanted,
        failing,
        found,
        "" if refused is None else str(refused),
        failed.judged_as,
        got,
    )
    parts = steps_to(flow, found, goal)
    culprit, text = _first(case, parts, memory, original, passing)
    return culprit, text, found.words


def _by_output(flow: Dataflow, expected: Sequence[Expected], count: int) -> dict[str, Expected] | None:
    """What each output of the file should be; None where they cannot be told apart."""
    tensors = [e for e in expected if not e.number]
    for candidates in (list(expected), tensors):
        if len(candidates) == count == len(flow.outputs):
            return dict(zip(flow.outputs, candidates, strict=True))
    return None


def _failing(failed: Cell, got: dict[str, Array], wanted: dict[str, Expected]) -> dict[str, Cell]:
    cells = {
        name: compare_output("", name, "", got[name], expected, failed.judged_as)
        for name, expected in wanted.items()
        if failed.output in (name, "*")
    }
    return {name: cell for name, cell in cells.items() if cell.verdict == "failed"}


def _file_differs(reference: FileReference, failing: dict[str, Cell], wanted: dict[str, Expected]) -> str:
    """What to say where the file, evaluated without the backend, does not give the original's outputs."""
    cells = [
        compare_output("", n, "", reference.values[n], wanted[n]) for n in failing if n in reference.values
    ]
    return wording.file_differs(reference.why) if any(c.verdict == "failed" for c in cells) else ""


def _first(
    case: _Case, parts: list[Part], memory: int, original: Original, passing: Sample | None
) -> tuple[Culprit | None, str]:
    seen: list[Suspect] = []
    parts = narrowed(case.runs, case.flow, case.reference, parts, memory)
    for chunk in chunked(parts, case.reference.values, memory):
        try:
            suspects = judge_parts(case.runs, case.reference, chunk)
        except Refused as error:
            return raising(case.runs, case.flow, case.reference, chunk, error)
        explaining = list(islice((s for s in suspects[:MOST_CARRIED] if _explains(case, s)), MOST))
        if explaining:
            named, remark = explaining[0], ""
            if not case.refusal:
                chosen, remark = settled(
                    case.runs, case.flow, case.reference, case.failing, case.got, case.cell, explaining
                )
                if chosen is None:
                    return None, remark
                named = chosen
            return _named(case, named, original, passing, remark)
        seen += suspects
    if case.refusal:
        return None, wording.refused_whole(case.refusal)
    culprit, text = uncut(case.runs, case.flow, case.reference, case.failing, case.cell, parts)
    return culprit, f"{text} {wording.several(case.flow, seen)}" if seen else text


def _explains(case: _Case, suspect: Suspect) -> bool:
    """Whether what the backend made of this value makes the failing output fail, all else being the reference's."""
    if case.refusal:
        return True  # of another shape, or a size or an index that what follows cannot take
    try:
        results = case.reference.carried_on({suspect.name: suspect.got})
    except Unmappable:
        return True  # another shape or dtype, with which the original does not even run
    found = _by_output(case.flow, list(case.expected.values()), len(results))
    if found is None:
        return True
    for name, result in zip(case.flow.outputs, results, strict=True):
        before = case.failing.get(name)
        if before is None:
            continue
        cell = case.cell(name, result)
        if cell.verdict == "failed":
            return True
        if cell.metrics and before.metrics and cell.metrics.rms >= MOST_OF_IT * before.metrics.rms > 0:
            return True
    return False


def _named(
    case: _Case, suspect: Suspect, original: Original, passing: Sample | None, remark: str = ""
) -> tuple[Culprit, str]:
    """The suspect run alone, and what is known of it."""
    try:
        again = judge_parts(case.runs, case.reference, [suspect.part])
    except (Refused, NoMoreRuns):  # then it stands as it was found
        again = [suspect]
    confirmed = next((s for s in again if s.name == suspect.name), None)
    culprit, remarks = culprit_of(case.workshop, case.reference, suspect)
    remarks += [remark] if remark else []
    if confirmed is None:
        remarks.append(wording.NOT_ALONE)
    elif judged(suspect.name, confirmed.got, suspect.got, None).verdict == "failed":
        remarks.append(wording.RANDOM)
    if passing is not None and case.runs.left and not case.refusal:
        remarks += _elsewhere(case, suspect, original, passing)
    text = wording.found(culprit, remarks)
    return culprit, wording.refused(case.refusal, text) if case.refusal else text


def _elsewhere(case: _Case, suspect: Suspect, original: Original, passing: Sample) -> list[str]:
    """Whether the node is out of its budget on a sample that passed, too."""
    named = named_inputs(original.source or original.model, passing)
    goal = case.flow.needed(case.failing)
    try:
        expected = _by_output(case.flow, original.expected(passing), len(case.flow.outputs))
        if expected is None:
            return []
        found = reference_for(
            original,
            case.workshop,
            case.runs,
            passing,
            feeds_of(case.flow, named),
            list(expected.values()),
            goal,
        )
        if isinstance(found, Frozen | Unmappable) or suspect.name not in found.values:
            return []
        part = case.flow.part(suspect.part.wanted, frozenset(found.values))
        again = judge_parts(case.runs, found, [part])
    except (OriginalFailed, Refused, Unmappable, NoMoreRuns):
        return []
    return [wording.elsewhere(passing.label, any(s.name == suspect.name for s in again))]
