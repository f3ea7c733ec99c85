"""Whether another value explains an error: taken instead, it leaves nothing beyond the output's budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..original import Expected
from ..parity.compare import compare_output
from ..parity.float_types import is_float
from ..record import FAILED, PASSED, Cell

if TYPE_CHECKING:
    from ..backends import Sample

__all__ = [
    "Elsewhere",
    "Wrong",
    "explains",
    "failing",
    "nowhere",
    "repairs",
    "rms_of_difference",
    "same_bytes",
    "scattered",
]

Array = npt.NDArray[Any]

SUPPORTED = 0.5  # of the error: a cause that explains less is a coincidence, even where the rest is rounding
FEW = 1000  # one wrong element in so many is no layout, no scale and no other weight
SAMPLED = 4096  # elements that a cause is tried on first

# Other samples with what the candidate and the original gave: a cause must hold on them too. Run when first asked for.
Elsewhere = Callable[[], "Sequence[tuple[Sample, list[Array], list[Expected]]]"]
Wrong = tuple[int, Array, Expected]


def nowhere() -> Sequence[tuple[Sample, list[Array], list[Expected]]]:
    return ()


def repairs(undone: Array, expected: Expected, everywhere: bool = False) -> bool:
    """Whether the candidate's output, with a cause undone, is within the budget; `everywhere`: or cannot be judged."""
    want = expected.array
    if undone.shape != want.shape:
        return False
    if undone.dtype != want.dtype:
        with np.errstate(all="ignore"):
            undone = undone.astype(want.dtype)
    verdict = _compared(undone, expected).verdict
    return verdict == PASSED or (everywhere and verdict != FAILED)


def promising(undone: Array, got: Array, want: Array) -> bool:
    """Whether a few elements speak for a cause: most that are tried need no look at all of them."""
    if undone.shape != want.shape:
        return False
    step = max(want.size // SAMPLED, 1)
    step += 1 - step % 2
    a, b = undone.reshape(-1)[::step], want.reshape(-1)[::step]
    before = rms_of_difference(got.reshape(-1)[::step], b) if got.shape == want.shape else math.inf
    after = rms_of_difference(a, b)
    return before == 0 or after <= (1 - SUPPORTED) * before or (math.isinf(before) and math.isfinite(after))


def explains(got: Array, expected: Expected, alternative: Array, everywhere: bool = False) -> bool:
    """Whether `got` is `alternative`, within the budget of `expected` at its own scale, where it is not `expected`."""
    want = expected.array
    if got.shape != alternative.shape or got.dtype != alternative.dtype:
        return False
    if not everywhere and got.shape == want.shape:
        before, after = rms_of_difference(got, want), rms_of_difference(got, alternative)
        if math.isinf(before):  # NaN or Inf on one side: no size to compare with but that of the output
            before = rms_of_difference(got, np.zeros_like(got))
        if not (0 < before < math.inf and after <= (1 - SUPPORTED) * before):
            return False
    if is_float(got):
        got, alternative = _rescaled(got, alternative, want)
    other = replace(expected, array=alternative, wide=None, unsteady="", note="", undecided=None, again=None)
    verdict = _compared(got, other).verdict
    return verdict == PASSED or (everywhere and verdict != FAILED)


def failing(got: list[Array], expected: list[Expected]) -> Iterator[Wrong]:
    """The outputs that differ, numbered."""
    for k, (g, e) in enumerate(zip(got, expected, strict=True)):
        if not e.unsteady and _compared(g, e).verdict == FAILED:
            yield k, g, e


def scattered(got: Array, want: Array) -> bool:
    """Whether so few elements differ visibly that no cause of the whole output is behind it."""
    if got.shape != want.shape or got.size < FEW:
        return False
    if not is_float(want):
        return 0 < int(np.count_nonzero(got != want)) * FEW <= got.size
    with np.errstate(all="ignore"):
        gap = np.abs(got.astype(np.float64) - want.astype(np.float64))
        worst = np.nanmax(gap, initial=0.0)
        far = int(np.count_nonzero(~(gap <= 1e-3 * worst))) if math.isfinite(worst) else 0
    return 0 < far * FEW <= got.size


def rms_of_difference(a: Array, b: Array) -> float:
    """Root mean square; infinity where one side alone is NaN or Inf."""
    if not a.size:
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(x) & np.isfinite(y)
        if finite.all():
            return float(np.sqrt(np.mean(np.square(x - y))))
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        if not (finite | same).all():
            return math.inf
        if not finite.any():
            return 0.0
        return float(np.sqrt(np.mean(np.square(x[finite] - y[finite]))))


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays are equal bit by bit: NaN equals NaN, and 0 is not -0. The first elements tell most apart."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (a, b))
    return np.array_equal(x[:SAMPLED], y[:SAMPLED]) and np.array_equal(x, y)


def _compared(got: Array, expected: Expected) -> Cell:
    return compare_output("", "", "", got, expected)


def _rescaled(got: Array, alternative: Array, want: Array) -> tuple[Array, Array]:
    """Both by a power of two, so that the alternative is of the size that the budget was derived for."""
    zero = np.zeros_like
    there, here = rms_of_difference(alternative, zero(alternative)), rms_of_difference(want, zero(want))
    if not (0 < there < math.inf and 0 < here < math.inf):
        return got, alternative
    factor = 2.0 ** -round(math.log2(there / here))
    if factor == 1:
        return got, alternative
    with np.errstate(all="ignore"):
        return tuple((a.astype(np.float64) * factor).astype(a.dtype) for a in (got, alternative))  # type: ignore[return-value]
