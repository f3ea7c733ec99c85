"""Running sums and maxima over the chunks of one comparison, and how two of them join."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .difference import LADDER
from .float_types import FloatType

__all__ = ["CHUNK", "ROWS", "STEPS", "WORST", "Tolerance", "Totals", "row_of", "total"]

Array = npt.NDArray[Any]

CHUNK = 1 << 15  # elements; a float64 temporary of 256 kB stays in the L2 cache
ROWS = 1 << 12  # the upper 12 bits of a float64: its sign and its exponent
STEPS = 3  # bits of the mantissa that the error's histogram resolves
WORST = 5
ORDER_ONE = 2.0**-19  # what functions of order one are off by where they are computed in float32
EXPONENT = np.int64(0x7FF0000000000000)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|got - want| <= atol + rtol * |want|; `rows` has an atol for each sign and exponent of `want` instead.

    `coarse`: an element that may be off by more than this part of itself is counted, see `Metrics.coarse`.
    """

    rtol: float = 0.0
    atol: float = math.inf
    rows: Array | None = None
    coarse: float = math.inf


def row_of(value: float) -> int:
    """Of a table with `ROWS` rows: the sign and exponent bits of the float64."""
    return int(np.float64(value).view(np.uint64) >> np.uint64(52))


@dataclass
class Totals:
    """Everything that was added up of a part of the two arrays. `join` adds the part that follows it."""

    base: int
    compared: int = 0
    equal: int = 0
    nonzero: int = 0
    coarse: int = 0
    mismatches: int = 0
    nan: int = 0
    inf: int = 0
    overflow: int = 0
    overflow_gap: float = 0.0
    overflowed: int = 0
    sum_abs: float = 0.0
    sum_err2: float = 0.0
    dot: float = 0.0
    got2: float = 0.0
    want2: float = 0.0
    err_want: float = 0.0
    err_want2: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    scale: float = 0.0
    excess: float = 0.0
    over: float = 0.0
    identical: bool = True
    required: Array = field(default_factory=lambda: np.zeros(len(LADDER)))
    worst: list[tuple[float, int, float, float]] = field(default_factory=list)
    counts: Array = field(default_factory=lambda: np.zeros(ROWS, np.int64))
    errors: Array = field(default_factory=lambda: np.zeros(ROWS))
    squares: Array = field(default_factory=lambda: np.zeros(ROWS))
    excesses: Array = field(default_factory=lambda: np.zeros(ROWS))
    more: Array = field(default_factory=lambda: np.zeros(ROWS, np.int64))
    less: Array = field(default_factory=lambda: np.zeros(ROWS, np.int64))
    histogram: Array = field(default_factory=lambda: np.zeros(1, np.int64))

    def join(self, other: Totals) -> None:
        for name in _ADDED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _LARGEST:
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        self.identical = self.identical and other.identical
        for name in ("counts", "errors", "squares", "more", "less"):
            getattr(self, name).__iadd__(getattr(other, name))
        np.maximum(self.excesses, other.excesses, out=self.excesses)
        np.maximum(self.required, other.required, out=self.required)
        self._count(other.histogram)
        self.worst = _worst(self.worst + other.worst)

    def _count(self, more: Array) -> None:
        if more.size > self.histogram.size:
            self.histogram = np.concatenate(
                [self.histogram, np.zeros(more.size - self.histogram.size, np.int64)]
            )
        self.histogram[: more.size] += more

    def add(
        self,
        start: int,
        got_: Array,
        original_: Array,
        reference_: Array | None,
        kind: FloatType,
        tolerance: Tolerance,
    ) -> None:
        """One chunk, which begins at `start`. Caller ignores numpy's warnings."""
        got, original = got_.astype(np.float64), original_.astype(np.float64)
        want = original if reference_ is None else reference_.astype(np.float64)
        if self.identical:
            same = got == original
            self.identical = bool(same.all()) or bool((same | (np.isnan(got) & np.isnan(original))).all())
        place = None
        # a sum is finite only if every term is (and a huge sum only costs the careful way)
        sums = got.sum() + original.sum() + (0.0 if reference_ is None else want.sum())
        if not np.isfinite(sums):
            if reference_ is not None:
                self._specials(start, got, original, want, kind)
                want = np.where(np.isfinite(want), want, original)
            else:
                self._specials(start, got, original, None, kind)
            finite = np.isfinite(got) & np.isfinite(original)
            place = np.flatnonzero(finite)
            got, want = got[finite], want[finite]
        if got.size:
            self._finite(start, got, want, place, kind, tolerance)

    def _finite(
        self, start: int, got: Array, want: Array, place: Array | None, kind: FloatType, tolerance: Tolerance
    ) -> None:
        difference = got - want
        error, size = np.abs(difference), np.abs(want)
        rows = want.view(np.int64) >> 52
        rows &= ROWS - 1
        allowed = size * tolerance.rtol if tolerance.rtol else None
        over = error if allowed is None else error - allowed
        score = error
        if tolerance.rows is not None or math.isfinite(tolerance.atol):
            limit = tolerance.atol if tolerance.rows is None else tolerance.rows.take(rows, mode="clip")
            limit = limit if allowed is None else np.add(allowed, limit, out=allowed)
            self.coarse += _too_coarse(limit, size, tolerance.coarse, kind)
            score = np.divide(error, limit) if np.all(limit) else np.where(error > 0, error / limit, 0.0)
        largest = float(score.max())
        if score is not error:
            self.over = max(self.over, largest)
            if largest > 1:
                self.mismatches += int(np.count_nonzero(score > 1))
        self._keep_worst(start, score, got, want, place, largest)

        self.compared += got.size
        self.equal += got.size - int(np.count_nonzero(difference))
        self.nonzero += int(np.count_nonzero(size))
        self.sum_abs += float(error.sum())
        products = difference * want
        self.sum_err2 += total(difference, difference)
        self.err_want += float(products.sum())
        self.err_want2 += total(products, products)
        self.dot += total(got, want)
        self.got2 += total(got, got)
        self.want2 += total(want, want)
        largest_error = float(error.max())
        self.max_abs = max(self.max_abs, largest_error)
        self.scale = max(self.scale, float(size.max()))
        self.excess = max(self.excess, float(over.max()))
        self._ladder(error, size, largest_error)

        counts = np.bincount(rows)
        used = slice(0, counts.size)
        self.counts[used] += counts
        self.errors[used] += np.bincount(rows, weights=difference)
        squares = np.square(difference, out=products)
        self.squares[used] += np.bincount(rows, weights=squares)
        np.maximum.at(self.excesses, rows, over)
        if kind.eps > 2.0**-23:
            self._leaning(rows, difference, error, size, kind)
        steps = error.view(np.int64) >> (52 - STEPS)
        steps -= self.base << STEPS
        np.maximum(steps, 0, out=steps)
        self._count(np.bincount(steps))

        relative = np.divide(error, size, out=products)
        # 0/0 and x/0: no relative error to speak of
        if not size.all():
            relative[size == 0] = 0.0
        self.max_rel = max(self.max_rel, float(relative.max()))
        # the exponent bits of a float64 alone are the power of two below it, and so the ULP over eps
        bits = size.view(np.int64)
        bits &= EXPONENT
        size *= kind.eps
        np.maximum(size, kind.smallest, out=size)
        self.max_ulp = max(self.max_ulp, float(np.divide(error, size, out=products).max()))

    def _leaning(self, rows: Array, difference: Array, error: Array, size: Array, kind: FloatType) -> None:
        far = np.flatnonzero(error > size * (2 * kind.eps) + (ORDER_ONE + 2 * kind.smallest))
        if far.size:
            grows = (difference[far] > 0) == (rows[far] < ROWS // 2)
            self.more += np.bincount(rows[far[grows]], minlength=ROWS)
            self.less += np.bincount(rows[far[~grows]], minlength=ROWS)

    def _ladder(self, error: Array, size: Array, largest: float) -> None:
        self.required[0] = max(self.required[0], largest)
        buffer = np.empty_like(size)
        for i, rtol in enumerate(LADDER):
            if not i:
                continue
            # what no element of this chunk can exceed needs no look
            if largest <= self.required[i]:
                continue
            np.multiply(size, -rtol, out=buffer)
            buffer += error
            self.required[i] = max(self.required[i], float(buffer.max()))

    def _keep_worst(
        self,
        start: int,
        score: Array,
        got: Array,
        want: Array,
        place: Array | None,
        largest: float,
    ) -> None:
        least = self.worst[-1][0] if len(self.worst) == WORST else 0.0
        if not largest > least:
            return
        at = np.flatnonzero(
            score > least
        )  # few, but for the first chunks: equal scores make a partition slow
        if at.size > WORST:
            at = at[np.argpartition(score[at], at.size - WORST)[at.size - WORST :]]
        found = [
            (float(score[i]), start + int(i if place is None else place[i]), float(got[i]), float(want[i]))
            for i in at.tolist()
        ]
        self.worst = _worst(self.worst + found)

    def _specials(
        self, start: int, got: Array, original: Array, reference: Array | None, kind: FloatType
    ) -> None:
        nan = np.isnan(got) != np.isnan(original)
        inf = (np.isinf(got) | np.isinf(original)) & (got != original)
        inf &= ~(np.isnan(got) | np.isnan(original))
        near = np.zeros(got.shape, bool)
        if reference is not None:
            size = np.abs(reference)
            self.overflowed += int((np.isfinite(reference) & ~np.isfinite(original)).sum())
            one = np.isinf(got) != np.isinf(original)
            near = (
                inf & one & (np.sign(got) == np.sign(reference)) & (np.sign(original) == np.sign(reference))
            )
            near &= (size <= 2 * kind.largest) & (size >= kind.largest / 2)
            if near.any():
                finite = np.where(np.isinf(got), np.sign(reference) * kind.largest, got)
                gap = np.abs(finite - reference)[near]
                self.overflow_gap = max(self.overflow_gap, float(gap.max()))
                self.overflow += int(near.sum())
                inf &= ~near
        wrong = nan | inf
        self.nan += int(nan.sum())
        self.inf += int(inf.sum())
        self.mismatches += int(wrong.sum())
        for rank, where in ((math.inf, wrong), (0.0, near)):
            for at in np.flatnonzero(where)[:WORST].tolist():
                self.worst.append((rank, start + at, float(got[at]), float(original[at])))
        self.worst = _worst(self.worst)


_ADDED = (
    "compared",
    "equal",
    "nonzero",
    "coarse",
    "mismatches",
    "nan",
    "inf",
    "overflow",
    "overflowed",
    "sum_abs",
    "sum_err2",
    "dot",
    "got2",
    "want2",
    "err_want",
    "err_want2",
)
_LARGEST = ("overflow_gap", "max_abs", "max_rel", "max_ulp", "scale", "excess", "over")


def _worst(found: list[tuple[float, int, float, float]]) -> list[tuple[float, int, float, float]]:
    return sorted(found, key=lambda w: (-w[0], w[1]))[:WORST]


def _too_coarse(limit: Any, size: Array, part: float, kind: FloatType) -> int:
    """Elements other than 0 that may be off by more than a part of themselves, and by more than `kind.coarse`."""
    if not math.isfinite(part) or not np.max(limit) > kind.coarse:
        return 0
    return int(np.count_nonzero((limit > np.maximum(size * part, kind.coarse)) & (size > 0)))


def total(a: Array, b: Array) -> float:
    """The dot product. Not `a @ b`: the threads of BLAS cost more than they save on a chunk, and fight with the
    sides that are measured."""
    return float(np.einsum("i,i->", a, b))
