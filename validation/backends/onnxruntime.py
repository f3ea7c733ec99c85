"""ONNX Runtime on the CPU as a backend, in a child process unless told otherwise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ...ort_ops.engine import Engine
from .feeding import feed
from .isolated import IsolatedEngine

__all__ = ["OnnxRuntime"]

Array = npt.NDArray[Any]


class OnnxRuntime:
    """A session and what was learned about feeding it. Close it when done.

    Attributes:
        load_ms: time to open the session, milliseconds.
        outputs: names of the graph's outputs, in order.
        notes: what the reader of the report should know; no duplicates.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None,
        optimize: bool,
        libraries: Sequence[str | os.PathLike[str]] = (),
        isolate: bool = True,
        limit_s: float = 600.0,
    ) -> None:
        self.name = "onnxruntime" if optimize else "onnxruntime, optimiser off"
        named = [str(Path(library).resolve()) for library in libraries]
        self._engine: Engine | IsolatedEngine
        if isolate:
            self._engine = IsolatedEngine(
                path, threads=threads, optimize=optimize, libraries=named, limit_s=limit_s
            )
        else:
            self._engine = Engine(path, threads=threads, optimize=optimize, libraries=named)
        self.load_ms = self._engine.load_ms
        self.outputs = tuple(name for name, _ in self._engine.outputs)
        self.notes: dict[str, None] = {}

    def run(self, inputs: Sequence[tuple[str, Any]]) -> list[Array]:
        """Outputs in graph order. Raises UsageError, FeedError and EngineError."""
        return self._engine.run(feed(self._engine.inputs, inputs, self.notes))

    def time(self) -> float:
        """Milliseconds of another run on the inputs of the last one."""
        return self._engine.time()

    def close(self) -> None:
        self._engine.close()
