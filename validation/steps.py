"""The steps of a validation: run the original, run every backend, explain what differs, time, report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from ..export.buffers import buffers_kept
from ..ort_ops.coverage import has_shipped_operators
from ..ort_ops.diagnosis import parsed
from .backends import ModelSource, Request
from .backends.cores import thread_findings, torch_threads
from .backends.torch import evaluating
from .choice import ENGINES, choose
from .diagnosis import before, of_the_original
from .diagnosis.training_mode import modules_in_training
from .expectations import Expectations
from .explanations import explained
from .given import existing, stored_inputs, title_of, unnamed_dims
from .inputs.samples import resolve
from .matrix import expect_known_outputs
from .options import Options
from .original import Original, callable_of
from .precision import in_the_engines_precision, in_the_files_precision
from .provenance import environment, file_record
from .record import NOT_CHECKED, Finding, Report
from .reports.rejudge import of_another
from .sides import column_of, run_original, runs_once
from .supervision import Heading, Journal, NullJournal, Planned
from .timing import timed_candidates, unmet

__all__ = ["compare"]

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
        inputs = stored_inputs(model)
    remarks: dict[str, None] = dict.fromkeys((*notes, *unnamed_dims(graph)))
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
        title or title_of(model),
        path.name,
        options.limits,
        environment(count, options.seed, options.sweep, options.modes),
        tuple(file_record(p) for p in (path, *([source.path] if source is not None else []))),
    )
    journal.heading(heading)
    for finding in findings:
        journal.finding(finding)
    # as the user gave it, not in eval mode yet; what a factory has built for a checkpoint is always in training mode
    built = source is not None and source.factory is not None
    training = [] if built else modules_in_training(original.model)
    with torch_threads(count), evaluating(original.model), buffers_kept(original.model), torch.no_grad():
        findings = [
            *findings,
            *before(None if built else original.model, graph, parsed_model.functions, training),
        ]
        given, asked = original, found
        original, found = in_the_files_precision(original, parsed_model, found)
        request = Request(
            onnx=path,
            source=source,
            model=original.source or original.model,
            computes_in=original.computes_in,
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
                for s in (found[:1] if runs_once(c, options) else found)
            ]
        )
        with Expectations() as expectations, Expectations() as of_engine:
            names = [o.name for o in graph.output]
            cells = run_original(original, found, names, expectations, journal, subject)
            findings += of_the_original(original, ((e.sample, e.outputs) for e in expectations.all()))
            narrow = None
            judged_apart = None
            if any(c.kind.name in ENGINES and not (c.skipped or c.kind.missing(request)) for c in choices):
                narrow = in_the_engines_precision(given, parsed_model, asked, options.engine)
            if narrow is not None:
                of_narrow = run_original(narrow, asked, names, of_engine, journal, subject)
                # what somebody vouches for was held against the original above
                cells += [c for c in of_narrow if c.verdict == NOT_CHECKED and c not in cells]
                remarks |= narrow.notes
                judged_apart = narrow, of_engine.all()
            columns = [
                column_of(
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
            findings += unmet(latency, options)
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
