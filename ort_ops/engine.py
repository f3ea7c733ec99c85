"""An ONNX Runtime session in this process, arrays in and arrays out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .arrays import Slot, from_ort_value, to_ort_value
from .diagnosis import runtime_message
from .session import session

__all__ = ["Engine", "EngineError"]

Array = npt.NDArray[Any]


class EngineError(Exception):
    """The runtime refused, crashed or hung on a run; the message says what it said."""


class Engine:
    """A session and the inputs it was last given.

    `weights` are inputs of the model that are the same in every run; they are shared, not copied.
    `profile` is the beginning of the path that the runtime's own profile is written to (see `end_profiling`).

    Attributes:
        load_ms: time to open the session, milliseconds.
        inputs, outputs: names and types, in graph order.
        providers: at work, the preferred one first.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None,
        optimize: bool,
        libraries: Sequence[str] = (),
        weights: Mapping[str, Array] | None = None,
        providers: Sequence[str] | None = None,
        profile: str | None = None,
    ) -> None:
        start = time.perf_counter()
        self._session = session(
            path,
            threads=threads,
            optimize=optimize,
            libraries=libraries,
            providers=providers,
            profile=profile,
            verify=False,  # whoever runs models through an engine has done that, and says what was allowed
        )
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.providers: tuple[str, ...] = tuple(self._session.get_providers())
        self._weights = {name: to_ort_value(array) for name, array in (weights or {}).items()}
        slots = [(i.name, i.type) for i in self._session.get_inputs()]
        self.inputs: list[Slot] = [slot for slot in slots if slot[0] not in self._weights]
        self.outputs: list[Slot] = [(o.name, o.type) for o in self._session.get_outputs()]
        self._values: dict[str, Any] = {}

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Run once. Raises EngineError with the runtime's message."""
        try:
            self._values = {k: to_ort_value(v) for k, v in arrays.items()} | self._weights
            values = self._session.run_with_ort_values(None, self._values)
        except Exception as error:  # the runtime's exception types share no base of its own
            raise EngineError(runtime_message(error)) from error
        return [from_ort_value(v, slot) for v, slot in zip(values, self.outputs, strict=True)]

    def time(self) -> float:
        """Milliseconds of one more run on the same inputs, without any copy of ours."""
        start = time.perf_counter()
        self._session.run_with_ort_values(None, self._values)
        return (time.perf_counter() - start) * 1e3

    def end_profiling(self) -> Path:
        """The file of the profile, complete from now on; only where `profile` was given."""
        return Path(self._session.end_profiling())

    def close(self) -> None:
        """Nothing to end in this process."""
