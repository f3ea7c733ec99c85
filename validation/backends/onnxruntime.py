"""ONNX Runtime on the CPU, in this process, which a crash of the runtime would end."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from ...ort_ops import session
from .torch import to_array

__all__ = ["FeedError", "OnnxRuntime"]

Array = npt.NDArray[Any]

# ONNX element types that numpy does not know: name -> (TensorProto number, ml_dtypes name)
_FOREIGN = {
    "bfloat16": (16, "bfloat16"),
    "float8e4m3fn": (17, "float8_e4m3fn"),
    "float8e4m3fnuz": (18, "float8_e4m3fnuz"),
    "float8e5m2": (19, "float8_e5m2"),
    "float8e5m2fnuz": (20, "float8_e5m2fnuz"),
}
_NUMPY = {"float": "float32", "double": "float64"}


class FeedError(Exception):
    """The ONNX model takes another input than the original does: a fault of the model, not of the call."""


class OnnxRuntime:
    """A session and what was learned about feeding it.

    Attributes:
        load_ms: time to open the session, milliseconds.
        outputs: names of the graph's outputs, in order.
        notes: what the reader of the report should know; no duplicates.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None,
        optimize: bool,
        libraries: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.name = "onnxruntime" if optimize else "onnxruntime, optimiser off"
        start = time.perf_counter()
        self.session = session(path, threads=threads, optimize=optimize, libraries=libraries)
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.outputs = tuple(o.name for o in self.session.get_outputs())
        self.notes: dict[str, None] = {}

    def run(self, inputs: Sequence[tuple[str, Any]]) -> list[Array]:
        return self.run_feed(self.feed(inputs))

    def run_feed(self, feed: dict[str, Any]) -> list[Array]:
        """Outputs as arrays that own their memory."""
        values = self.session.run_with_ort_values(None, feed)
        return [_fetch(v, name) for v, name in zip(values, self.outputs, strict=True)]

    def feed(self, inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """The runtime's values by input name. Raises UsageError for a missing input, else FeedError."""
        wanted = self.session.get_inputs()
        chosen = self._match([i.name for i in wanted], inputs)
        return {i.name: _value(i, chosen[i.name]) for i in wanted}

    def _match(self, wanted: list[str], inputs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        by_name = dict(inputs)
        if all(name in by_name for name in wanted):
            unused = [n for n, v in inputs if n not in wanted and hasattr(v, "shape")]
            if unused:
                self.notes[f"not inputs of the ONNX model, so not fed: {', '.join(unused)}"] = None
            return {name: by_name[name] for name in wanted}
        tensors = [(n, v) for n, v in inputs if hasattr(v, "shape")]
        for given in (tensors, list(inputs)):
            if len(given) == len(wanted):
                pairs = ", ".join(f"{n} -> {w}" for (n, _), w in zip(given, wanted, strict=True) if n != w)
                self.notes[f"inputs matched by position: {pairs}"] = None
                return {w: v for w, (_, v) in zip(wanted, given, strict=True)}
        missing = [name for name in wanted if name not in by_name]
        raise UsageError(
            f"the ONNX model takes {len(wanted)} inputs ({', '.join(wanted)}); the sample has "
            f"{len(tensors)} tensors "
            f"({', '.join(n for n, _ in tensors) or 'none'}). Missing: {', '.join(missing)}"
        )


def _value(info: Any, value: Any) -> Any:
    import onnxruntime as ort

    kind = info.type
    if not kind.startswith("tensor("):
        raise FeedError(f"input {info.name} has type {kind}: only tensors can be fed")
    element = kind[len("tensor(") : -1]
    if hasattr(value, "detach"):
        array = to_array(value)
    elif hasattr(value, "shape"):
        array = np.ascontiguousarray(value)
    else:
        array = np.asarray(value, dtype=_NUMPY.get(element, element))
    expected = _FOREIGN[element][1] if element in _FOREIGN else _NUMPY.get(element, element)
    if array.dtype.name != expected:
        raise FeedError(
            f"input {info.name}: the original takes {array.dtype.name}, the ONNX model takes {expected}"
        )
    if element in _FOREIGN:
        bits = array.view(np.uint16 if array.itemsize == 2 else np.uint8)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _FOREIGN[element][0])
    return ort.OrtValue.ortvalue_from_numpy(array)


def _fetch(value: Any, name: str) -> Array:
    if not value.is_tensor():
        raise FeedError(f"output {name} has type {value.data_type()}: only tensors can be compared")
    element = value.data_type()[len("tensor(") : -1]
    if element not in _FOREIGN:
        return np.array(value.numpy())
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, _FOREIGN[element][1]))
    shape = tuple(value.shape())
    size = int(np.prod(shape)) * dtype.itemsize
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
