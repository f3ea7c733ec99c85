"""Runs of the backend under suspicion: of the whole file, and of parts of it; each is counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from ...errors import DeployOpsError
from ...ort_ops.engine import EngineError
from ..backends.feeding import FeedError
from .dataflow import Part
from .submodel import Workshop

__all__ = ["NoMoreRuns", "OpenBackend", "Refused", "Runner", "Runs"]

Array = npt.NDArray[Any]


class Runner(Protocol):
    """What `backends` opens, as far as it is needed here."""

    @property
    def outputs(self) -> Sequence[str]: ...

    def run(self, inputs: Sequence[tuple[str, Any]]) -> list[Array]: ...
    def close(self) -> None: ...


_FILE = re.compile(r"\bpart_\d+\.onnx\b")
_NUMBER = re.compile(r"\bpart_\d+/")

OpenBackend = Callable[[Path], Runner]


class Refused(Exception):
    """The backend did not open or did not run what it was given; the message is its own."""


class NoMoreRuns(Exception):
    """The number of runs that was allowed is used up."""


class Runs:
    """`count` runs were made of `most`."""

    def __init__(self, workshop: Workshop, open_backend: OpenBackend, most: int) -> None:
        self.count, self.most = 0, most
        self._workshop, self._open = workshop, open_backend

    @property
    def left(self) -> int:
        return self.most - self.count

    def whole(self, path: Path, inputs: Sequence[tuple[str, Any]]) -> dict[str, Array]:
        """The file itself: its outputs by name. Raises Refused."""
        return self._run(path, inputs)

    def parts(self, parts: Sequence[Part], values: Mapping[str, Array]) -> list[dict[str, Array]]:
        """Parts of the file side by side, in one run: for each the values it wanted. Raises Refused."""
        path, inputs = self._workshop.write(parts, values)
        try:
            found = iter(self._run(path, [(name, values[name]) for name in inputs]).values())
        finally:
            path.unlink()
        return [{name: next(found) for name in part.wanted} for part in parts]

    def _run(self, path: Path, inputs: Sequence[tuple[str, Any]]) -> dict[str, Array]:
        if self.count >= self.most:
            raise NoMoreRuns
        self.count += 1
        try:
            with closing(self._open(path)) as runner:
                arrays = runner.run(inputs)
                return dict(zip(runner.outputs, arrays, strict=True))
        except (EngineError, FeedError, DeployOpsError) as error:
            # names of parts and of their folder, another one each time, are nobody's business
            text = " ".join(str(error).split()).replace(f"{self._workshop.folder}/", "")
            raise Refused(_NUMBER.sub("", _FILE.sub("a part of the file", text))) from error
