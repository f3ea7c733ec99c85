"""What the original's runs say of each other: does it agree with itself, is it finite, how large is it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .parity import budget as parity
from .parity.float_types import float_type, is_float
from .parity.metrics import measure

__all__ = ["not_finite", "scale_of", "ties", "unsteady"]

Array = npt.NDArray[Any]


def unsteady(first: Array, again: Array) -> str:
    """Why the original disagrees with itself; a few ULPs (threads, alignment) are no reason."""
    if first.shape != again.shape:
        return f"nondeterministic: the original returned shape {first.shape}, then {again.shape}"
    if not is_float(first):
        differ = int((first != again).sum())
        return f"nondeterministic: the original differs from itself in {differ} elements" if differ else ""
    budget = parity.blind(scale_of(first), first.dtype, "")
    found = measure(again, first, rtol=budget.rtol, atol=budget.atol)
    if found.identical or not found.mismatches:
        return ""
    return (
        f"nondeterministic: the original differs from itself by {found.max_abs:.2g} "
        f"in {found.mismatches} elements"
    )


def not_finite(array: Array, wide: Array | None) -> bool:
    """Whether an element is Inf or NaN that is finite in the wider run."""
    return wide is not None and bool((~np.isfinite(array) & np.isfinite(wide)).any())


def ties(array: Array, wide: Array | None) -> str:
    """A note on an integer output that a wider run decides otherwise; empty where it does not."""
    if wide is None or is_float(array) or array.shape != wide.shape:
        return ""
    differ = int((array != wide).sum())
    return f"the original itself gives {differ} other values in a wider dtype (ties?)" if differ else ""


def scale_of(array: Array) -> float:
    """The largest finite magnitude."""
    return measure(array, array).scale if array.size else float_type(array.dtype).smallest
