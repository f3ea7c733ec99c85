"""One backend over every sample: opened once, compared cell by cell, closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from ..errors import ModelFileError, NotCheckedError, UsageError
from ..ort_ops.engine import EngineError
from .backends import GaveUp, Kind, Request, Runner, RunnerFault
from .backends.feeding import FeedError
from .body_types import unfit_body
from .expectations import Expectation
from .inputs.golden import golden_cells
from .original import Expected
from .parity.compare import compare_output
from .provenance import file_record
from .record import FAILED, NOT_CHECKED, BackendRecord, Cell, Finding, Verdict
from .supervision.journal import Journal

__all__ = ["Column", "Failure", "expect_known_outputs", "run_backend"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """The first sample on which a backend's values were wrong: what a diagnosis starts from."""

    expectation: Expectation
    got: list[Array]
    cells: list[Cell]
    again: list[Array] | None = None  # a second run


@dataclass
class Column:
    """What a backend came to: one column of the matrix."""

    record: BackendRecord
    cells: list[Cell] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)
    failure: Failure | None = None


def run_backend(
    kind: Kind,
    request: Request,
    expectations: Sequence[Expectation],
    *,
    required: bool,
    modes: Mapping[str, str],
    journal: Journal,
    subject: str = "",
) -> Column:
    """Every sample on one backend. Nothing is raised but UsageError: what goes wrong there is what is reported."""
    journal.running(backend=kind.name, what="being looked for", subject=subject)
    missing = kind.missing(request)
    column = Column(BackendRecord(kind.name, required, missing))
    if missing:
        column.cells = _unchecked(kind.name, expectations, missing, subject)
        return column
    journal.running(backend=kind.name, what="being opened", subject=subject)
    try:
        runner = kind.open(request)
    except NotCheckedError as error:
        column.record = BackendRecord(kind.name, required, str(error))
        column.cells = _unchecked(kind.name, expectations, str(error), subject)
        return column
    except (ModelFileError, EngineError) as error:
        alone = request.onnx if not isinstance(error, RunnerFault) else None
        if alone is not None and (unfit := unfit_body(alone)):
            column.record = BackendRecord(kind.name, required, unfit)
            column.cells = _unchecked(kind.name, expectations, unfit, subject)
            return column
        for e in expectations:
            column.cells.append(Cell(e.sample.label, "*", kind.name, FAILED, str(error), subject=subject))
        if isinstance(error, RunnerFault):
            column.findings.append(error.finding(kind.name, "opening"))
        return column
    with closing(runner):
        for expectation in expectations:
            journal.running(expectation.sample.label, kind.name, subject=subject)
            cells, got = _one(runner, kind.name, expectation, modes, column, subject)
            for cell in cells:
                journal.cell(cell)
            column.cells += cells
            if column.failure is None and got is not None and any(c.verdict == FAILED for c in cells):
                failed = [c for c in cells if c.verdict == FAILED]
                column.failure = Failure(expectation, got, failed, _again(runner, expectation))
        column.notes |= runner.notes
        column.pools |= runner.pools
        files = tuple(file_record(path) for path in runner.files)
        column.record = BackendRecord(kind.name, required, "", dict(runner.versions), files)
    column.findings += _last_act(kind.name, runner)
    return column


def _last_act(backend: str, runner: Runner) -> list[Finding]:
    """A process that did all that it was asked, and crashed when it was to end: so will the one that serves."""
    ending = getattr(runner, "last_act", None)
    if ending is None:
        return []
    return [
        Finding(
            ending.kind,
            "note",
            f"After everything was compared, the process of {backend} ended badly: {ending.text}",
            where=backend,
            advice="a library of this backend does not survive its own unloading: a server that ends normally will crash there",
            log=ending.log,
        )
    ]


def _unchecked(backend: str, expectations: Sequence[Expectation], reason: str, subject: str) -> list[Cell]:
    """Of an operator a cell for each sample: another dtype of it may well run on the backend."""
    if not subject:
        return []
    return [Cell(e.sample.label, "*", backend, NOT_CHECKED, reason, subject=subject) for e in expectations]


def _one(
    runner: Runner,
    backend: str,
    expectation: Expectation,
    modes: Mapping[str, str],
    column: Column,
    subject: str,
) -> tuple[list[Cell], list[Array] | None]:
    sample, expected = expectation.sample, expectation.outputs

    def whole(verdict: Verdict, reason: str) -> tuple[list[Cell], None]:
        return [Cell(sample.label, "*", backend, verdict, reason, subject=subject)], None

    try:
        got = runner.run(expectation.inputs, sample)
    except RunnerFault as error:
        column.findings.append(error.finding(backend, sample.label))
        return whole(FAILED, str(error))
    except (GaveUp, NotCheckedError) as error:
        return whole(NOT_CHECKED, str(error))
    except (EngineError, FeedError) as error:
        return whole(FAILED, f"the ONNX model fails here: {error}")
    expected = _without_numbers(expected, len(got), column.notes)
    if len(got) != len(expected):
        return whole(FAILED, f"the ONNX model has {len(got)} outputs, the original {len(expected)}")
    names = runner.outputs
    cells = [
        compare_output(sample.label, name, backend, g, e, modes.get(name, "values"), subject)
        for name, g, e in zip(names, got, expected, strict=True)
    ]
    if sample.golden:
        cells += golden_cells(sample, names, got, expected, backend)
    return cells, got


def _again(runner: Runner, expectation: Expectation) -> list[Array] | None:
    """Whether the backend agrees with itself; None where it does not run again."""
    try:
        return runner.run(expectation.inputs, expectation.sample)
    except (EngineError, NotCheckedError, FeedError):
        return None


def _without_numbers(expected: list[Expected], count: int, notes: dict[str, None]) -> list[Expected]:
    """Without the results that are Python numbers, where the file leaves these out."""
    tensors = [e for e in expected if not e.number]
    if count >= len(expected) or count != len(tensors):
        return expected
    notes["results that are Python numbers are no outputs of the ONNX model"] = None
    return tensors


def expect_known_outputs(modes: Mapping[str, str], columns: Sequence[Column]) -> None:
    """Refuse modes for outputs that no backend has. Raises UsageError."""
    names = dict.fromkeys(c.output for column in columns for c in column.cells if c.output != "*")
    unknown = [name for name in modes if names and name not in names]
    if unknown:
        raise UsageError(
            f"--output {unknown[0]}:{modes[unknown[0]]}: the model has no such output; it has {', '.join(names)}"
        )
