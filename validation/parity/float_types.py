"""The constants of binary floating-point types, those of ml_dtypes included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FloatType", "float_type", "is_float"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class FloatType:
    """The constants of a binary floating-point type.

    Attributes:
        eps: distance from 1 to the next number, 2**-(p-1) for a significand of p bits.
        smallest: the smallest positive subnormal; the spacing of numbers near zero.
        tiny: the smallest positive normal number.
        largest: the largest finite number.
    """

    name: str
    eps: float
    smallest: float
    tiny: float
    largest: float

    @property
    def coarse(self) -> float:
        """What a budget may allow any element without being too coarse: little beside values of order one."""
        return max(2.0**-10, 16 * self.eps)


def float_type(dtype: Any) -> FloatType:
    """The constants of a floating dtype, of numpy or of ml_dtypes (bfloat16, float8)."""
    dtype = np.dtype(dtype)
    info: Any
    if dtype.kind == "f":
        info = np.finfo(dtype)
    else:
        import ml_dtypes

        info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return FloatType(
        dtype.name,
        float(info.eps),
        float(info.smallest_subnormal),
        float(info.smallest_normal),
        float(info.max),
    )


def is_float(array: Array) -> bool:
    """Whether the dtype is floating point, those of ml_dtypes included."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))
