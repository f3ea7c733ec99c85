"""What every backend is to the rest of validation: a kind that can say why it is missing, and a runner it opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from ...ort_ops.engine import EngineError
from .endings import EndingKind

if TYPE_CHECKING:
    from ..record import Finding

__all__ = ["GaveUp", "Kind", "ModelSource", "ReopenError", "Request", "Runner", "RunnerFault", "Sample"]

Array = npt.NDArray[Any]

LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of the model.

    Attributes:
        label: what the report calls it, such as ``"batch=3"``.
        args, kwargs: as the model's forward takes them.
        names: names of the flattened tensors of args, then kwargs, where the caller knows them.
        golden: outputs that somebody vouches for, by output name (`inputs/golden.py`).
    """

    label: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    golden: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model file, and what it takes to open it again in another process: see `export_model`.

    Attributes:
        ops: modules and files that declare operators (``--ops``); they are run.
        libraries: C++ operator libraries of torch (``--load-library``); they are run.
    """

    path: Path
    factory: str | None = None
    trust: bool = False
    ops: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run, and within which limits: the same for every backend of a validation.

    Attributes:
        onnx: the exported file; None where only torch runs.
        source: the original as a file, or `model`: the original in memory.
        computes_in: the original's own dtype ("float32") where the samples have the file's, else empty: floating
            inputs are cast to it before the original is called.
        libraries: the user's custom-operator libraries for ONNX Runtime.
        threads: of every pool that computes; None: the cores that this process may use.
        engine: a serialized TensorRT engine. `plugins`: libraries of TensorRT plugins that it needs.
        limit_s: seconds for each answer of a child process.
        memory: bytes that a child process may allocate; None: no limit.
        isolate: run in a child process, so that a crash or a hang is a finding and not the end.
    """

    onnx: Path | None = None
    source: ModelSource | None = None
    model: Any = None
    computes_in: str = ""
    libraries: tuple[Path, ...] = ()
    threads: int | None = None
    engine: Path | None = None
    plugins: tuple[Path, ...] = ()
    limit_s: float = LIMIT_S
    memory: int | None = None
    isolate: bool = True


class Runner(Protocol):
    """An opened backend. Close it when done.

    Attributes:
        outputs: names of the outputs; of a torch runner only known after the first run.
        load_ms: time to open, milliseconds.
        notes: what the reader of the report should know; no duplicates.
        versions: for `BackendRecord.versions`.
        pools: threads of every pool that computes, by name, for `cores.thread_findings`.
        files: what was loaded besides the model: libraries, an engine.
    """

    name: str
    load_ms: float
    notes: dict[str, None]
    versions: dict[str, str]
    pools: dict[str, int]
    files: tuple[Path, ...]

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def run(self, inputs: Sequence[tuple[str, Any]], sample: Sample | None = None) -> list[Array]:
        """Outputs in graph order, from (name, tensor or number) pairs in the order of the call.

        A torch runner takes the call's structure from `sample`; without one, the values by position.

        Raises:
            RunnerFault: the process crashed, hung, or ran out of memory. GaveUp: it did so before, twice in a row.
            EngineError: the runtime refused. FeedError, UsageError: an input that does not fit.
            NotCheckedError: nothing here can run this sample (outside an engine's profiles).
        """
        ...

    def time(self) -> float:
        """Milliseconds of one more run on the inputs of the last one, by the clock next to the runtime."""
        ...

    def profile(self, runs: int = 5) -> str:
        """A trace of more runs on the inputs of the last one, as the runtime writes it (JSON text).

        `latency.runtime_trace` and `latency.torch_profile` read it. Raises NotCheckedError where there is none.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """A backend that may or may not be usable here.

    Attributes:
        about: what it is, in one line.
        missing: why it cannot be used for a request on this machine; empty where it can.
        open: raises NotCheckedError, ModelFileError, UsageError, EngineError, RunnerFault.
    """

    name: str
    about: str
    missing: Callable[[Request], str]
    open: Callable[[Request], Runner]


class RunnerFault(EngineError):
    """A backend's process crashed, hung or ran out of memory. `log`: its last lines."""

    def __init__(self, kind: EndingKind, text: str, log: str = "") -> None:
        super().__init__(text)
        self.kind: EndingKind = kind
        self.log = log

    def finding(self, backend: str, sample: str) -> Finding:
        """For the report: a backend that does this to a sample has failed it."""
        from ..record import Finding

        return Finding(
            self.kind,
            "failed",
            f"{backend}, {sample}: {self}",
            where=f"{backend}, {sample}",
            advice=_ADVICE[self.kind],
            log=self.log,
        )


class ReopenError(EngineError):
    """A model in memory that another process cannot open: its classes are not importable there, say."""


class GaveUp(EngineError):
    """Not run: the backend's process ended on two samples in a row, and is not started again."""


_ADVICE: dict[EndingKind, str] = {
    "crash": "run this backend alone on this sample under a debugger or a sanitizer; the log has its last lines",
    "hang": "run it alone with a debugger attached; where it is only slow, give it more time",
    "out of memory": "a smaller sample, more memory, or a higher memory limit",
}
