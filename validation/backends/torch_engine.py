"""A torch model where it runs: as it is, or compiled by torch.compile. CPU, eval mode, no gradients."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy.typing as npt

from ...errors import NotCheckedError
from ...export.buffers import buffers_kept
from ...ort_ops.arrays import Slot
from ...ort_ops.engine import EngineError
from .cores import torch_pools
from .endings import steady
from .runner import ReopenError
from .torch import arrays_of, cast, described, evaluating
from .torch_call import unpack

__all__ = ["TorchEngine", "open_engine"]

Array = npt.NDArray[Any]

_WORDS = 8  # lines of a compiler's error


class TorchEngine:
    """`serving.Opened` around a model. `computes_in`: floating inputs are cast to it; empty: they are taken as given."""

    def __init__(self, model: Any, *, compiled: bool, computes_in: str = "", load_ms: float = 0.0) -> None:
        import torch

        self._model = model
        self._call: Any = torch.compile(model) if compiled else model
        self._compiled = compiled
        self._dtype = getattr(torch, computes_in) if computes_in else None
        self.load_ms = load_ms
        self.inputs: list[Slot] = []
        self.outputs: list[Slot] = []
        self.versions = {
            "torch": str(torch.__version__),
            "inter-op threads": str(torch.get_num_interop_threads()),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
        }
        self.pools = torch_pools()
        self.notes: list[str] = []
        self._last: tuple[Any, Any] | None = None

    def run(self, arrays: Mapping[str, Array], call: Any = None) -> list[Array]:
        return self.run_values(*unpack(call, arrays))

    def run_values(self, args: Any, kwargs: Any) -> list[Array]:
        """As `run`, on the values themselves. The model may write into its inputs: it gets copies."""
        from torch.utils import _pytree

        dtype = self._dtype
        if dtype is not None:
            args, kwargs = _pytree.tree_map(lambda v: cast(v, dtype), (args, kwargs))
        self._last = (args, kwargs)
        try:
            with self._ready():
                copied_args, copied_kwargs = _copied((args, kwargs))
                # copied before buffers are put back, which an output may be
                results = arrays_of(_copied(self._call(*copied_args, **copied_kwargs)))
        except MemoryError:
            raise
        except Exception as error:
            raise EngineError(_words(error)) from error
        self._note_breaks()
        return results

    def time(self) -> float:
        """Milliseconds of the call alone, on copies of the last inputs."""
        if self._last is None:
            raise EngineError("there is nothing to time before the first run")
        args, kwargs = _copied(self._last)
        with self._ready():
            start = time.perf_counter()
            self._call(*args, **kwargs)
            return (time.perf_counter() - start) * 1e3

    def profile(self, runs: int) -> str:
        """A trace of torch's own profiler, as `latency.torch_profile` reads it."""
        if self._last is None:
            raise NotCheckedError("nothing to profile before the first run")
        from ..latency.torch_profile import traced

        args, kwargs = _copied(self._last)
        # what is compiled has no modules any more
        module = None if self._compiled else self._model
        with self._ready():
            return traced(module, lambda: self._call(*args, **kwargs), runs)

    def close(self) -> None:
        """Nothing to end in this process."""

    def _ready(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(evaluating(self._model))
        stack.enter_context(buffers_kept(self._model))
        return stack

    def _note_breaks(self) -> None:
        """What torch.compile leaves to eager, it leaves without a word."""
        if not self._compiled or self.notes:
            return
        from torch._dynamo.utils import counters

        if breaks := sum(counters["graph_break"].values()):
            self.notes.append(
                f"torch.compile broke the graph in {breaks} places, and runs what is between in eager"
            )


def open_engine(
    source: Mapping[str, Any] | None,
    stored: tuple[str, str] | None,
    compiled: bool,
    threads: int,
    computes_in: str,
) -> TorchEngine:
    """For `serving`: a model file as the user gave it (`source`), or one that the parent wrote (`stored`: form, path)."""
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)  # no model here forks
    start = time.perf_counter()
    if source is not None:
        model = _from_file(source)
    else:
        assert stored is not None
        model = _from_parent(*stored)
    load_ms = (time.perf_counter() - start) * 1e3
    return TorchEngine(model, compiled=compiled, computes_in=computes_in, load_ms=load_ms)


def _from_file(source: Mapping[str, Any]) -> Any:
    from ...export.source import open_source
    from ...symbolic import registry
    from ...symbolic.libraries import load_library

    for library in source["libraries"]:
        load_library(library)
    if source["ops"]:
        registry.load(tuple(source["ops"]))
    registry.load_builtin()
    registry.load_entry_points()
    return open_source(source["path"], trust=source["trust"], factory=source["factory"]).callable()


def _from_parent(form: str, path: str) -> Any:
    import torch

    from ...symbolic import registry

    registry.load_builtin()
    registry.load_entry_points()
    try:
        if form == "script":
            return torch.jit.load(path, map_location="cpu")
        if form == "program":
            return torch.export.load(path).module()
        # our own parent wrote it a moment ago, from a module in its memory
        return torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # whatever importing the module's classes raises
        raise ReopenError(described(error)) from error


def _copied(values: Any) -> Any:
    """Tensors copied with their layout."""
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, values)


def _words(error: Exception) -> str:
    """The compiler's own words where a compiler failed, else the error on one line."""
    text = str(error)
    lines = [line for line in text.splitlines() if "error:" in line or "Error:" in line]
    if "compile error" not in text.lower() or not lines:
        return described(error)
    return steady(f"{type(error).__name__}: the generated C++ does not compile\n" + "\n".join(lines[:_WORDS]))
