"""The runner of a backend that runs a graph: values are matched to the graph's inputs, arrays go in and come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .endings import Ending
from .feeding import feed
from .isolated import IsolatedEngine
from .runner import LIMIT_S, Sample
from .serving import Opened, open_here

__all__ = ["GraphRunner"]

Array = npt.NDArray[Any]


class GraphRunner:
    """A `Runner` around an engine, in a child process or here. Close it when done."""

    def __init__(
        self,
        name: str,
        backend: str,
        options: Mapping[str, Any],
        *,
        isolate: bool = True,
        limit_s: float = LIMIT_S,
        memory: int | None = None,
        threads: int | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.files = tuple(files)
        self._engine: Opened | IsolatedEngine
        if isolate:
            self._engine = IsolatedEngine(backend, options, limit_s=limit_s, memory=memory, threads=threads)
        else:
            self._engine = open_here(backend, options)
        self.load_ms = self._engine.load_ms
        self.versions, self.pools = self._engine.versions, self._engine.pools
        self.outputs = tuple(name for name, _ in self._engine.outputs)
        self.notes: dict[str, None] = dict.fromkeys(self._engine.notes)
        if memory is not None and not isolate:
            self.notes["the memory limit is not kept: it is that of a child process, and there is none"] = (
                None
            )

    @property
    def last_act(self) -> Ending | None:
        """How the process ended after it was told to, where that went wrong."""
        return getattr(self._engine, "last_act", None)

    def run(self, inputs: Sequence[tuple[str, Any]], sample: Sample | None = None) -> list[Array]:
        """See `Runner.run`."""
        results = self._engine.run(feed(self._engine.inputs, inputs, self.notes))
        self.notes |= dict.fromkeys(self._engine.notes)
        return results

    def time(self) -> float:
        """Milliseconds of another run on the inputs of the last one."""
        return self._engine.time()

    def profile(self, runs: int = 5) -> str:
        """See `Runner.profile`."""
        return self._engine.profile(runs)

    def close(self) -> None:
        self._engine.close()
