"""Weights in a narrower type: converted once, with what did not survive counted. Nothing becomes infinite without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "NarrowPrecision", "Narrowed", "element_type", "narrowed"]

Array = npt.NDArray[Any]
NarrowPrecision = Literal["fp16", "bf16"]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A float32 tensor in a narrower type.

    Attributes:
        values: of the same shape. Where `beyond` is not 0, they are not to be used.
        count: of all values.
        beyond: finite values that would have become infinite.
        largest: magnitude of the largest finite value.
        zeros: values that have become zero and were not.
        subnormal: values that have become subnormal, with fewer digits than others.
        rounded: whole numbers that have become others.
        whole: all finite values are whole numbers, and some were rounded: positions, say.
        all_one: all are just below 1 (or -1), and have become that: a bound that keeps a logarithm finite, say.
    """

    values: Array
    count: int
    beyond: int
    largest: float
    zeros: int
    subnormal: int
    rounded: int = 0
    whole: bool = False
    all_one: bool = False

    @property
    def all_zero(self) -> bool:
        """Everything that was there is gone: an epsilon, say."""
        return self.zeros > 0 and not self.values.astype(bool).any()


def element_type(precision: NarrowPrecision) -> int:
    """ONNX's number of it."""
    import onnx

    return int(onnx.TensorProto.FLOAT16 if precision == "fp16" else onnx.TensorProto.BFLOAT16)


def narrowed(values: Array, precision: NarrowPrecision) -> Narrowed:
    """`values`: float32, any shape. Rounded to nearest, ties to even; NaN and infinities stay."""
    import ml_dtypes

    kind: Any = np.float16 if precision == "fp16" else ml_dtypes.bfloat16
    tiny = 2.0**-14 if precision == "fp16" else 2.0**-126  # the smallest normal numbers
    with np.errstate(over="ignore", under="ignore"):
        found = values.astype(kind)
    finite = np.isfinite(values)
    magnitude = np.abs(values)
    there = magnitude > 0
    gone = there & (found == 0)
    exact = 2048.0 if precision == "fp16" else 256.0  # whole numbers up to it are all there
    large = finite & (magnitude > exact)
    rounded, whole = 0, False
    if large.any():
        wide = found.astype(np.float32)
        rounded = int((large & np.isfinite(wide) & (wide != values) & (np.floor(values) == values)).sum())
        whole = rounded > 0 and bool((np.floor(values) == values)[finite].all())
    return Narrowed(
        values=found,
        count=int(values.size),
        beyond=int((finite & ~np.isfinite(found.astype(np.float32))).sum()),
        largest=float(magnitude[finite].max()) if finite.any() else 0.0,
        zeros=int(gone.sum()),
        subnormal=int((there & ~gone & (np.abs(found.astype(np.float32)) < tiny)).sum()),
        rounded=rounded,
        whole=whole,
        all_one=bool(values.size) and bool(((magnitude < 1) & (np.abs(found) == 1)).all()),
    )
