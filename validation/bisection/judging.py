"""An intermediate value against its reference: the same budget as an output's, from the error of one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected
from ..parity import budget
from ..parity.compare import compare_output
from ..parity.float_types import is_float
from ..parity.metrics import float_type, measure
from ..record import Cell, ValueRange
from .reference import Reference

__all__ = ["expected_value", "judged", "judged_against", "value_range"]

Array = npt.NDArray[Any]

_OWN = "PyTorch's own error from the same inputs, against float64"


def expected_value(array: Array, wide: Array | None) -> Expected:
    """What a value may be, from the reference in the deployed dtype and in float64, both from the same inputs."""
    if not is_float(array):
        ties = wide is not None and bool((array != wide).any())
        note = "the reference itself gives other values in float64 (ties?)" if ties else ""
        return Expected(array, None, budget.EXACT, note)
    if wide is None or array.dtype == np.float64:
        scale = measure(array, array).scale if array.size else float_type(array.dtype).smallest
        return Expected(array, None, budget.blind(scale, array.dtype, "no wider reference"))
    own = measure(array, array, wide, rtol=budget.own_rtol(array.dtype))
    return Expected(array, wide, budget.derived(own, array.dtype, _OWN))


def judged(name: str, got: Array, array: Array, wide: Array | None) -> Cell:
    """The verdict on one value."""
    return compare_output("", name, "", got, expected_value(array, wide))


def judged_against(reference: Reference, name: str, got: Array, wide: Array | None) -> Cell:
    """The verdict on a value of the file, in the dtype in which the reference has it."""
    want = reference.expected(name)
    if got.dtype == reference.values[name].dtype != want.dtype and is_float(got) and is_float(want):
        with np.errstate(all="ignore"):
            got = got.astype(want.dtype)
    return judged(name, got, want, wide)


def value_range(name: str, array: Array) -> ValueRange:
    """The extremes of the finite elements, and the count of the others."""
    kind = array.dtype.name
    if not is_float(array):
        if not array.size or array.dtype.kind not in "iub":
            return ValueRange(name, kind, array.shape, 0.0, 0.0)
        return ValueRange(name, kind, array.shape, float(array.min()), float(array.max()))
    with np.errstate(all="ignore"):
        numbers = array.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return ValueRange(
        name, kind, array.shape, low, high, int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
    )
