"""How much of an error another value would explain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected, is_float
from ..parity.compare import compare_output
from ..record import PASSED

__all__ = ["Explained", "explained", "failing", "share_text"]

Array = npt.NDArray[Any]

ENOUGH = 0.98  # of the error: what a cause must explain where the rest is more than rounding
SUPPORTED = 0.5  # where the rest is rounding: a cause that explains less is a coincidence


@dataclass(frozen=True, slots=True)
class Explained:
    """`share` of the error, 1 for all of it; `exact`: what remains is within the budget."""

    share: float
    exact: bool

    @property
    def convincing(self) -> bool:
        return self.share >= ENOUGH or (self.exact and self.share >= SUPPORTED)


def explained(got: Array, expected: Expected, alternative: Array) -> Explained:
    """How well `alternative` stands for `got`, where `expected` does not."""
    want = expected.array
    if got.shape != alternative.shape or got.shape != want.shape:
        # another shape is no numeric error: it is explained only by the value itself
        same = got.shape == alternative.shape and _passes(got, expected, alternative)
        return Explained(1.0 if same else 0.0, same)
    before, after = _rms(got, want), _rms(got, alternative)
    if before == 0:
        return Explained(0.0, False)
    if math.isinf(after):
        return Explained(0.0, False)
    if math.isinf(before):  # NaN or Inf on one side: no size to compare with but that of the output
        before = _rms(got, np.zeros_like(got))
        if before == 0 or math.isinf(before):
            return Explained(0.0, False)
    share = max(0.0, 1 - after / before)
    return Explained(share, _passes(got, expected, alternative))


def failing(got: list[Array], expected: list[Expected]) -> Iterator[tuple[int, Array, Expected]]:
    """The outputs that differ, numbered."""
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        if not e.unsteady and compare_output("", "", "", g, e).verdict != PASSED:
            yield k, g, e


def share_text(found: Explained) -> str:
    """`all of the difference`, `99.1 % of the difference`."""
    if found.exact or found.share > 0.99995:
        return "all of the difference"
    return f"{100 * found.share:.1f} % of the difference"


def _passes(got: Array, expected: Expected, alternative: Array) -> bool:
    if got.dtype != alternative.dtype:
        return False
    other = replace(expected, array=alternative, wide=None, unsteady="", note="", undecided=None, again=None)
    return compare_output("", "", "", got, other).verdict == PASSED


def _rms(a: Array, b: Array) -> float:
    """Of the difference; infinity where one side alone is NaN or Inf."""
    if not (is_float(a) or is_float(b)):
        return (
            float(np.sqrt(np.mean(np.square(a.astype(np.float64) - b.astype(np.float64))))) if a.size else 0.0
        )
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(x) & np.isfinite(y)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if not (finite | same).all():
            return math.inf
        if not finite.any():
            return 0.0
        return float(np.sqrt(np.mean(np.square(x[finite] - y[finite]))))
