"""What is validated: a model in memory or a file of any kind, with the inputs of the user or of the ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..export.model_files.model_file import Kind, identify
from ..export.onnx_file.integrity import (
    EditedFileError,
    read_manifest,
    read_model,
    verify_digest,
    verify_structure,
)
from ..export.source import open_source, read_signature
from ..ort_ops import arguments
from ..symbolic import registry
from ..symbolic.graph_inspection.file_kind import FileKind, not_onnx
from ..symbolic.libraries import load_named
from .backends import ModelSource
from .given import existing
from .options import Device, Options, Sweep
from .parity.modes import parse
from .record import Finding, Limits, Report
from .reports.command import read_report
from .steps import compare
from .supervision import Heading, Journal, NullJournal, Running, supervised

__all__ = ["FileRequest", "compare_files", "validate"]

StrPath = str | os.PathLike[str]
Progress = Callable[[str], None]

_TARGET = f"{__name__}:compare_files"


def validate(
    model: Any,
    onnx: StrPath,
    inputs: Any = None,
    *,
    signature: Any = None,
    samples: Iterable[Any] | None = None,
    data: Mapping[str, Any] | None = None,
    inputs_dir: StrPath | None = None,
    factory: str | None = None,
    trust: bool = False,
    ops: Sequence[str] = (),
    torch_libraries: Sequence[str] = (),
    backends: Sequence[str] | None = None,
    require: Sequence[str] = (),
    outputs: Mapping[str, str] | Sequence[str] = (),
    sweep: Sweep | None = None,
    sizes: int = 3,
    seed: int = 0,
    atol: float | None = None,
    rtol: float | None = None,
    latency: bool = True,
    max_slowdown: float | None = None,
    min_speedup: float | None = None,
    max_regression: float | None = None,
    baseline: Report | StrPath | None = None,
    gpus: Sequence[str] = (),
    bisect: bool = False,
    threads: int | None = None,
    device: Device = "auto",
    libraries: Sequence[StrPath] = (),
    engine: StrPath | None = None,
    plugins: Sequence[StrPath] = (),
    allow_modified: bool = False,
    isolate: bool = True,
    supervise: bool = False,
    limit_s: float = 600.0,
    progress: Progress | None = None,
) -> Report:
    """Compare an ONNX file, on every backend there is, with the PyTorch original it was made from.

    ::

        report = validate(net, "net.onnx", (torch.randn(2, 3, 32, 32),))
        print(report.text())
        sys.exit(report.exit_code)

    The original runs in eval mode on the CPU (modes are restored), twice, and once more in float64: the
    budget of each output follows from its own rounding error (see `parity`). Every backend runs every sample, in a
    child process. The file's digest is verified first: a file that another tool has changed is refused, unless
    `allow_modified` says that it is meant.

    Args:
        model: a model file of any kind, an `nn.Module`, `ScriptModule`, `ExportedProgram`, or any callable on
            CPU tensors.
        onnx: the file. Its external data must lie next to it.
        inputs: example inputs (a tensor, a tuple of arguments, a dict of keyword arguments); or texts such as
            ``["x:float32[batch,3]"]``. Dims that the file leaves open are also tried at other sizes. None: the
            inputs recorded in the file at its export, else the examples stored in the model file.
        signature: an `export.signature.Signature`, instead of `inputs`.
        samples: `Sample` objects or (label, args[, kwargs]), instead of `inputs`.
        data: real samples by input name. inputs_dir: a folder of them, with expected outputs where there are any.
        factory, trust: as for `export_model`. ops, torch_libraries: run first: Python that declares operators, and
            C++ operator libraries of torch.
        backends: by name (`validation.backends.BACKENDS`), and all of them required: the exit code is 3 where one is not
            checked. None: those that serve the file as it is deployed, as far as they are there.
        require: backends that are required besides: to the default ones they add, and to those of `backends`.
        outputs: how an output is judged, ``{"labels": "argmax"}`` or ``["labels:argmax"]``: see `parity.modes`.
        sweep: None: the example and other sizes. "quick": other magnitudes too, and the declared maxima where that costs
            little. "full": the declared ranges, several seeds, every distribution and layout, every backend's every sample.
        sizes: how many sizes to try, the example's included. seed: of everything random here.
        atol, rtol: the user's own tolerance instead of the derived budget; the report says so.
        latency: measure the candidates in turns with the original.
        max_slowdown, min_speedup, max_regression, baseline: limits on latency: see `record.Limits`.
        gpus: names of GPUs ("H100 SXM") whose floor is predicted.
        bisect: look for the node where a failed output begins to differ.
        threads: of every side; None takes PyTorch's current number.
        device: where the original is timed: on the CPU, and on a GPU too where a backend on a GPU is timed beside it
            ("auto"), in any case ("cuda"), or never ("cpu"). Not checked on a GPU.
        libraries: custom-operator libraries of ONNX Runtime. engine, plugins: of TensorRT.
        allow_modified: validate a file of ours that another tool (an optimiser, a quantiser) has written again; the
            report has a finding of kind "modified file".
        isolate: run backends in child processes, so that a crash or a hang is a finding and not the end.
        supervise: run the original in one too; for model files. A crash of the original is then a finding.
        limit_s: seconds that one thing may take.
        progress: called with what is being done.

    Raises:
        UsageError, ModelFileError: arguments that make no sense, a file that is no ONNX model, or damaged.
    """
    arguments.expect_path("onnx", onnx)
    arguments.expect_mapping("data", data, "arrays by input name")
    arguments.expect("factory", factory, str, "a text, 'PKG.MOD:CALLABLE'")
    for name, number in (
        ("atol", atol),
        ("rtol", rtol),
        ("max_slowdown", max_slowdown),
        ("min_speedup", min_speedup),
        ("max_regression", max_regression),
        ("limit_s", limit_s),
    ):
        arguments.expect(name, number, (int, float), "a number")
    for name, count in (("seed", seed), ("sizes", sizes), ("threads", threads)):
        arguments.expect(name, count, int, "a number")
    for name, flag in (
        ("trust", trust),
        ("latency", latency),
        ("bisect", bisect),
        ("allow_modified", allow_modified),
        ("isolate", isolate),
        ("supervise", supervise),
    ):
        arguments.expect(name, flag, bool, "True or False")
    libraries, plugins = arguments.listed_texts(libraries), arguments.listed_texts(plugins)
    arguments.expect_sequence("libraries", libraries, (str, os.PathLike), "a list of paths")
    arguments.expect_sequence("plugins", plugins, (str, os.PathLike), "a list of paths")
    backends, require = arguments.listed_texts(backends), arguments.listed_texts(require)
    arguments.expect_sequence("backends", backends, str, "a list of names")
    arguments.expect_sequence("require", require, str, "a list of names")
    inputs = arguments.listed_texts(inputs)
    options = Options(
        backends=None if backends is None else tuple(backends),
        required=tuple(require),
        modes=_modes(outputs),
        limits=Limits(atol, rtol, max_slowdown, min_speedup, max_regression),
        sweep=sweep,
        sizes=sizes,
        seed=seed,
        folder=None if inputs_dir is None else Path(inputs_dir),
        latency=latency,
        baseline=baseline if baseline is None or isinstance(baseline, Report) else read_report(baseline),
        gpus=tuple(arguments.listed_texts(gpus)),
        bisect=bisect,
        threads=threads,
        libraries=tuple(map(Path, libraries)),
        engine=None if engine is None else Path(engine),
        plugins=tuple(map(Path, plugins)),
        isolate=isolate,
        limit_s=limit_s,
        device=device,
        allow_modified=allow_modified,
    )
    found = identify(existing(onnx))
    if found.kind is not Kind.ONNX:
        raise not_onnx(onnx, FileKind(found.kind.value, found.description))
    findings = _modified(onnx, allow_modified)
    if options.engine is not None and options.engine.is_file() and not findings:
        from .backends.engine_checks import expect_engine_of

        expect_engine_of(options.engine, Path(onnx))
    ops, torch_libraries = tuple(arguments.listed_texts(ops)), tuple(arguments.listed_texts(torch_libraries))
    if not isinstance(model, (str, os.PathLike)):
        if supervise:
            raise UsageError(
                "supervise is for model files: a model in memory cannot be taken to another process"
            )
        load_named(ops, torch_libraries)
        if inputs is None and signature is None and samples is None and inputs_dir is None:
            from ..export.inputs.signature import signature_from_specs

            recorded = _recorded_inputs(onnx)
            if not (recorded or data):
                raise UsageError("no inputs are given, and the ONNX file records none: give `inputs`")
            signature = signature_from_specs(recorded, data)
        return compare(
            model,
            onnx,
            inputs,
            signature=signature,
            samples=samples,
            options=options,
            findings=findings,
            journal=_journal(progress),
        )
    source = ModelSource(Path(model), factory, trust, ops, torch_libraries)
    request = FileRequest(source, Path(onnx), inputs, signature, samples, data, options, findings)
    if not supervise:
        return compare_files(_journal(progress), request)
    if signature is not None or samples is not None:
        raise UsageError("with supervise, give inputs or data: samples are not taken to another process")
    return supervised(
        _TARGET,
        request,
        Heading(source.path.name, Path(onnx).name, options.limits),
        limit_s=limit_s,
        progress=None if progress is None else lambda running: progress(running.text()),
    )


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A validation of a model file, as it is taken to the process that does it."""

    source: ModelSource
    onnx: Path
    inputs: Any = None
    signature: Any = None
    samples: Iterable[Any] | None = None
    data: Mapping[str, Any] | None = None
    options: Options = field(default_factory=Options)
    findings: tuple[Finding, ...] = ()  # what is known of the files before anything has run


