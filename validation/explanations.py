"""Why outputs differ: known look-alikes, things that are no parity fault, and the node where it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NotCheckedError
from ..export.buffers import buffers_kept
from .backends import BACKENDS, Kind, Request, Runner
from .backends.torch import described
from .bisection import bisect
from .choice import AS_WRITTEN, Choice
from .diagnosis import explain, explain_golden
from .diagnosis.file_values import inside_file
from .diagnosis.variants import followed_variant
from .expectations import Expectation
from .matrix import Column, Failure
from .options import Options
from .original import Original
from .record import PASSED, Bisection, Cell, Finding
from .supervision import Journal

if TYPE_CHECKING:
    import onnx

    from .backends import Sample

__all__ = ["Explanation", "explained"]


@dataclass
class Explanation:
    """What was found about the failures; nothing of it makes a failed cell pass."""

    findings: list[Finding] = field(default_factory=list)
    bisections: list[Bisection] = field(default_factory=list)


def explained(
    original: Original,
    path: Path,
    graph: onnx.GraphProto,
    expectations: Sequence[Expectation],
    columns: Sequence[Column],
    choices: Sequence[Choice],
    request: Request,
    options: Options,
    journal: Journal,
) -> Explanation:
    """Of each backend's first failed sample, what may be behind it."""
    found = Explanation()
    unsteady = next((e for e in expectations if any(o.unsteady for o in e.outputs)), None)
    if unsteady is not None:
        journal.running(unsteady.sample.label, "pytorch", "looking for randomness")
        with buffers_kept(original.model):
            arrays = [o.array for o in unsteady.outputs]
            found.findings += explain(original, unsteady.sample, arrays, unsteady.outputs, graph)
    samples = [e.sample for e in expectations]
    for choice, column in zip(choices, columns, strict=True):
        if column.failure is None:
            continue
        journal.running(column.failure.expectation.sample.label, "pytorch", "looking for an explanation")
        found.findings += _of(original, path, graph, column.failure, choice.kind.name, request)
        if options.bisect:
            found.bisections.append(_bisected(original, path, choice.kind, column, samples, request, journal))
    return found


def _of(
    original: Original,
    path: Path,
    graph: onnx.GraphProto,
    failure: Failure,
    backend: str,
    request: Request,
) -> list[Finding]:
    sample, expected = failure.expectation.sample, failure.expectation.outputs
    findings = []
    variant = followed_variant(original, sample, failure.got, expected)
    if variant is not None:
        findings.append(
            Finding(
                "variant",
                "note",
                variant,
                where=failure.cells[0].output,
                advice="export again, and compare the attribute in the file with that of the model",
            )
        )
    try:
        with buffers_kept(original.model):
            findings += explain(
                original,
                sample,
                failure.got,
                expected,
                graph,
                again=failure.again,
                backend=backend,
                file_values=inside_file(path, failure.expectation.inputs, _as_written(request)),
            )
            if any(c.judged_as == "golden" for c in failure.cells):
                findings += explain_golden(original, sample, expected, graph)
    except Exception as error:  # a model run on inputs that it was not made for
        findings.append(
            Finding("diagnosis", "note", f"the search for an explanation ended early: {described(error)}")
        )
    return findings


def _as_written(request: Request) -> Callable[[Path], Runner]:
    """Opens a file with every node kept."""
    return lambda file: BACKENDS[AS_WRITTEN].open(replace(request, onnx=file))


def _bisected(
    original: Original,
    path: Path,
    kind: Kind,
    column: Column,
    samples: Sequence[Sample],
    request: Request,
    journal: Journal,
) -> Bisection:
    assert column.failure is not None
    failure = column.failure
    sample = failure.expectation.sample
    cell = max(failure.cells, key=lambda c: c.used)
    journal.running(sample.label, kind.name, "bisecting")

    def opened(file: Path) -> Runner:
        missing = kind.missing(replace(request, onnx=file))
        if missing:
            raise NotCheckedError(missing)
        return kind.open(replace(request, onnx=file))

    found = bisect(original, path, sample, cell, opened, passing=_passing(column.cells, cell.output, samples))
    journal.bisection(found)
    return found


def _passing(cells: Sequence[Cell], output: str, samples: Sequence[Any]) -> Sample | None:
    """A sample on which the output passed."""
    passed = {c.sample for c in cells if c.output == output and c.verdict == PASSED}
    return next((s for s in samples if s.label in passed), None)
