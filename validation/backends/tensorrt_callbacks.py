"""What TensorRT calls back: its messages, memory for outputs of unknown size, times of layers. No exception leaves them.

The classes are made from the package that is given, TensorRT or TensorRT-RTX, because they derive from its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from .cuda_memory import Buffer, Device

__all__ = ["LayerTimes", "allocator_type", "layer_trace", "logger", "profiler"]

Shape = tuple[int, ...]
LayerTimes = list[tuple[str, float]]  # name and milliseconds, in the order of execution


def logger(trt: Any) -> Any:
    """Keeps what TensorRT says from errors on in `lines`, and prints warnings too, to the log."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity <= trt.ILogger.Severity.WARNING:
                sys.stderr.write(f"{msg}\n")
            if severity <= trt.ILogger.Severity.ERROR:
                self.lines.append(msg)

    return Logger()


def allocator_type(trt: Any) -> Any:
    """The class of allocators of one package."""

    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        """Memory for an output whose size is known only when it has been computed. `error`: why there is none."""

        def __init__(self, device: Device) -> None:
            trt.IOutputAllocator.__init__(self)
            self._device = device
            self.buffers: dict[str, Buffer] = {}
            self.shapes: dict[str, Shape] = {}
            self.error = ""

        def reallocate_output(self, tensor_name: str, memory: Any, size: int, alignment: int) -> int | None:
            held = self.buffers.get(tensor_name)
            if held is None or held.size < size:
                try:
                    # allocators of CUDA align to 256 bytes, which is what TensorRT asks for at most
                    held = self.buffers[tensor_name] = self._device.empty(size)
                except (
                    Exception
                ) as error:  # it came from C++ that takes no exceptions, and would end the process
                    self.error = f"no memory for {tensor_name}, {size:,} bytes: {error}"
                    return None  # what TensorRT expects then
            return held.address

        def reallocate_output_async(
            self, tensor_name: str, memory: Any, size: int, alignment: int, stream: int
        ) -> int | None:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shapes[tensor_name] = tuple(shape)

    return Allocator


def profiler(trt: Any) -> Any:
    """Keeps the times of layers in `layers` as they are reported."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.layers: LayerTimes = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.layers.append((str(layer_name), float(ms)))

    return Profiler()


def layer_trace(runs: Sequence[tuple[float, LayerTimes]]) -> str:
    """Runs with their layers in the form of ONNX Runtime's trace, which `latency.runtime_trace` reads.

    TensorRT reports durations, no times of day: layers are laid one after the other. A run lasts as long as the events
    around it say, or as its layers together where those take longer under the profiler.

    Args:
        runs: of each, its milliseconds and those of its layers.
    """
    events: list[dict[str, Any]] = []
    start = 0.0  # microseconds
    for total, layers in runs:
        length = max(total, sum(ms for _, ms in layers)) * 1e3
        events.append({"cat": "Session", "name": "model_run", "ts": start, "dur": length})
        at = start
        for name, ms in layers:
            events.append(
                {
                    "cat": "Node",
                    "name": f"{name}_kernel_time",
                    "ts": at,
                    "dur": ms * 1e3,
                    "args": {"op_name": "layer", "provider": "TensorRT"},
                }
            )
            at += ms * 1e3
        start += length + 1.0
    return json.dumps(events)
