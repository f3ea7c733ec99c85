"""The candidates of the matrix against the original, timed in turns; then the floors and where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DeployOpsError, UsageError
from ..export.buffers import buffers_kept
from ..ort_ops.arrays import to_array
from ..ort_ops.engine import EngineError
from ..ort_ops.library_manifest import LibraryManifest, manifest_path, read_manifest
from .backends import Request, Runner, RunnerFault
from .backends.torch import described
from .choice import Choice
from .expectations import Expectation
from .gpu_timing import devices_and_references, not_timed_on_gpu, original_on_gpu
from .latency.analysis import explained, values_of
from .latency.cuda import Clocks, Cuda
from .latency.device import timed
from .latency.fingerprint import fingerprint, load_note
from .latency.gpus import GPUS, gpu
from .latency.limits import judge, unjudged
from .latency.machine import Machine, this_machine
from .latency.measurement import measure, merged
from .latency.record import LatencyRecord
from .latency.surroundings import Contention, Observer
from .latency.torch_on_gpu import OnGpu
from .latency.torch_profile import traced
from .matrix import Column
from .options import Options
from .original import Original
from .record import FAILED, Finding
from .reports.rejudge import LIMITS
from .supervision import Journal
from .timed_samples import largest, of_each_shape

if TYPE_CHECKING:
    import onnx

__all__ = ["timed_candidates", "unmet"]

# It shows faults, and is no way to deploy.
_UNTIMED = ("onnxruntime, optimiser off", "pytorch")
_MOST_SAMPLES = 3  # shapes of a full sweep that are timed


def timed_candidates(
    original: Original,
    model: onnx.ModelProto,
    expectations: Sequence[Expectation],
    columns: Sequence[Column],
    choices: Sequence[Choice],
    request: Request,
    options: Options,
    journal: Journal,
    subject: str = "",
) -> tuple[LatencyRecord | None, list[str], list[Finding]]:
    """The record, judged by the user's limits; notes, and findings: a backend that ends where it is timed has failed.

    The record is None where there is nothing to time.

    A backend is timed on a sample that it ran: the first, and in a full sweep other shapes; of an operator alone
    (`subject`) the one with the most elements, because the first ones declared are often tiny or empty.
    """
    disturbed = load_note()  # before our own work counts as load
    gpus = [_named(name) for name in options.gpus]
    notes: list[str] = []
    findings: list[Finding] = []
    records: list[LatencyRecord] = []
    machine: Machine | None = None
    samples = of_each_shape(expectations, _MOST_SAMPLES if options.sweep == "full" else 1)
    if subject:
        samples, remark = largest(expectations, subject)
        notes += remark
    for expectation in samples:
        label = expectation.sample.label
        names = [
            choice
            for choice, column in zip(choices, columns, strict=True)
            if choice.kind.name not in _UNTIMED
            and not column.record.missing
            and all(c.output != "*" or c.verdict != FAILED for c in column.cells if c.sample == label)
            and any(c.sample == label for c in column.cells)
        ]
        with ExitStack() as stack:
            runners: dict[str, Runner] = {}
            for choice in names:
                journal.running(label, choice.kind.name, "opened to be timed")
                try:
                    runner = choice.kind.open(request)
                    stack.callback(runner.close)
                    runner.run(expectation.inputs, expectation.sample)
                except (DeployOpsError, EngineError) as error:
                    notes.append(f"{choice.kind.name} is not timed: {error}")
                    if isinstance(error, RunnerFault):
                        findings.append(error.finding(choice.kind.name, f"{label}, run again to be timed"))
                    continue
                runners[choice.kind.name] = runner
            on_gpu = original_on_gpu(original, expectation, runners, options.device, journal, notes)
            journal.running(label, "", "timing")
            faults: list[Finding] = []
            calls = {name: _told(runner, name, label, faults) for name, runner in runners.items()}
            try:
                record = _measured(original, expectation, runners, calls, request, on_gpu)
            except Exception as error:  # the original's or a runtime's own
                notes.append(f"latency at {label} is not measured: {described(error)}")
                continue
            finally:
                findings += faults
            if machine is None:
                journal.running(label, "", "measuring this machine's limits")
                machine = this_machine(record.threads)
            records.append(
                _analysed(record, original, expectation, model, runners, machine, request, journal, gpus)
            )
    if not records:
        return None, notes, findings
    record = merged(records)
    if disturbed:
        record = replace(record, notes=(*record.notes, disturbed))
    baseline = options.baseline.latency if options.baseline is not None else None
    if options.baseline is not None and baseline is None:
        notes.append("the baseline holds no latency, so there is nothing to compare with")
    record = judge(record, options.limits, baseline, seed=options.seed)
    journal.latency(record)
    return record, notes, findings


def _told(runner: Runner, name: str, label: str, faults: list[Finding]) -> Callable[[], float]:
    """One more run, timed; where it ends the process, that is a finding beside the number that is missing."""

    def once() -> float:
        try:
            return runner.time()
        except RunnerFault as error:
            faults.append(error.finding(name, f"{label}, run again and again to be timed"))
            raise

    return once


def _named(name: str) -> Machine:
    found = gpu(name)
    if found is None:
        raise UsageError(f"no figures of a GPU {name!r} are known; known are {', '.join(GPUS)}")
    return found


def _measured(
    original: Original,
    expectation: Expectation,
    runners: dict[str, Runner],
    calls: Mapping[str, Callable[[], float]],
    request: Request,
    on_gpu: tuple[Cuda, OnGpu] | None,
) -> LatencyRecord:
    assert request.threads is not None
    versions = {k: v for runner in runners.values() for k, v in runner.versions.items()}
    import torch

    pools = {name: max(runner.pools.values(), default=request.threads) for name, runner in runners.items()}
    devices, references = devices_and_references(runners, on_gpu)
    observers: list[Observer] = [Contention()]
    there: dict[str, Callable[[], float]] = {}
    if on_gpu is not None:
        there = on_gpu[1].candidates
        observers.append(Clocks(on_gpu[0]))
    with buffers_kept(original.model):
        return measure(
            {
                "pytorch": timed(original.call(expectation.sample)),
                **calls,
                **there,
            },
            expectation.sample.label,
            threads=request.threads,
            references=references,
            loads={name: runner.load_ms for name, runner in runners.items()},
            pools={"pytorch": torch.get_num_threads(), **pools},
            devices=devices,
            fingerprint=fingerprint(request.threads, versions),
            observers=observers,
        )


def _analysed(
    record: LatencyRecord,
    original: Original,
    expectation: Expectation,
    model: onnx.ModelProto,
    runners: dict[str, Runner],
    machine: Machine,
    request: Request,
    journal: Journal,
    gpus: Sequence[Machine],
) -> LatencyRecord:
    label = expectation.sample.label
    notes = []
    traces: dict[str, dict[str, str]] = {"runtime": {}, "torch": {}}
    for name, runner in runners.items():
        journal.running(label, name, "profiling")
        try:
            traces["torch" if name.startswith("torch") else "runtime"][name] = runner.profile()
        except (DeployOpsError, EngineError, AttributeError) as error:
            notes.append(f"no profile of {name} at {label}: {described(error)}")
    journal.running(label, "pytorch", "profiling")
    try:
        with buffers_kept(original.model):
            traces["torch"]["pytorch"] = traced(
                original.source or original.model, original.call(expectation.sample)
            )
    except Exception as error:  # the original's own
        notes.append(f"no profile of pytorch at {label}: {described(error)}")
    journal.running(label, "", "floors")
    record = explained(
        record,
        label,
        model,
        values_of({n: to_array(v) if hasattr(v, "detach") else v for n, v in expectation.inputs}),
        machine,
        runtime_traces=traces["runtime"],
        torch_traces=traces["torch"],
        libraries=_manifests(request.libraries),
        gpus=gpus,
    )
    return replace(record, notes=(*record.notes, *notes))


def _manifests(libraries: Sequence[Path]) -> list[LibraryManifest]:
    return [read_manifest(path) for path in libraries if manifest_path(path).is_file()]


def unmet(latency: LatencyRecord | None, options: Options) -> list[Finding]:
    """Limits that nothing was held against."""
    baseline = options.baseline.latency if options.baseline is not None else None
    why = unjudged(latency, options.limits, baseline)
    advice = "measure latency, with a backend beside the original"
    found = [Finding(LIMITS, "not checked", why, advice=advice)] if why else []
    if elsewhere := not_timed_on_gpu(latency, options.device):
        advice = "run it on a machine with an NVIDIA GPU and a torch for CUDA, or leave --device cuda out"
        found.append(Finding("device", "not checked", elsewhere, where="pytorch", advice=advice))
    return found
