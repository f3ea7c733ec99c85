"""Integers that wrapped or were clipped: one side computed in a narrower type than the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected
from ..parity.float_types import is_float
from ..record import Finding
from .residual import Wrong, failing

__all__ = ["explain"]

Array = npt.NDArray[Any]

KIND = "integer overflow"
_TYPES = ("int32", "int16", "int8", "uint32", "uint16", "uint8")
_EXACT = 2.0**53  # whole numbers above it are not told apart in float64


def explain(
    got: list[Array],
    expected: list[Expected],
    names: Sequence[str],
    wrong: Sequence[Wrong] | None = None,
) -> Iterator[Finding]:
    """Outputs of whole numbers that are the other side's, reduced to a narrower type.

    Nothing is said of a difference that is merely a multiple of 2**8: every element that differs must be exactly what
    the narrower type makes of a value outside its range, and every element that agrees lie inside.
    """
    for k, g, e in failing(got, expected) if wrong is None else wrong:
        candidate, original = _whole(g), _whole(e.array)
        if candidate is None or original is None or g.shape != e.array.shape:
            continue
        for narrow, wide, who in (
            (candidate, original, "the candidate computes"),
            (original, candidate, "the original computes, and the candidate does not,"),
        ):
            found = _reduced(narrow, wide)
            if found is None:
                continue
            dtype, how, count = found
            low, high = int(wide.min()), int(wide.max())
            yield Finding(
                KIND,
                "note",
                f"{who} {names[k]} in {dtype}: {count} values outside its range {how}; without that they reach from "
                f"{low:,} to {high:,}",
                where=names[k],
                advice="convert to int64 before the sum or product, on both sides (`x.to(torch.int64)`)",
            )
            break


def _whole(array: Array) -> Array | None:
    """The values as int64, None where some are not whole numbers that int64 and float64 hold."""
    if array.dtype.kind == "b" or not array.size:
        return None
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if not is_float(array):
        return None
    wide = array.astype(np.float64)
    if not np.isfinite(wide).all() or (np.abs(wide) > _EXACT).any() or (wide != np.round(wide)).any():
        return None
    return wide.astype(np.int64)


def _reduced(narrow: Array, wide: Array) -> tuple[str, str, int] | None:
    """(type, what became of the values, how many) where `narrow` is `wide` reduced to the type."""
    for name in _TYPES:
        info = np.iinfo(name)
        outside = (wide < info.min) | (wide > info.max)
        if not outside.any():
            continue
        for how, made in (
            ("wrapped around", wide.astype(name).astype(np.int64)),
            ("were clipped", wide.clip(info.min, info.max)),
        ):
            if how == "were clipped" and not (wide > info.max).any():
                continue  # numbers below zero set to zero are a ReLU, not an unsigned type
            if np.array_equal(narrow, made):
                return name, how, int(outside.sum())
    return None
