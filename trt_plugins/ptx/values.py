"""What a register holds: an array with a number for each lane, or one number that all lanes share."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "as_type", "canonical", "dtype_of", "flushed", "halves", "is_float", "joined"]

Array = Any  # numpy array of shape (lanes,), or a numpy scalar

_DTYPES = {
    "pred": np.dtype(bool), "f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8"),
    "bf16": np.dtype("u2"), "f16x2": np.dtype("u4"), "bf16x2": np.dtype("u4"),
    **{f"{k}{n}": np.dtype(f"{'i' if k == 's' else 'u'}{n // 8}") for k in "bus" for n in (8, 16, 32, 64)},
}  # fmt: skip
_UNSIGNED = {n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)}

_NAN = {
    # PTX ISA: what an operation makes of NaN, for float32; for float64, a quiet one
    np.dtype("f2"): np.uint16(0x7FFF).view(np.float16),
    np.dtype("f4"): np.uint32(0x7FFFFFFF).view(np.float32),
    np.dtype("f8"): np.uint64(0x7FF8000000000000).view(np.float64),
}


def dtype_of(kind: str) -> np.dtype[Any] | None:
    """numpy's dtype for a PTX type; None where there is none. Pairs and bfloat16 are held as bits."""
    return _DTYPES.get(kind)


def is_float(kind: str) -> bool:
    return kind[0] == "f" or kind.startswith("bf")


def as_type(value: Array, dtype: np.dtype[Any]) -> Array:
    """The bits of a register as another type; the low ones where that is narrower."""
    own = value.dtype
    if own is dtype or own == dtype:
        return value
    size = own.itemsize
    if size == dtype.itemsize:
        return value.view(dtype)
    bits = value.view(_UNSIGNED[size]).astype(_UNSIGNED[dtype.itemsize])
    return bits if bits.dtype == dtype else bits.view(dtype)


def canonical(value: Array) -> Array:
    """The result of an operation: NaN as the device makes it."""
    wrong = value != value
    return np.where(wrong, _NAN[value.dtype], value) if wrong.any() else value


_SMALLEST = {np.dtype("f2"): 2.0**-14, np.dtype("f4"): 2.0**-126, np.dtype("f8"): 2.0**-1022}


def flushed(value: Array) -> Array:
    """.ftz: numbers below the normal ones become zeros with their sign."""
    small = np.abs(value) < value.dtype.type(_SMALLEST[value.dtype])
    return np.where(small, np.copysign(value.dtype.type(0), value), value) if small.any() else value


def halves(bits: Array) -> tuple[Array, Array]:
    """The low and the high 16 bits of 32."""
    return bits.astype(np.uint16), (bits >> np.uint32(16)).astype(np.uint16)


def joined(low: Array, high: Array) -> Array:
    """32 bits of two times 16."""
    return low.view(np.uint16).astype(np.uint32) | (high.view(np.uint16).astype(np.uint32) << np.uint32(16))
