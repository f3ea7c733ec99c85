"""Timing on an NVIDIA GPU through torch: events, cold and warm L2, CUDA graphs, clocks. Not checked: written without a GPU.

An event is a time stamp that the GPU itself takes when its queue reaches it. Between two of them lies what the GPU did,
and where it waited for the host to launch the next kernel: a model of many small kernels is as slow as its launches. A
graph launches everything at once, which is why it is a candidate of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ...errors import NotCheckedError
from .device import PhasedCandidate
from .surroundings import Observation

if TYPE_CHECKING:
    import torch

__all__ = ["Clocks", "Cuda", "clocks", "cuda", "event_timed", "graphed", "phased"]

# An L2 is taken to be cold after a write of so many times its size.
_FLUSH = 2
_LEAST_L2 = 64 << 20  # where the driver does not tell
_WARM_RUNS = 3  # before a capture, as torch's documentation asks for
# A clock that falls to less than this part of what it was: too hot, too much power, or set by somebody.
_LOWEST_CLOCK = 0.9
_UNITS = {"clock": "MHz", "power": "mW", "temperature": "°C"}


@dataclass(frozen=True, slots=True)
class Cuda:
    """A `Device`: its queue is empty when `synchronize` returns."""

    name: str

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize(self.name)


def cuda(index: int = 0) -> Cuda:
    """The GPU of that number. Raises NotCheckedError where torch can use none."""
    import torch

    if not torch.cuda.is_available():
        raise NotCheckedError("torch sees no CUDA device: nothing is timed on a GPU")
    if index >= torch.cuda.device_count():
        raise NotCheckedError(f"there is no cuda:{index}; there are {torch.cuda.device_count()} CUDA devices")
    return Cuda(f"cuda:{index}")


def event_timed(
    call: Callable[[], object], device: Cuda, l2: Literal["warm", "cold"] = "warm"
) -> Callable[[], float]:
    """A candidate: milliseconds from the first kernel of `call` to its last, by two events on the current stream.

    Args:
        l2: "cold": before each run a buffer larger than the L2 is overwritten, as when another model ran in between;
            "warm": what the last run left there stays.
    """
    import torch

    buffer = _flush_buffer(device) if l2 == "cold" else None

    def once() -> float:
        with torch.cuda.device(device.name):
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            if buffer is not None:
                buffer.zero_()
            device.synchronize()
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end))

    return once


def graphed(call: Callable[[], object], device: Cuda) -> Callable[[], object]:
    """`call` as one CUDA graph, to be timed like any other. It must read and write the same memory in each run.

    Raises:
        NotCheckedError: the work cannot be captured (it synchronises, or allocates outside of the graph's pool).
    """
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.device(device.name):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_RUNS):
                    call()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph):
                call()
    except RuntimeError as error:
        words = " ".join(str(error).split())[:200]
        raise NotCheckedError(f"no CUDA graph of this model: {words}") from error
    replay: Callable[[], object] = graph.replay
    return replay


def phased(
    model: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    device: Cuda,
    compares: Literal["total", "compute"] = "total",
) -> PhasedCandidate:
    """A candidate with its copies apart: inputs from pinned memory, the results back into ordinary memory."""
    import torch
    from torch.utils import _pytree

    pinned = [t.contiguous().pin_memory() for t in inputs]
    there = [torch.empty_like(t, device=device.name) for t in pinned]
    results: list[Any] = []

    def copy_in() -> None:
        for source, target in zip(pinned, there, strict=True):
            target.copy_(source, non_blocking=True)

    def compute() -> None:
        results[:] = [model(*there)]

    def copy_out() -> list[torch.Tensor]:
        return [t.to("cpu") for t in _pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]

    return PhasedCandidate(copy_in, compute, copy_out, device, compares)


def clocks(device: Cuda) -> Mapping[str, int]:
    """SM clock (MHz), power (mW) and temperature (°C) as the driver says; what it does not say is left out."""
    import torch

    asked: dict[str, Callable[[str], int]] = {
        "clock": torch.cuda.clock_rate,
        "power": torch.cuda.power_draw,
        "temperature": torch.cuda.temperature,
    }
    found = {}
    for name, ask in asked.items():
        try:
            found[name] = int(ask(device.name))
        except Exception:  # noqa: PERF203 - no NVML, no right to ask it, or a value that this GPU does not have
            continue
    return found


@dataclass(slots=True)
class Clocks:
    """An `Observer`: what the driver says of the GPU before and after the measured runs."""

    device: Cuda
    _before: Mapping[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        self._before = clocks(self.device)

    def end(self) -> Observation:
        before, after = self._before, clocks(self.device)
        read = [f"{k} {before[k]} to {after[k]} {u}" for k, u in _UNITS.items() if k in before and k in after]
        name = self.device.name
        if not read:
            return Observation(
                (f"{name}: clocks and power cannot be read (pip install nvidia-ml-py)",), device=name
            )
        unstable = ""
        if "clock" in before and after.get("clock", 0) < _LOWEST_CLOCK * before["clock"]:
            unstable = f"the GPU's clock fell from {before['clock']} to {after.get('clock', 0)} MHz"
        return Observation((f"{name} before and after: {', '.join(read)}",), unstable, unstable, name)


def _flush_buffer(device: Cuda) -> torch.Tensor:
    import torch

    size = int(getattr(torch.cuda.get_device_properties(device.name), "L2_cache_size", 0) or _LEAST_L2)
    return torch.empty(_FLUSH * size, dtype=torch.uint8, device=device.name)
