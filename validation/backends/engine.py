"""An ONNX Runtime session in this process, arrays in and arrays out."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ort_ops import session
from ...ort_ops.diagnosis import runtime_message
from .feeding import Slot, element_dtype

__all__ = ["Engine", "EngineError"]

Array = npt.NDArray[Any]


class EngineError(Exception):
    """The runtime refused, crashed or hung on a run; the message says what it said."""


class Engine:
    """A session and the inputs it was last given.

    Attributes:
        load_ms: time to open the session, milliseconds.
        inputs, outputs: names and types, in graph order.
    """

    def __init__(
        self, path: Path, *, threads: int | None, optimize: bool, libraries: Sequence[str] = ()
    ) -> None:
        start = time.perf_counter()
        self._session = session(path, threads=threads, optimize=optimize, libraries=libraries)
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.inputs: list[Slot] = [(i.name, i.type) for i in self._session.get_inputs()]
        self.outputs: list[Slot] = [(o.name, o.type) for o in self._session.get_outputs()]
        self._values: dict[str, Any] = {}

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Run once. Raises EngineError with the runtime's message."""
        try:
            self._values = {k: _value(v) for k, v in arrays.items()}
            values = self._session.run_with_ort_values(None, self._values)
        except Exception as error:  # the runtime's exception types share no base of its own
            raise EngineError(runtime_message(error)) from error
        return [_fetch(v, slot) for v, slot in zip(values, self.outputs, strict=True)]

    def time(self) -> float:
        """Milliseconds of one more run on the same inputs, without any copy of ours."""
        start = time.perf_counter()
        self._session.run_with_ort_values(None, self._values)
        return (time.perf_counter() - start) * 1e3

    def close(self) -> None:
        """Nothing to end in this process."""


def _value(array: Array) -> Any:
    import onnxruntime as ort

    if array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(array)
    from onnx.helper import np_dtype_to_tensor_dtype

    bits = array.view(np.uint16 if array.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, np_dtype_to_tensor_dtype(array.dtype))


def _fetch(value: Any, slot: Slot) -> Array:
    dtype = element_dtype(slot)
    if dtype.isbuiltin == 1:
        return np.array(value.numpy())
    # the runtime has no numpy type for it, but the bytes are there
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
