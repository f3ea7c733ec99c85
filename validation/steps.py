"""The steps of a validation: run the original, run the candidate, compare, time, report."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..errors import ModelFileError, NotCheckedError, UsageError
from ..export.buffers import buffers_kept
from ..ort_ops.diagnosis import parsed
from ..ort_ops.engine import EngineError
from .backends import Sample
from .backends.feeding import FeedError
from .backends.onnxruntime import OnnxRuntime
from .backends.torch import described, evaluating
from .diagnosis.variants import followed_variant
from .inputs.samples import named_inputs, resolve
from .latency.interleaved import interleaved, timed, timing
from .latency.record import LatencyRecord, Ratio
from .original import Expected, Original, OriginalFailed, callable_of
from .parity.compare import compare_output
from .precision import in_the_files_precision
from .record import BackendRecord, Cell, Limits, Report, Verdict

__all__ = ["compare"]

Array = npt.NDArray[Any]
StrPath = str | os.PathLike[str]

DEPLOYED = "onnxruntime"
AS_WRITTEN = "onnxruntime, optimiser off"


def compare(
    model: Any,
    onnx: StrPath,
    inputs: Any = None,
    *,
    signature: Any = None,
    samples: Iterable[Any] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    latency: bool = True,
    seed: int = 0,
    sizes: int = 3,
    threads: int | None = None,
    libraries: Sequence[StrPath] = (),
    isolate: bool = True,
    notes: Sequence[str] = (),
    title: str = "",
) -> Report:
    """Compare an ONNX file with a model in memory: see `validate`. `notes` go into the report, as does `title`."""
    import torch

    path = _existing(onnx)
    for name, value in (("atol", atol), ("rtol", rtol)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"{name} must be a finite number of at least 0, got {value}")
    graph = parsed(path).graph
    original = Original(callable_of(model), atol, rtol, seed)
    if inputs is None and signature is None and samples is None:
        inputs = _stored_inputs(model)
    found = resolve(original.model, graph, inputs, signature, samples, sizes, seed)
    count = torch.get_num_threads() if threads is None else threads
    if count < 1:
        raise UsageError(f"threads must be at least 1, got {count}")

    @contextmanager
    def opened(optimize: bool) -> Iterator[OnnxRuntime | Exception]:
        """The backend, closed afterwards, or why it cannot be opened."""
        try:
            backend = OnnxRuntime(
                path, threads=count, optimize=optimize, libraries=libraries, isolate=isolate
            )
        except (ModelFileError, NotCheckedError, EngineError) as error:
            yield error
            return
        with closing(backend):
            yield backend

    with _threads(count), evaluating(original.model), buffers_kept(original.model), torch.no_grad():
        original, found = in_the_files_precision(original, graph, found)
        cells, taken, remarks = _compare(original, opened, found, count, latency)
    return Report(
        model=title or _title(model),
        onnx=path.name,
        cells=tuple(cells),
        backends=(BackendRecord(DEPLOYED, required=True),),
        limits=Limits(atol, rtol),
        latency=taken,
        environment=_environment(count, seed),
        notes=(*notes, *remarks),
    )


def _compare(
    original: Original,
    opened: Callable[[bool], AbstractContextManager[OnnxRuntime | Exception]],
    samples: list[Sample],
    threads: int,
    latency: bool,
) -> tuple[list[Cell], LatencyRecord | None, list[str]]:
    cells: list[Cell] = []
    taken: LatencyRecord | None = None
    compared = False
    with opened(True) as deployed:
        for sample in samples:
            inputs = named_inputs(original.source or original.model, sample)
            try:
                expected = original.expected(sample)
            except OriginalFailed as error:
                reason = f"the original does not run this sample: {error}"
                cells.append(Cell(sample.label, "*", "pytorch", "not checked", reason))
                continue
            now = _run(deployed, DEPLOYED, sample, inputs, expected)
            cells += now
            if isinstance(deployed, OnnxRuntime) and any(c.verdict == "failed" and c.metrics for c in now):
                variant = followed_variant(original, sample, deployed.run(inputs), expected)
                if variant is not None:
                    original.notes[variant] = None
            if compared:
                continue
            compared = True
            if latency and isinstance(deployed, OnnxRuntime) and all(c.output != "*" for c in now):
                taken = _time(original, deployed, sample, threads)
            # closed again at once: two sessions hold the weights twice
            with opened(False) as as_written:
                cells += _run(as_written, AS_WRITTEN, sample, inputs, expected)
        notes = deployed.notes if isinstance(deployed, OnnxRuntime) else {}
    return cells, taken, [*original.notes, *notes]


def _run(
    backend: OnnxRuntime | Exception,
    name: str,
    sample: Sample,
    inputs: list[tuple[str, Any]],
    expected: list[Expected],
) -> list[Cell]:
    def whole(verdict: Verdict, reason: str) -> list[Cell]:
        return [Cell(sample.label, "*", name, verdict, reason)]

    if isinstance(backend, NotCheckedError):
        return whole("not checked", str(backend))
    if isinstance(backend, Exception):
        return whole("failed", str(backend))
    try:
        got = backend.run(inputs)
    except (EngineError, FeedError) as error:
        return whole("failed", f"the ONNX model fails here: {error}")
    if len(got) < len(expected):
        tensors = [e for e in expected if not e.number]
        if len(got) == len(tensors):
            backend.notes["results that are Python numbers are no outputs of the ONNX model"] = None
            expected = tensors
    if len(got) != len(expected):
        return whole("failed", f"the ONNX model has {len(got)} outputs, the original {len(expected)}")
    return [
        compare_output(sample.label, output, name, g, e)
        for output, g, e in zip(backend.outputs, got, expected, strict=True)
    ]


def _time(original: Original, backend: OnnxRuntime, sample: Sample, threads: int) -> LatencyRecord | None:
    """On the inputs that the backend was given last, those of `sample`."""
    try:
        with buffers_kept(original.model):
            ours, theirs = interleaved(timed(original.call(sample)), backend.time)
    except Exception as error:
        original.notes[f"latency not measured: {described(error)}"] = None
        return None
    sides = (
        timing("pytorch", sample.label, ours),
        timing(backend.name, sample.label, theirs, backend.load_ms),
    )
    ratio = sides[1].median / sides[0].median if sides[0].median else math.nan
    return LatencyRecord(threads, sides, (Ratio(backend.name, "pytorch", sample.label, ratio, ratio, ratio),))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _existing(onnx: StrPath) -> Path:
    path = Path(onnx)
    if not path.is_file():
        raise UsageError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    return path


def _environment(threads: int, seed: int) -> dict[str, Any]:
    import numpy
    import torch

    found: dict[str, Any] = {
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": threads,
        "seed": seed,
    }
    try:
        import onnxruntime

        found["onnxruntime"] = onnxruntime.__version__
    except ImportError:
        found["onnxruntime"] = None
    return found


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
