"""The steps of a validation: run the original, run every backend, explain what differs, time, report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..export.buffers import buffers_kept
from ..ort_ops.coverage import has_shipped_operators
from ..ort_ops.diagnosis import parsed
from .backends import ModelSource, Request, Sample
from .backends.cores import thread_findings
from .backends.torch import evaluating
from .choice import AS_WRITTEN, ENGINES, Choice, choose
from .diagnosis import before, of_the_original
from .expectations import Expectation, Expectations
from .explanations import explained
from .gpu_timing import not_timed_on_gpu
from .inputs.golden import golden_cells
from .inputs.samples import named_inputs, resolve
from .latency.limits import unjudged
from .latency.record import LatencyRecord
from .matrix import Column, expect_known_outputs, run_backend
from .options import Options
from .original import Original, OriginalFailed, callable_of
from .precision import in_the_engines_precision, in_the_files_precision
from .provenance import environment, file_record
from .record import NOT_CHECKED, BackendRecord, Cell, Finding, Report
from .reports.rejudge import LIMITS, of_another
from .supervision import Heading, Journal, NullJournal, Planned
from .timing import timed_candidates

__all__ = ["compare", "existing"]

StrPath = str | os.PathLike[str]


def compare(
    model: Any,
    onnx: StrPath,
    inputs: Any = None,
    *,
    signature: Any = None,
    samples: Iterable[Any] | None = None,
    options: Options | None = None,
    source: ModelSource | None = None,
    findings: Sequence[Finding] = (),
    notes: Sequence[str] = (),
    title: str = "",
    subject: str = "",
    journal: Journal | None = None,
) -> Report:
    """Compare an ONNX file with a model in memory: see `validate`.

    Args:
        source: the file that `model` was opened from, so that other processes can open it too.
        findings: what is known of the files already. notes, title: of the report.
        subject: the operator that the model consists of.
        journal: is told what is found as it is found.
    """
    import torch

    options = options or Options()
    journal = journal or NullJournal()
    path = existing(onnx)
    parsed_model = parsed(path)
    graph = parsed_model.graph
    choices = choose(options, shipped=has_shipped_operators(parsed_model))
    original = Original(callable_of(model), options.limits.atol, options.limits.rtol, options.seed)
    if inputs is None and signature is None and samples is None and options.folder is None:
        inputs = _stored_inputs(model)
    remarks: dict[str, None] = dict.fromkeys((*notes, *_unnamed_dims(graph)))
    found = resolve(
        original.model,
        graph,
        inputs,
        signature,
        samples,
        options.sizes,
        options.seed,
        options.sweep,
        options.folder,
        remarks,
        parsed_model,
    )
    count = torch.get_num_threads() if options.threads is None else options.threads
    heading = Heading(
        title or _title(model),
        path.name,
        options.limits,
        environment(count, options.seed, options.sweep),
        tuple(file_record(p) for p in (path, *([source.path] if source is not None else []))),
    )
    journal.heading(heading)
    for finding in findings:
        journal.finding(finding)
    # as the user gave it, not in eval mode yet; what a factory has built for a checkpoint is always in training mode
    built = source is not None and source.factory is not None
    findings = [
        *findings,
        *before(None if built else original.model, graph, found, parsed_model.functions),
    ]
    with _threads(count), evaluating(original.model), buffers_kept(original.model), torch.no_grad():
        given, asked = original, found
        original, found = in_the_files_precision(original, parsed_model, found)
        request = Request(
            onnx=path,
            source=source,
            model=original.source or original.model,
            computes_in=_computes_in(original),
            libraries=options.libraries,
            threads=count,
            engine=options.engine,
            plugins=options.plugins,
            limit_s=options.limit_s,
            isolate=options.isolate,
        )
        usable = [c for c in choices if not c.skipped]
        journal.plan(
            [
                Planned(s.label, c.kind.name, subject)
                for c in usable
                for s in (found[:1] if _once(c, options) else found)
            ]
        )
        with Expectations() as expectations, Expectations() as of_engine:
            names = [o.name for o in graph.output]
            cells = _run_original(original, found, names, expectations, journal, subject)
            findings += of_the_original(original, ((e.sample, e.outputs) for e in expectations.all()))
            narrow = None
            judged_apart = None
            if any(c.kind.name in ENGINES and not (c.skipped or c.kind.missing(request)) for c in choices):
                narrow = in_the_engines_precision(given, parsed_model, asked, options.engine)
            if narrow is not None:
                of_narrow = _run_original(narrow, asked, names, of_engine, journal, subject)
                # what somebody vouches for was held against the original above
                cells += [c for c in of_narrow if c.verdict == NOT_CHECKED and c not in cells]
                remarks |= narrow.notes
                judged_apart = narrow, of_engine.all()
            columns = [
                _column(
                    c,
                    request,
                    of_engine if judged_apart is not None and c.kind.name in ENGINES else expectations,
                    options,
                    journal,
                    subject,
                )
                for c in choices
            ]
            expect_known_outputs(options.modes, columns)
            explanation = explained(
                original,
                path,
                graph,
                expectations.all(),
                columns,
                choices,
                request,
                options,
                journal,
                judged_apart,
            )
            latency = None
            if options.latency:
                latency, more, ended = timed_candidates(
                    original,
                    parsed_model,
                    expectations.all(),
                    columns,
                    choices,
                    request,
                    options,
                    journal,
                    subject,
                )
                remarks |= dict.fromkeys(more)
                findings += ended
            findings += _unmet(latency, options)
    if options.baseline is not None:
        findings += of_another(options.baseline, heading.model, heading.onnx)
    findings += [
        *(f for column in columns for f in column.findings),
        *explanation.findings,
        *thread_findings({c.record.name: c.pools for c in columns if c.pools}),
    ]
    return Report(
        model=heading.model,
        onnx=heading.onnx,
        cells=(*cells, *(c for column in columns for c in column.cells)),
        backends=tuple(column.record for column in columns),
        findings=tuple(dict.fromkeys(findings)),
        bisections=tuple(explanation.bisections),
        latency=latency,
        limits=options.limits,
        files=heading.files,
        environment=heading.environment,
        notes=tuple(remarks | original.notes | {n: None for column in columns for n in column.notes}),
    )


def _run_original(
    original: Original,
    samples: Sequence[Sample],
    names: Sequence[str],
    into: Expectations,
    journal: Journal,
    subject: str,
) -> list[Cell]:
    """What the original says of each sample, kept; a cell for each that it does not run, or that somebody vouches for."""
    cells = []
    for sample in samples:
        journal.running(sample.label, "pytorch", subject=subject)
        inputs = named_inputs(original.source or original.model, sample)
        try:
            outputs = original.expected(sample)
        except OriginalFailed as error:
            reason = f"the original does not run this sample: {error}"
            cells.append(Cell(sample.label, "*", "pytorch", NOT_CHECKED, reason, subject=subject))
            continue
        into.add(sample, inputs, outputs)
        if sample.golden:
            tensors = [e for e in outputs if len(outputs) == len(names) or not e.number]
            cells += golden_cells(sample, names, [e.array for e in tensors], tensors, "pytorch")
    for cell in cells:
        journal.cell(cell)
    return cells


def _column(
    choice: Choice,
    request: Request,
    expectations: Expectations,
    options: Options,
    journal: Journal,
    subject: str,
) -> Column:
    if choice.skipped:
        column = Column(BackendRecord(choice.kind.name, choice.required, choice.skipped))
    else:
        column = run_backend(
            choice.kind,
            request,
            _for(choice, expectations, options),
            required=choice.required,
            modes=options.modes,
            journal=journal,
            subject=subject,
        )
    journal.backend(column.record)
    return column


def _unmet(latency: LatencyRecord | None, options: Options) -> list[Finding]:
    """Limits that nothing was held against."""
    baseline = options.baseline.latency if options.baseline is not None else None
    why = unjudged(latency, options.limits, baseline)
    advice = "measure latency, with a backend beside the original"
    found = [Finding(LIMITS, "not checked", why, advice=advice)] if why else []
    if elsewhere := not_timed_on_gpu(latency, options.device):
        advice = "run it on a machine with an NVIDIA GPU and a torch for CUDA, or leave --device cuda out"
        found.append(Finding("device", "not checked", elsewhere, where="pytorch", advice=advice))
    return found


def _for(choice: Choice, expectations: Expectations, options: Options) -> list[Expectation]:
    """What the optimiser hides it hides at any size: once is enough, but in a full sweep."""
    every = expectations.all()
    if not _once(choice, options):
        return every
    # an empty sample shows nothing
    return [e for e in every if all(o.array.size for o in e.outputs)][:1] or every[:1]


def _once(choice: Choice, options: Options) -> bool:
    return choice.kind.name == AS_WRITTEN and options.sweep != "full"


def _unnamed_dims(graph: Any) -> list[str]:
    """What the open dims are whose names a tool made up: `torch.export` keeps names only where the user gave some."""
    found = {
        dim.dim_param: f"dimension {axis} of the input {value.name}"
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param == f"{value.name}_dim_{axis}"
    }
    if not found:
        return []
    listed = ", ".join(f"{name} is {what}" for name, what in found.items())
    return [f"{listed}: the model file has no name for it. To name it, give `--input` to the export"]


def _computes_in(original: Original) -> str:
    """The original's own dtype, where the file has another."""
    return str(original.own).removeprefix("torch.") if original.source is not None else ""


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def existing(onnx: StrPath) -> Path:
    path = Path(onnx)
    if not path.is_file():
        raise UsageError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    return path


def _stored_inputs(model: Any) -> Any:
    """The example inputs that a model file brought along."""
    args, kwargs = getattr(model, "example_args", None), getattr(model, "example_kwargs", None)
    if args and kwargs:
        raise UsageError("the file's example inputs are positional and by keyword: give them as samples")
    return args or kwargs or None


def _title(model: Any) -> str:
    file = getattr(model, "file", None)
    if file is not None and hasattr(model, "example_args"):
        return str(getattr(file, "path", file))
    if type(model).__name__ in ("ExportedProgram", "GraphModule"):
        return "a torch.export program"
    inner = getattr(model, "original_name", None)  # a ScriptModule
    return str(inner or getattr(model, "__name__", type(model).__name__))
