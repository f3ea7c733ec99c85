"""Declared operators alone: every dtype, every sample, every backend, and their gradients; one report."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import gradients
from .latency.measurement import merged
from .operators import OperatorSubject, operator_subjects
from .options import Options
from .record import BackendRecord, Report
from .steps import compare
from .supervision import Journal, NullJournal

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["joined", "validate_operators"]

# Latency is measured where users look first; every dtype and sample would take hours.
_TIMED = "float32"


def validate_operators(
    operators: Sequence[Operator],
    *,
    dtypes: Sequence[str] | None = None,
    options: Options | None = None,
    journal: Journal | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compare each operator with its reference in float64, on its declared samples, on every backend.

    Args:
        dtypes: None: all that are declared.
        options: see `validate`; sweeps and folders are for models, as the declaration brings the samples.
    """
    options, journal = options or Options(), journal or NullJournal()
    reports = []
    for op in operators:
        with tempfile.TemporaryDirectory(prefix="deployops-operator-") as folder:
            for subject in operator_subjects(op, dtypes, Path(folder), options.seed):
                if progress is not None:
                    progress(f"{subject.name}, {subject.dtype}")
                reports.append(_report(subject, options, journal))
        cells = gradients.check(op, dtypes, options.seed)
        for cell in cells:
            journal.cell(cell)
        reports.append(Report(op.name, "", tuple(cells), limits=options.limits))
    names = ", ".join(op.name for op in operators)
    title = names if len(operators) < 4 else f"{len(operators)} operators"
    return replace(joined(reports), model=title, onnx="the reference in float64")


def _report(subject: OperatorSubject, options: Options, journal: Journal) -> Report:
    for cell in subject.unchecked:
        journal.cell(cell)
    unchecked = Report(subject.name, "", subject.unchecked, notes=subject.notes, limits=options.limits)
    if subject.onnx is None or not subject.samples:
        return unchecked
    report = compare(
        subject.module,
        subject.onnx,
        samples=subject.samples,
        options=replace(
            options, sweep=None, folder=None, latency=options.latency and subject.dtype == _TIMED
        ),
        notes=subject.notes,
        title=subject.name,
        subject=subject.name,
        journal=journal,
    )
    # the file is a temporary one, and of no interest to anybody
    return replace(joined([unchecked, report]), files=())


def joined(reports: Sequence[Report]) -> Report:
    """One report of several under the same options: cells and findings one after the other, each backend once."""
    if not reports:
        return Report("nothing", "", ())
    first = max(reports, key=lambda r: len(r.environment))
    backends: dict[str, BackendRecord] = {}
    for record in (b for r in reports for b in r.backends):
        known = backends.get(record.name)
        if known is None or (known.missing and not record.missing):
            backends[record.name] = record
    latencies = [r.latency for r in reports if r.latency is not None]
    return replace(
        first,
        onnx=next((r.onnx for r in reports if r.onnx), ""),
        cells=tuple(c for r in reports for c in r.cells),
        backends=tuple(backends.values()),
        findings=tuple(dict.fromkeys(f for r in reports for f in r.findings)),
        bisections=tuple(b for r in reports for b in r.bisections),
        latency=merged(latencies) if latencies else None,
        files=tuple(dict.fromkeys(f for r in reports for f in r.files)),
        notes=tuple(dict.fromkeys(n for r in reports for n in r.notes)),
    )