def compare_files(journal: Journal, request: FileRequest) -> Report:
    """Open the model file and compare. Raises as `validate` does."""
    named, options = request.source, request.options
    registry.load_builtin()
    registry.load_entry_points()
    load_named(named.ops, named.libraries)
    journal.running(what="opening the model")
    source = open_source(named.path, trust=named.trust, factory=named.factory)
    signature, inputs = request.signature, request.inputs
    given = inputs is not None or signature is not None or request.samples is not None
    if not given and request.data is None and options.folder is not None:
        recorded = _recorded_inputs(request.onnx)
        if recorded:
            signature, inputs = read_signature(source, recorded), None
    elif not given or (request.data and signature is None and request.samples is None):
        specs = inputs or (None if request.data else _recorded_inputs(request.onnx)) or None
        signature, inputs = read_signature(source, specs, data=request.data), None
    return compare(
        source.callable(),
        request.onnx,
        inputs,
        signature=signature,
        samples=request.samples,
        options=options,
        source=named,
        findings=request.findings,
        notes=[str(n) for n in source.notes],
        title=named.path.name,
        journal=journal,
    )


def _modified(onnx: StrPath, allowed: bool) -> tuple[Finding, ...]:
    """A finding where the file is not what was exported, and that is allowed. Raises ModelFileError where it is not."""
    try:
        verify_digest(onnx)
    except EditedFileError as error:
        if not allowed:
            raise EditedFileError(
                f"{error} Where the change is meant, --allow-modified (allow_modified=True) validates the file as it is, and "
                "the report says so."
            ) from None
        verify_structure(onnx)
        text = (
            "this is not the file that was exported: its digest does not hold, and --allow-modified was given"
        )
        advice = (
            "compare the SHA-256 in this report with that of the file you deploy: only this one was validated"
        )
        return (Finding("modified file", "note", text, where=Path(onnx).name, advice=advice),)
    return ()


def _modes(outputs: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    if isinstance(outputs, Mapping):
        outputs = [f"{name}:{mode}" for name, mode in outputs.items()]
    found = [parse(text) for text in arguments.listed_texts(outputs)]
    names = [name for name, _ in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"--output {twice[0]}: given twice")
    return dict(found)


class _Told(NullJournal):
    """A journal that only says what is being done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def running(self, sample: str = "", backend: str = "", what: str = "", subject: str = "") -> None:
        self._progress(Running(sample, backend, what, subject).text())


def _journal(progress: Progress | None) -> Journal:
    return NullJournal() if progress is None else _Told(progress)


def _recorded_inputs(onnx: StrPath) -> list[str]:
    """The input specs that `export_model` wrote into the file. Raises ModelFileError for a damaged manifest."""
    specs = read_manifest(read_model(onnx), onnx).get("inputs", [])
    return [s for s in specs if isinstance(s, str)] if isinstance(specs, list) else []
