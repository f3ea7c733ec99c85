"""ONNX Runtime where it runs: a session with what a report says of it, and its own profile."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ...errors import NotCheckedError
from ...ort_ops.engine import Engine

__all__ = ["OnnxRuntimeEngine", "open_engine"]

Array = npt.NDArray[Any]


class OnnxRuntimeEngine:
    """`serving.Opened` around `Engine`."""

    def __init__(
        self,
        path: Path,
        threads: int | None,
        optimize: bool,
        libraries: Sequence[str],
        providers: Sequence[str] | None,
    ) -> None:
        import onnxruntime

        self._options: dict[str, Any] = {
            "threads": threads,
            "optimize": optimize,
            "libraries": tuple(libraries),
            "providers": providers,
        }
        self._path = path
        self._engine = Engine(path, **self._options)
        self.load_ms = self._engine.load_ms
        self.inputs, self.outputs = self._engine.inputs, self._engine.outputs
        self.versions = {
            "onnxruntime": onnxruntime.__version__,
            "provider": self._engine.providers[0],
            "spinning": "off",  # see `ort_ops.session`
        }
        # Its own choice is the number of cores of the machine, whatever this process may use of them.
        self.pools = {"onnxruntime intra-op": threads or os.cpu_count() or 1}
        self.notes: list[str] = []
        self._arrays: Mapping[str, Array] | None = None

    def run(self, arrays: Mapping[str, Array], call: Any = None) -> list[Array]:
        self._arrays = arrays
        return self._engine.run(arrays)

    def time(self) -> float:
        return self._engine.time()

    def profile(self, runs: int) -> str:
        """The runtime's trace of `runs` runs, after one to warm up, in a session of its own: profiling costs time."""
        if self._arrays is None:
            raise NotCheckedError("nothing to profile before the first run")
        with tempfile.TemporaryDirectory(prefix="deployops-profile-") as folder:
            engine = Engine(self._path, **self._options, profile=str(Path(folder) / "trace"))
            for _ in range(1 + runs):
                engine.run(self._arrays)
            return engine.end_profiling().read_text(encoding="utf-8")

    def close(self) -> None:
        self._engine.close()


def open_engine(
    path: str,
    threads: int | None,
    optimize: bool,
    libraries: Sequence[str] = (),
    providers: Sequence[str] | None = None,
) -> OnnxRuntimeEngine:
    """For `serving`."""
    return OnnxRuntimeEngine(Path(path), threads, optimize, libraries, providers)
