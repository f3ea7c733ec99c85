"""A value of a graph as far as its cost goes: element type and shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Value", "element_bytes"]


@dataclass(frozen=True, slots=True)
class Value:
    """Element type by ONNX's name in lower case ("float16", "int4"), and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return math.ceil(self.count * element_bytes(self.dtype))


_BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "uint64": 8,
    "int32": 4, "uint32": 4, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8,
    "complex128": 16, "float8e4m3fn": 1, "float8e4m3fnuz": 1, "float8e5m2": 1, "float8e5m2fnuz": 1, "float8e8m0": 1,
    "int4": 0.5, "uint4": 0.5, "float4e2m1": 0.5, "int2": 0.25, "uint2": 0.25,
}  # fmt: skip


def element_bytes(dtype: str) -> float:
    """Bytes of an element, half a byte for int4; 0 for what has no fixed size (strings)."""
    return _BYTES.get(dtype, 0)
