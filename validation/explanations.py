"""Why outputs differ: known look-alikes, things that are no parity fault, and the node where it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NotCheckedError
from ..export.buffers import buffers_kept
from ..ort_ops.engine import EngineError
from .backends import BACKENDS, Kind, Request, Runner
from .backends.feeding import FeedError
from .backends.torch import described
from .bisection import bisect
from .choice import AS_WRITTEN, ENGINES, Choice
from .diagnosis import evidence, explain, explain_golden, float16_overflow, masked_rows
from .diagnosis.file_values import inside_file, outputs_given
from .diagnosis.residual import Elsewhere
from .diagnosis.variants import followed_variant
from .expectations import Expectation
from .matrix import Column, Failure
from .options import Options
from .original import Original
from .record import FAILED, PASSED, Bisection, Cell, Finding
from .supervision import Journal

if TYPE_CHECKING:
    import onnx

    from .backends import Sample

__all__ = ["Explanation", "explained"]

MOST_OTHERS = 3  # samples on which an explanation must hold besides the one that failed


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
    of_engines: tuple[Original, Sequence[Expectation]] | None = None,
) -> Explanation:
    """Of each backend's first failed sample, what may be behind it.

    `of_engines`: what engines are judged by, where that is not `original` and `expectations`.
    """
    found = Explanation()
    unsteady = next((e for e in expectations if any(o.unsteady for o in e.outputs)), None)
    if unsteady is not None:
        journal.running(unsteady.sample.label, "pytorch", "looking for randomness")
        with buffers_kept(original.model):
            arrays = [o.array for o in unsteady.outputs]
            found.findings += explain(original, unsteady.sample, arrays, unsteady.outputs, graph)
    # a declared operator's samples are its own affair
    if not any(c.subject for column in columns for c in column.cells):
        found.findings += _evidence(original, graph, expectations, columns, options, journal)
    samples = [e.sample for e in expectations]
    for choice, column in zip(choices, columns, strict=True):
        if column.failure is None:
            continue
        journal.running(column.failure.expectation.sample.label, "pytorch", "looking for an explanation")
        by, judged = original, expectations
        if of_engines is not None and choice.kind.name in ENGINES:
            by, judged = of_engines
        elsewhere = _elsewhere(choice.kind, request, column, judged)
        found.findings += _of(by, path, graph, column.failure, choice.kind.name, request, elsewhere)
        if options.bisect:
            found.bisections.append(_bisected(original, path, choice.kind, column, samples, request, journal))
    if not any(f.kind == float16_overflow.KIND for f in found.findings):
        found.findings += _overflow(original, path, graph, expectations, request)
    return found


def _overflow(
    original: Original,
    path: Path,
    graph: onnx.GraphProto,
    expectations: Sequence[Expectation],
    request: Request,
) -> list[Finding]:
    """Of the first sample on which the original overflows in float16."""
    with buffers_kept(original.source or original.model):
        for e in expectations:
            call = path, e.inputs, _as_written(request)
            inside, given = inside_file(*call), outputs_given(*call)
            found = [*float16_overflow.of_the_reference(original, e.sample, e.outputs, graph, inside, given)]
            if found:
                return found
    return []


def _evidence(
    original: Original,
    graph: onnx.GraphProto,
    expectations: Sequence[Expectation],
    columns: Sequence[Column],
    options: Options,
    journal: Journal,
) -> list[Finding]:
    """What the samples do not show."""
    journal.running(backend="pytorch", what="looking for inputs without effect")
    with buffers_kept(original.model):
        found = [*evidence.without_effect(original, expectations)]
    found += evidence.constant_outputs([o.name for o in graph.output], expectations)
    # the file as written runs on the first sample only, and on purpose
    several = [c for c in columns if c.record.name != AS_WRITTEN or options.sweep == "full"]
    found += evidence.one_sample(cell for column in several for cell in column.cells)
    return found


def _of(
    original: Original,
    path: Path,
    graph: onnx.GraphProto,
    failure: Failure,
    backend: str,
    request: Request,
    elsewhere: Elsewhere,
) -> list[Finding]:
    sample, expected = failure.expectation.sample, failure.expectation.outputs
    findings: list[Finding] = []
    try:
        with buffers_kept(original.model):
            variant = followed_variant(original, sample, failure.got, expected, elsewhere)
            if variant is not None:
                findings.append(_variant(variant, failure))
            findings += masked_rows.explain(original, sample, failure.got, expected, graph)
            findings += explain(
                original,
                sample,
                failure.got,
                expected,
                graph,
                again=failure.again,
                backend=backend,
                file_values=inside_file(path, failure.expectation.inputs, _as_written(request)),
                elsewhere=elsewhere,
                failed={c.output for c in failure.cells if c.judged_as == "values"},
            )
            if any(c.judged_as == "golden" for c in failure.cells):
                findings += explain_golden(original, sample, expected, graph)
    except Exception as error:  # a model run on inputs that it was not made for
        findings.append(
            Finding("diagnosis", "note", f"the search for an explanation ended early: {described(error)}")
        )
    return findings


def _variant(text: str, failure: Failure) -> Finding:
    return Finding(
        "variant",
        "note",
        text,
        where=failure.cells[0].output,
        advice="export again, and compare the attribute in the file with that of the model",
    )


def _elsewhere(
    kind: Kind, request: Request, column: Column, expectations: Sequence[Expectation]
) -> Elsewhere:
    """What both sides give on some other samples, failed ones first; the backend is opened again when first asked."""
    assert column.failure is not None
    own = column.failure.expectation.sample.label
    failed = {c.sample for c in column.cells if c.verdict == FAILED}
    there = [e for e in expectations if e.sample.label != own and all(o.array.size for o in e.outputs)]
    there.sort(key=lambda e: (e.sample.label not in failed, sum(o.array.size for o in e.outputs)))

    @cache
    def run() -> list[tuple[Sample, list[Any], list[Any]]]:
        found: list[tuple[Sample, list[Any], list[Any]]] = []
        if not there:
            return found
        with closing(kind.open(request)) as runner:
            for e in there[:MOST_OTHERS]:
                with suppress(
                    EngineError, FeedError, NotCheckedError
                ):  # it failed there, and not by its values
                    got = runner.run(e.inputs, e.sample)
                    if len(got) == len(e.outputs):
                        found.append((e.sample, got, e.outputs))
        return found

    return run


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
    if kind.name in ENGINES:
        text = (
            "an engine is not cut into pieces: it is one program. Where the other backends pass, the fault is in the engine or "
            "in a plugin; build it in float32, or with fewer plugins, to see which"
        )
        found = Bisection(sample.label, cell.output, kind.name, None, text, 0, 0, "")
        journal.bisection(found)
        return found
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
