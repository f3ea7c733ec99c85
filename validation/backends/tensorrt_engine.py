"""A serialized engine of TensorRT or TensorRT-RTX where it runs: profiles, dynamic shapes, sizes that depend on the data.

Written against the Python API of TensorRT 10 and later. The calls are held against the installed package by a test;
nothing here has run on a machine without a GPU, so that what it computes is *not checked* there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import NotCheckedError
from ...ort_ops.arrays import Slot, element_dtype
from ...ort_ops.engine import EngineError
from .cuda_memory import Buffer, Device, open_device

__all__ = ["TensorRtEngine", "fitting_profile", "open_engine"]

Array = npt.NDArray[Any]
Shape = tuple[int, ...]

# TensorRT's names of dtypes -> those of `Slot`. The packed ones (INT4, FP4) have no array to be compared as.
_TYPES = {
    "FLOAT": "float",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FP8": "float8e4m3fn",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
_WORDS = 5


def open_engine(package: str, engine: str, plugins: Sequence[str]) -> TensorRtEngine:
    """For `serving`. `package`: "tensorrt" or "tensorrt_rtx"."""
    try:
        trt = import_module(package)
    except Exception as error:  # its loader raises several kinds where a library is not there
        raise NotCheckedError(f"{package} is installed and does not load: {error}") from error
    return TensorRtEngine(trt, Path(engine), plugins, open_device())


class TensorRtEngine:
    """`serving.Opened` around an execution context."""

    def __init__(self, trt: Any, engine: Path, plugins: Sequence[str], device: Device) -> None:
        self._trt, self._device = trt, device
        self._logger = _logger(trt)
        start = time.perf_counter()
        self._load_plugins(plugins)
        # kept: the engine lives no longer than the runtime that made it
        self._runtime = trt.Runtime(self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(engine.read_bytes())
        if self._engine is None:
            raise NotCheckedError(
                f"{engine.name} cannot be loaded by {trt.__name__} {trt.__version__} on {device.name}: {self._said()}. "
                "An engine runs on the version and the kind of GPU that it was built for"
            )
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise EngineError(f"no execution context: {self._said()}")
        self.load_ms = (time.perf_counter() - start) * 1e3
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        modes = {n: self._engine.get_tensor_mode(n) for n in names}
        self.inputs = [self._slot(n) for n in names if modes[n] == trt.TensorIOMode.INPUT]
        self.outputs = [self._slot(n) for n in names if modes[n] == trt.TensorIOMode.OUTPUT]
        self._ranges = [self._profile(i) for i in range(self._engine.num_optimization_profiles)]
        self._active = 0
        self.versions = {trt.__name__: str(trt.__version__), "gpu": device.name}
        self.pools: dict[str, int] = {}
        self.notes: list[str] = [
            "times on the GPU are of the computation alone, by events; copies are left out"
        ]
        self._allocator_type = _allocator_type(trt)
        self._held: list[Any] = []  # what the context has the addresses of

    def run(self, arrays: Mapping[str, Array], call: Any = None) -> list[Array]:
        """Outputs in the engine's order. Raises NotCheckedError for shapes that no profile covers."""
        shapes = {n: tuple(a.shape) for n, a in arrays.items() if not self._on_host(n)}
        self._choose_profile(shapes)
        self._held = []
        for name, array in arrays.items():
            self._feed(name, array)
        unknown = self._context.infer_shapes()
        if unknown:
            raise EngineError(f"TensorRT cannot tell the shapes of {', '.join(unknown)}: {self._said()}")
        outputs = {slot[0]: self._output(slot) for slot in self.outputs}
        self._execute()
        self._device.synchronize()
        return [self._fetch(slot, outputs[slot[0]]) for slot in self.outputs]

    def time(self) -> float:
        """Milliseconds of one more execution on the buffers of the last run, by events on its stream."""
        if not self._held:
            raise EngineError("there is nothing to time before the first run")
        return self._device.timed(self._execute)

    def profile(self, runs: int) -> str:
        raise NotCheckedError("TensorRT's profile of its layers is not read yet")

    def close(self) -> None:
        """In the order that TensorRT asks for: context, engine, runtime."""
        self._device.synchronize()
        self._context = self._engine = self._runtime = None
        self._held = []

    def _load_plugins(self, plugins: Sequence[str]) -> None:
        if hasattr(self._trt, "init_libnvinfer_plugins"):
            self._trt.init_libnvinfer_plugins(self._logger, "")
        registry = self._trt.get_plugin_registry()
        for plugin in plugins:
            if registry.load_library(plugin) is None:
                raise EngineError(
                    f"TensorRT does not load the plugin library {Path(plugin).name}, or has its plugins already: "
                    f"{self._said()}"
                )

    def _slot(self, name: str) -> Slot:
        dtype = self._engine.get_tensor_dtype(name).name
        if dtype not in _TYPES:
            raise EngineError(f"{name} has the type {dtype}, which no array can hold")
        return name, f"tensor({_TYPES[dtype]})"

    def _on_host(self, name: str) -> bool:
        return bool(self._engine.get_tensor_location(name) == self._trt.TensorLocation.HOST)

    def _profile(self, index: int) -> dict[str, tuple[Shape, Shape]]:
        """Smallest and largest shape of each input on the device."""
        found = {}
        for name, _ in self.inputs:
            if not self._on_host(name):
                low, _, high = self._engine.get_tensor_profile_shape(name, index)
                found[name] = (tuple(low), tuple(high))
        return found

    def _choose_profile(self, shapes: Mapping[str, Shape]) -> None:
        index = fitting_profile(self._ranges, shapes)
        if index != self._active:
            if not self._context.set_optimization_profile_async(index, self._device.stream):
                raise EngineError(f"TensorRT does not take profile {index}: {self._said()}")
            self._device.synchronize()
            self._active = index

    def _feed(self, name: str, array: Array) -> None:
        if not self._on_host(name):
            if not self._context.set_input_shape(name, tuple(array.shape)):
                raise EngineError(f"TensorRT refuses shape {tuple(array.shape)} for {name}: {self._said()}")
            buffer = self._device.upload(array)
            self._address(name, buffer.address)
            self._held.append(buffer)
            return
        # a shape tensor: TensorRT reads its values on the host
        host = np.ascontiguousarray(array).reshape(-1)
        host = host if host.size else np.zeros(1, array.dtype)
        self._address(name, int(host.ctypes.data))
        self._held.append(host)

    def _output(self, slot: Slot) -> Any:
        """A buffer of the output's size, or an allocator where the size depends on the data."""
        name, dtype = slot[0], element_dtype(slot)
        shape = tuple(self._context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            allocator = self._allocator_type(self._device)
            if not self._context.set_output_allocator(name, allocator):
                raise EngineError(f"TensorRT takes no allocator for {name}: {self._said()}")
            self._held.append(allocator)
            return allocator
        size = _count(shape) * dtype.itemsize
        if self._on_host(name):
            host = np.zeros(max(size, 1), np.uint8)
            self._address(name, int(host.ctypes.data))
            self._held.append(host)
            return host
        buffer = self._device.empty(size)
        self._address(name, buffer.address)
        self._held.append(buffer)
        return buffer

    def _address(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise EngineError(f"TensorRT refuses the memory of {name}: {self._said()}")

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self._device.stream):
            raise EngineError(f"TensorRT does not run this: {self._said()}")

    def _fetch(self, slot: Slot, place: Any) -> Array:
        name, dtype = slot[0], element_dtype(slot)
        if isinstance(place, self._allocator_type):
            shape, buffer = place.shapes[name], place.buffers.get(name)
        else:
            shape, buffer = tuple(self._context.get_tensor_shape(name)), place
        size = _count(shape) * dtype.itemsize
        if isinstance(buffer, np.ndarray):
            raw = buffer[:size].copy()
        elif size:
            raw = self._device.download(buffer, size)
        else:
            raw = np.empty(0, np.uint8)
        found: Array = raw.view(dtype).reshape(shape)
        return found

    def _said(self) -> str:
        lines, self._logger.lines = self._logger.lines[-_WORDS:], []
        return " ".join(" ".join(lines).split()) or "it says nothing more"


def fitting_profile(ranges: Sequence[Mapping[str, tuple[Shape, Shape]]], shapes: Mapping[str, Shape]) -> int:
    """The first profile that covers all shapes. Raises NotCheckedError where none does: the engine was not built for them."""
    for index, profile in enumerate(ranges):
        if all(name not in profile or _inside(shape, *profile[name]) for name, shape in shapes.items()):
            return index
    offered = "; ".join(
        ", ".join(f"{n} from {list(low)} to {list(high)}" for n, (low, high) in profile.items())
        for profile in ranges
    )
    asked = ", ".join(f"{n} {list(shape)}" for n, shape in shapes.items())
    raise NotCheckedError(f"the engine was not built for {asked}: its profiles are {offered or 'none'}")


def _inside(shape: Shape, low: Shape, high: Shape) -> bool:
    return len(shape) == len(low) and all(a <= s <= b for s, a, b in zip(shape, low, high, strict=True))


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _logger(trt: Any) -> Any:
    """Keeps what TensorRT says from warnings on, and prints it to the log."""

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


def _allocator_type(trt: Any) -> Any:
    class Allocator(trt.IOutputAllocator):  # type: ignore[misc]
        """Memory for an output whose size is known only when it has been computed."""

        def __init__(self, device: Device) -> None:
            trt.IOutputAllocator.__init__(self)
            self._device = device
            self.buffers: dict[str, Buffer] = {}
            self.shapes: dict[str, Shape] = {}

        def reallocate_output(self, tensor_name: str, memory: Any, size: int, alignment: int) -> int:
            held = self.buffers.get(tensor_name)
            if held is None or held.size < size:
                # allocators of CUDA align to 256 bytes, which is what TensorRT asks for at most
                held = self.buffers[tensor_name] = self._device.empty(size)
            return held.address

        def reallocate_output_async(
            self, tensor_name: str, memory: Any, size: int, alignment: int, stream: int
        ) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shapes[tensor_name] = tuple(shape)

    return Allocator
