"""The child's side of an isolated backend: open what it is told to, answer until the input ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy.typing as npt

from ...ort_ops.arrays import Slot
from ...ort_ops.engine import EngineError
from . import frames
from .prologue import begin

__all__ = ["Opened", "open_here", "serve"]

Array = npt.NDArray[Any]

# What a child can open: names only, so that no message makes it run anything else.
_OPENERS = {
    "onnxruntime": ".onnxruntime_engine",
    "torch": ".torch_engine",
    "tensorrt": ".tensorrt_engine",
    "emulated": ".emulated_engine",
}


class Opened(Protocol):
    """A backend in this process, arrays in and arrays out.

    Attributes:
        inputs, outputs: names and types, where the backend has them.
    """

    load_ms: float
    inputs: list[Slot]
    outputs: list[Slot]
    versions: dict[str, str]
    pools: dict[str, int]
    notes: list[str]

    def run(self, arrays: Mapping[str, Array], call: Any = None) -> list[Array]: ...
    def time(self) -> float: ...
    def profile(self, runs: int) -> str: ...
    def close(self) -> None: ...


def open_here(backend: str, options: Mapping[str, Any]) -> Opened:
    """Open a backend in this process."""
    opener: Callable[..., Opened] = import_module(_OPENERS[backend], __package__).open_engine
    return opener(**options)


def serve() -> None:
    """Answer requests until the input ends. Errors are answers too."""
    requests, answers = begin()
    opened: Opened | None = None
    while True:
        try:
            request, arrays = frames.read(requests)
        except EOFError:
            return
        try:
            if request["do"] == "open":
                opened = open_here(request["backend"], request["options"])
                header: dict[str, Any] = {
                    name: getattr(opened, name)
                    for name in ("load_ms", "inputs", "outputs", "versions", "pools", "notes")
                }
                results: dict[str, Array] = {}
            elif opened is None:
                raise EngineError("nothing is open")
            else:
                header, results = _answer(opened, request, arrays)
            frames.write(answers, header, results)
        except Exception as error:
            frames.write(answers, {"error": type(error).__name__, "message": str(error)})


def _answer(
    opened: Opened, request: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[dict[str, Any], dict[str, Array]]:
    if request["do"] == "run":
        results = opened.run(arrays, request.get("call"))
        return {"notes": opened.notes}, {str(i): r for i, r in enumerate(results)}
    if request["do"] == "profile":
        return {"trace": opened.profile(request["runs"])}, {}
    return {"ms": opened.time()}, {}
