"""One activation more, less or other at the end: what it would make of the original's output, and of its budget."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected
from ..parity.float_types import float_type
from ..parity.modes import allowed
from .residual import SAMPLED, explains, rms_of_difference

__all__ = ["Holds", "last_operators"]

Array = npt.NDArray[Any]
# Of the candidate's output and what is expected: see `output_forms.Form`.
Holds = Callable[[Array, Expected, bool], bool]

_PRECISE = 0.1  # of the output: an operator that lets every value pass is none
_HALF = 0.5  # of the error: what it must explain


def last_operators(rank: int) -> Iterator[tuple[str, Holds]]:
    """What the candidate's output is, and whether it is, for an output of `rank` axes."""
    for text, function in _OPERATORS.items():
        yield text, _through(function)
    for axis in range(rank):
        yield f"after one more softmax along axis {axis}", _softmaxed(axis)
    for axis, other in itertools.permutations(range(rank), 2):
        yield f"with its softmax along axis {other} instead of {axis}", _softmax_along(axis, other)


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, e, 1.0) / (1 + e)
    return result


# They rise, so that a value's budget becomes that between the two ends of it.
_OPERATORS: dict[str, Callable[[Array], Array]] = {
    "after one more sigmoid": _sigmoid,
    "after one more tanh": np.tanh,
    "after one more ReLU": lambda x: np.maximum(x, 0),
    "after one more exp (or without its log)": np.exp,
    "after one more log (or without its exp)": np.log,
    "without its sigmoid": lambda x: np.log(x / (1 - x)),
    "without its tanh": np.arctanh,
}


def _through(function: Callable[[Array], Array]) -> Holds:
    def holds(g: Array, e: Expected, everywhere: bool) -> bool:
        want = e.array
        step = max(want.size // SAMPLED, 1)
        for part in (slice(None, None, step), slice(None)):
            w, got = (v.reshape(-1)[part].astype(np.float64) for v in (want, g))
            with np.errstate(all="ignore"):
                value = function(w)
                if not np.isfinite(value[np.isfinite(got)]).all():
                    return False
                slack = allowed(w, e.budget)
                ends = np.maximum(np.abs(function(w + slack) - value), np.abs(function(w - slack) - value))
            if not _between(got, value, np.nan_to_num(ends, nan=0.0, posinf=0.0), e, want, everywhere):
                return False
        return everywhere or _gains(g, want, function(want.astype(np.float64)))

    return holds


def _softmaxed(axis: int) -> Holds:
    def holds(g: Array, e: Expected, everywhere: bool) -> bool:
        wide = e.array.astype(np.float64)
        if wide.ndim <= axis or not wide.size or g.shape != wide.shape:
            return False
        with np.errstate(all="ignore"):
            powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
            value = powers / powers.sum(axis=axis, keepdims=True)
            most = 2 * allowed(wide, e.budget).max(axis=axis, keepdims=True)
            ends = value * np.expm1(np.minimum(most, 1.0))
        return _between(g.astype(np.float64), value, ends, e, e.array, everywhere) and (
            everywhere or _gains(g, e.array, value)
        )

    return holds


def _between(got: Array, value: Array, ends: Array, e: Expected, want: Array, everywhere: bool) -> bool:
    """Whether every element is where the budget of the original's, taken through the operator, lets it be."""
    eps = float_type(want.dtype).eps
    finite = value[np.isfinite(value)]
    scale = min(float(np.abs(finite).max(initial=0.0)), 1.0)
    slack = ends + e.budget.rtol * np.abs(value) + 4 * max(eps, 2.0**-23) * scale
    with np.errstate(all="ignore"):
        fits = (np.abs(got - value) <= slack) | (got == value) | (np.isnan(got) & np.isnan(value))
        if not fits.all():
            return False
        rms = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
        loose = float(np.sqrt(np.nanmean(np.square(slack)))) if slack.size else 0.0
    return everywhere or loose <= _PRECISE * rms


def _gains(g: Array, want: Array, value: Array) -> bool:
    """Whether the operator explains most of the error: the output itself must be far off."""
    return rms_of_difference(g, value) <= _HALF * rms_of_difference(g, want)


def _softmax_along(axis: int, other: int) -> Holds:
    """The softmax of the same scores along another axis.

    Scores are known from a softmax up to a constant for each of its rows. So the logarithms of both sides differ by a
    constant for each row of the one plus a constant for each row of the other.
    """

    def holds(g: Array, e: Expected, everywhere: bool) -> bool:
        wide, mine = e.array.astype(np.float64), g.astype(np.float64)
        if (
            g.shape != wide.shape
            or wide.ndim <= max(axis, other)
            or min(wide.shape[axis], wide.shape[other]) < 3
        ):
            return everywhere and g.shape == wide.shape
        if not bool((wide > 0).all() and (mine > 0).all()) or _normalised(mine, axis):
            return False
        if not (_normalised(wide, axis) and _normalised(mine, other)):
            return False
        gap = np.log(wide) - np.log(mine)
        rows = gap.mean(axis=axis, keepdims=True) + gap.mean(axis=other, keepdims=True)
        fit = rows - gap.mean(axis=(axis, other), keepdims=True)
        return explains(g, e, np.exp(np.log(wide) - fit).astype(g.dtype), everywhere)

    return holds


def _normalised(array: Array, axis: int) -> bool:
    return bool(np.allclose(array.sum(axis=axis), 1, atol=1e-2))
