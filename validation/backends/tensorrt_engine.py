"""A serialized engine of TensorRT or TensorRT-RTX where it runs: profiles, dynamic shapes, sizes that depend on the data.

Written against the Python API of TensorRT 10 and later. The calls are held against the installed package by a test;
nothing here has run on a machine without a GPU, so that what it computes is *not checked* there.
"""

from __future__ import annotations

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
from .cuda_memory import Device, open_device
from .tensorrt_callbacks import LayerTimes, allocator_type, layer_trace, logger, profiler
from .tensorrt_profiles import fitting_profile, profile_ranges

__all__ = ["TensorRtEngine", "open_engine"]

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


def open_engine(
    package: str, engine: str, plugins: Sequence[str], host_code: bool = False, in_place: bool = False
) -> TensorRtEngine:
    """For `serving`. `package`: "tensorrt" or "tensorrt_rtx"."""
    try:
        trt = import_module(package)
    except Exception as error:  # its loader raises several kinds where a library is not there
        raise NotCheckedError(f"{package} is installed and does not load: {error}") from error
    return TensorRtEngine(trt, Path(engine), plugins, open_device(), host_code=host_code, in_place=in_place)


class TensorRtEngine:
    """`serving.Opened` around an execution context.

    Args:
        host_code: let TensorRT run what the engine carries: plugin libraries, a runtime of its own. It refuses to load
            such an engine otherwise.
        in_place: outputs may lie in the memory of inputs, which TensorRT must then tell.
    """

    def __init__(
        self,
        trt: Any,
        engine: Path,
        plugins: Sequence[str],
        device: Device,
        *,
        host_code: bool = False,
        in_place: bool = False,
    ) -> None:
        self._trt, self._device = trt, device
        self._logger = logger(trt)
        start = time.perf_counter()
        self._load_plugins(plugins)
        # kept: the engine lives no longer than the runtime that made it
        self._runtime = trt.Runtime(self._logger)
        if host_code:
            self._runtime.engine_host_code_allowed = True
        self._engine = self._runtime.deserialize_cuda_engine(engine.read_bytes())
        if self._engine is None:
            raise NotCheckedError(
                f"{engine.name} cannot be loaded by {trt.__name__} {trt.__version__} on {device.name}: {self._said()}. "
                "An engine runs on the version and the kind of GPU that it was built for"
            )
        if in_place and not hasattr(self._engine, "get_aliased_input_tensor"):
            raise NotCheckedError(
                f"{engine.name} was built with outputs in the memory of inputs, and {trt.__name__} {trt.__version__} does not "
                "tell which (10.15 or newer does): build it without --in-place to have it compared"
            )
        self._context = self._new_context()
        self.load_ms = (time.perf_counter() - start) * 1e3
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        modes = {n: self._engine.get_tensor_mode(n) for n in names}
        self.inputs = [self._slot(n) for n in names if modes[n] == trt.TensorIOMode.INPUT]
        self.outputs = [self._slot(n) for n in names if modes[n] == trt.TensorIOMode.OUTPUT]
        inputs = [n for n, _ in self.inputs]
        self._ranges = profile_ranges(self._engine, inputs, [n for n in inputs if self._on_host(n)])
        self._active: int | None = 0  # the first context of an engine begins with its first profile
        self.versions = {trt.__name__: str(trt.__version__), "gpu": device.name}
        self.pools: dict[str, int] = {}
        self.notes: list[str] = [
            "times on the GPU are of the computation alone, by events; copies are left out"
        ]
        if host_code:
            self.notes.append("the engine carries libraries of its own, which were loaded from it and run")
        self._dtypes = {slot[0]: element_dtype(slot) for slot in self.inputs}
        self._allocator_type = allocator_type(trt)
        self._held: dict[str, Any] = {}  # what the context has the addresses of, by tensor
        self._fed: Mapping[str, Any] = {}

    def run(self, arrays: Mapping[str, Any], call: Any = None) -> list[Array]:
        """Outputs as arrays, in the engine's order, from arrays, or from torch's CUDA tensors, which are not copied.

        Raises NotCheckedError for shapes that no profile covers.
        """
        self._compute(arrays)
        return [self._fetch(slot) for slot in self.outputs]

    def run_tensors(self, tensors: Mapping[str, Any]) -> list[Any]:
        """Outputs as torch tensors on the GPU, in the engine's order; nothing is copied to the host and back.

        Inputs on this GPU are read where they are: contiguous, in the engine's dtype. Others are copied to it. What the
        caller's stream does before and after is in order with the run. Raises NotCheckedError where torch has no CUDA.
        """
        self._device.begin()
        # what TensorRT writes on the host is there when the stream has come to its end
        self._compute(tensors, wait=any(self._on_host(n) for n, _ in self.outputs))
        found = []
        for slot in self.outputs:
            shape, place = self._place(slot)
            found.append(self._device.tensor(place, element_dtype(slot).name, shape))
        self._device.end()
        return found

    def time(self) -> float:
        """Milliseconds of one more execution on the buffers of the last run, by events on its stream."""
        if not self._held:
            raise EngineError("there is nothing to time before the first run")
        return self._device.timed(self._execute)

    def profile(self, runs: int) -> str:
        """A trace of TensorRT's own times of its layers on the inputs of the last run, after one that is not counted.

        In a context of its own, because a profiler slows what is timed after it. Layers are named after the nodes that
        they were made of, as far as the engine was built to say.
        """
        if not self._held:
            raise EngineError("there is nothing to profile before the first run")
        saved = self._context, self._active, self._held
        taken = profiler(self._trt)
        try:
            self._context, self._active, self._held = self._new_context(), None, {}
            self._context.enqueue_emits_profile = False
            self._context.profiler = taken
            self._compute(self._fed)
            taken.layers.clear()
            return layer_trace([self._profiled(taken) for _ in range(runs + 1)])
        finally:
            self._device.synchronize()
            self._context, self._active, self._held = saved

    def close(self) -> None:
        """In the order that TensorRT asks for: context, engine, runtime."""
        self._device.synchronize()
        self._context = self._engine = self._runtime = None
        self._held, self._fed = {}, {}

    # --- a run -------------------------------------------------------------------------------------------------------

    def _compute(self, values: Mapping[str, Any], *, wait: bool = True) -> None:
        asked = {n: self._sizes(n, v) if self._on_host(n) else tuple(v.shape) for n, v in values.items()}
        self._choose_profile(asked)
        self._held = {}
        for name, value in values.items():
            self._feed(name, value)
        try:
            unknown = self._context.infer_shapes()
        except RuntimeError as error:
            raise EngineError(f"TensorRT cannot infer the shapes: {error} {self._said()}") from error
        if unknown:
            raise EngineError(f"TensorRT cannot tell the shapes of {', '.join(unknown)}: {self._said()}")
        for slot in self.outputs:
            self._held[slot[0]] = self._output(slot)
        self._execute()
        if wait:
            self._device.synchronize()
        self._fed = values

    def _profiled(self, taken: Any) -> tuple[float, LayerTimes]:
        taken.layers.clear()
        ms = self._device.timed(self._execute)
        # without `enqueue_emits_profile` the times are computed here, outside of what the events measure
        if not self._context.report_to_profiler():
            raise NotCheckedError(f"TensorRT reports no times of its layers: {self._said()}")
        if not taken.layers:
            raise NotCheckedError("TensorRT reports no times of its layers")
        return ms, list(taken.layers)

    def _new_context(self) -> Any:
        found = self._engine.create_execution_context()
        if found is None:
            raise EngineError(f"no execution context: {self._said()}")
        return found

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

    @staticmethod
    def _sizes(name: str, value: Any) -> Shape:
        return tuple(int(v) for v in _host_array(value).reshape(-1))

    def _choose_profile(self, asked: Mapping[str, Shape]) -> None:
        index = fitting_profile(self._ranges, asked)
        if index != self._active:
            if not self._context.set_optimization_profile_async(index, self._device.stream):
                raise EngineError(f"TensorRT does not take profile {index}: {self._said()}")
            self._device.synchronize()
            self._active = index

    def _feed(self, name: str, value: Any) -> None:
        given = str(value.dtype).removeprefix("torch.")
        if given != self._dtypes[name].name:  # its bytes would be read as another type
            raise EngineError(f"{name} takes {self._dtypes[name].name}, and was given {given}")
        on_host = self._on_host(name)
        varies = any(size < 0 for size in self._engine.get_tensor_shape(name))
        if (varies or not on_host) and not self._context.set_input_shape(name, tuple(value.shape)):
            raise EngineError(f"TensorRT refuses shape {tuple(value.shape)} for {name}: {self._said()}")
        if on_host:  # a shape tensor: TensorRT reads its values on the host
            host = np.ascontiguousarray(_host_array(value)).reshape(-1)
            host = host if host.size else np.zeros(1, host.dtype)
            self._address(name, int(host.ctypes.data))
            self._held[name] = host
            return
        buffer = self._device.adopt(value)
        if buffer is None:
            buffer = self._device.upload(_host_array(value))
        self._address(name, buffer.address)
        self._held[name] = buffer

    def _output(self, slot: Slot) -> Any:
        """A buffer of the output's size, or an allocator where the size depends on the data."""
        name, dtype = slot[0], element_dtype(slot)
        shape = tuple(self._context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            allocator = self._allocator_type(self._device)
            if not self._context.set_output_allocator(name, allocator):
                raise EngineError(f"TensorRT takes no allocator for {name}: {self._said()}")
            return allocator
        size = _count(shape) * dtype.itemsize
        if self._on_host(name):
            host = np.zeros(max(size, 1), np.uint8)
            self._address(name, int(host.ctypes.data))
            return host
        buffer = self._held[shared] if (shared := self._aliased(name)) else self._device.empty(size)
        self._address(name, buffer.address)
        return buffer

    def _aliased(self, name: str) -> str:
        """The input whose memory this output is (a cache that is written to); empty where it has its own."""
        ask = getattr(self._engine, "get_aliased_input_tensor", None)  # from TensorRT 10.15 on
        return (ask(name) or "") if ask is not None else ""

    def _address(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise EngineError(f"TensorRT refuses the memory of {name}: {self._said()}")

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self._device.stream):
            own = [e for place in self._held.values() if (e := getattr(place, "error", ""))]
            raise EngineError(f"TensorRT does not run this: {'; '.join([*own, self._said()])}")

    def _place(self, slot: Slot) -> tuple[Shape, Any]:
        """The shape that an output has and where it is; None where it is nowhere, being empty."""
        name, place = slot[0], self._held[slot[0]]
        if isinstance(place, self._allocator_type):
            return place.shapes[name], place.buffers.get(name)
        return tuple(self._context.get_tensor_shape(name)), place

    def _fetch(self, slot: Slot) -> Array:
        shape, place = self._place(slot)
        dtype = element_dtype(slot)
        size = _count(shape) * dtype.itemsize
        if isinstance(place, np.ndarray):
            raw = place[:size].copy()
        elif size:
            raw = self._device.download(place, size)
        else:
            raw = np.empty(0, np.uint8)
        found: Array = raw.view(dtype).reshape(shape)
        return found

    def _said(self) -> str:
        lines, self._logger.lines = self._logger.lines[-_WORDS:], []
        return " ".join(" ".join(lines).split()) or "it says nothing more"


def _host_array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    from ...ort_ops.arrays import to_array

    return to_array(value)


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
