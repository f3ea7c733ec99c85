"""What two arrays differ by, as data. No judgement here: `parity.py` has the budget.

`measure` reads its arrays once, in chunks, in float64, so that memory stays bounded whatever the output's
size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FloatType", "Metrics", "Worst", "float_type", "measure", "measure_exact"]

Array = npt.NDArray[Any]

CHUNK = 1 << 15  # elements; a float64 temporary of 256 kB stays in the L2 cache
EXPONENT = np.int64(0x7FF0000000000000)


@dataclass(frozen=True, slots=True)
class FloatType:
    """The constants of a binary floating-point type.

    Attributes:
        eps: distance from 1 to the next number, 2**-(p-1) for a significand of p bits.
        smallest: the smallest positive subnormal; the spacing of numbers near zero.
    """

    name: str
    eps: float
    smallest: float


@dataclass(frozen=True, slots=True)
class Worst:
    """One element, where the two sides differ most (or the first one whose NaN or Inf is lost)."""

    index: tuple[int, ...]
    got: float
    want: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """Differences of an output from its reference. Numbers cover the elements where both sides are finite.

    Attributes:
        count: elements of the output.
        compared: elements where both sides and the reference are finite.
        max_abs, mean_abs, rms: of |got - want|.
        max_rel: max of |got - want| / |want| over want != 0.
        max_ulp: max of |got - want| / ulp(want), in units of the output's dtype.
        cosine: of the angle between the two; 1.0 where both are zero, 0.0 where one is.
        scale, scale_rms: max and root mean square of |want|.
        eps: spacing of the output's dtype at 1; 0 for integers.
        excess: max of |got - want| - rtol * |want|, at least 0: the absolute tolerance that would pass.
        mismatches: elements out of tolerance, those with a wrong NaN or Inf included.
        nan, inf: elements where exactly one side is NaN; is Inf, or Inf of the other sign.
        identical: every element has the same value (-0 equals 0, NaN equals NaN).
        worst: None for an empty or identical output.
    """

    count: int
    compared: int = 0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    rms: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    cosine: float = 1.0
    scale: float = 0.0
    scale_rms: float = 0.0
    eps: float = 0.0
    excess: float = 0.0
    mismatches: int = 0
    nan: int = 0
    inf: int = 0
    identical: bool = True
    worst: Worst | None = None


def float_type(dtype: Any) -> FloatType:
    """The constants of a floating dtype, of numpy or of ml_dtypes (bfloat16, float8)."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        return FloatType(dtype.name, float(info.eps), float(info.smallest_subnormal))
    import ml_dtypes

    wide: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return FloatType(dtype.name, float(wide.eps), float(wide.smallest_subnormal))


def measure(
    got: Array, original: Array, reference: Array | None = None, *, rtol: float = 0.0, atol: float = math.inf
) -> Metrics:
    """Measure `got` against `reference`; NaN and Inf positions against `original`.

    Args:
        got: the candidate's output, any floating dtype.
        original: PyTorch's output in the deployed dtype, same shape. It decides where NaN and Inf belong: a
            wider run may stay finite where the deployed dtype overflows.
        reference: the same output from the wider run; `original` where there is none, and element by element
            where it is not finite.
        rtol, atol: an element mismatches when |got - want| > atol + rtol * |want|.
    """
    if got.shape != original.shape or (reference is not None and reference.shape != original.shape):
        raise ValueError(f"measure needs equal shapes, got {got.shape} and {original.shape}")
    kind = float_type(original.dtype)
    flat_got, flat_original = got.reshape(-1), original.reshape(-1)
    flat_reference = None if reference is None else reference.reshape(-1)
    sums = _Sums(kind, rtol, atol)
    with np.errstate(all="ignore"):
        for start in range(0, flat_got.size, CHUNK):
            part = slice(start, start + CHUNK)
            sums.add(
                start,
                flat_got[part],
                flat_original[part],
                None if flat_reference is None else flat_reference[part],
            )
    return sums.result(original.shape, flat_got.size)


def measure_exact(got: Array, want: Array) -> Metrics:
    """Compare integers or booleans: every element must be equal; no difference is tolerated."""
    if got.shape != want.shape:
        raise ValueError(f"measure_exact needs equal shapes, got {got.shape} and {want.shape}")
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    mismatches, max_abs, at = 0, -1, -1
    for start in range(0, flat_got.size, CHUNK):
        a, b = flat_got[start : start + CHUNK], flat_want[start : start + CHUNK]
        (where,) = np.nonzero(a != b)
        mismatches += where.size
        if where.size:
            # |a - b| wraps in int64 and does not exist for uint64 - int64: max - min in Python integers
            gaps = [abs(int(x) - int(y)) for x, y in zip(a[where].tolist(), b[where].tolist(), strict=True)]
            largest = max(range(len(gaps)), key=gaps.__getitem__)
            if gaps[largest] > max_abs:
                max_abs, at = gaps[largest], start + int(where[largest])
    if at < 0:
        return Metrics(count=flat_got.size, compared=flat_got.size)
    worst = Worst(_unravel(at, want.shape), float(flat_got[at]), float(flat_want[at]))
    return Metrics(
        count=flat_got.size,
        compared=flat_got.size,
        max_abs=float(max_abs),
        mismatches=mismatches,
        identical=False,
        worst=worst,
    )


class _Sums:
    """Running sums and maxima over the chunks of one comparison."""

    def __init__(self, kind: FloatType, rtol: float, atol: float) -> None:
        self.kind, self.rtol, self.atol = kind, rtol, atol
        self.compared = self.mismatches = self.nan = self.inf = 0
        self.sum_abs = self.sum_err2 = self.dot = self.got2 = self.want2 = 0.0
        self.max_abs = self.max_rel = self.max_ulp = self.scale = self.excess = 0.0
        self.identical = True
        self.worst: tuple[float, int, float, float] | None = None

    def add(self, start: int, got_: Array, original_: Array, reference_: Array | None) -> None:
        got, original = got_.astype(np.float64), original_.astype(np.float64)
        want = original
        if reference_ is not None:
            reference = reference_.astype(np.float64)
            want = reference
            if not np.isfinite(reference.sum()):
                want = np.where(np.isfinite(reference), reference, original)
        if self.identical:
            same = (got == original) | (np.isnan(got) & np.isnan(original))
            self.identical = bool(same.all())

        finite = None
        # a sum is finite only if every term is (and a huge sum only costs the careful way)
        if not np.isfinite(got.sum() + original.sum()):
            finite = np.isfinite(got) & np.isfinite(original)
            self._specials(start, got, original)
            got, want = got[finite], want[finite]
        if not got.size:
            return
        error, size = np.abs(got - want), np.abs(want)
        over = error - self.rtol * size
        self.mismatches += int((over > self.atol).sum())
        self.compared += got.size
        self.sum_abs += float(error.sum())
        self.sum_err2 += _dot(error, error)
        self.dot += _dot(got, want)
        self.got2 += _dot(got, got)
        self.want2 += _dot(want, want)
        self.max_abs = max(self.max_abs, float(error.max()))
        self.scale = max(self.scale, float(size.max()))
        self.excess = max(self.excess, float(over.max()))
        relative = error / size
        # 0/0 and x/0: no relative error to speak of; fmax over the rest
        relative[size == 0] = 0.0
        self.max_rel = max(self.max_rel, float(relative.max()))
        # the exponent bits of a float64 alone are the power of two below it, and so the ULP over eps
        power = (size.view(np.int64) & EXPONENT).view(np.float64)
        spacing = np.maximum(power * self.kind.eps, self.kind.smallest)
        self.max_ulp = max(self.max_ulp, float((error / spacing).max()))
        at = int(over.argmax())
        if error[at] > 0 and (self.worst is None or over[at] > self.worst[0]):
            place = at if finite is None else int(np.flatnonzero(finite)[at])
            self.worst = (float(over[at]), start + place, float(got[at]), float(want[at]))

    def _specials(self, start: int, got: Array, original: Array) -> None:
        nan = np.isnan(got) != np.isnan(original)
        inf = ~nan & (np.isinf(got) | np.isinf(original)) & (got != original)
        inf &= ~np.isnan(got)
        wrong = nan | inf
        self.nan += int(nan.sum())
        self.inf += int(inf.sum())
        self.mismatches += int(wrong.sum())
        if wrong.any() and (self.worst is None or self.worst[0] < math.inf):
            at = int(wrong.argmax())
            self.worst = (math.inf, start + at, float(got[at]), float(original[at]))

    def result(self, shape: tuple[int, ...], count: int) -> Metrics:
        n = max(self.compared, 1)
        norms = math.sqrt(self.got2) * math.sqrt(self.want2)
        both_zero = self.got2 == 0 and self.want2 == 0
        return Metrics(
            count=count,
            compared=self.compared,
            max_abs=self.max_abs,
            mean_abs=self.sum_abs / n,
            rms=math.sqrt(self.sum_err2 / n),
            max_rel=self.max_rel,
            max_ulp=self.max_ulp,
            cosine=1.0 if both_zero else (self.dot / norms if norms else 0.0),
            scale=self.scale,
            scale_rms=math.sqrt(self.want2 / n),
            eps=self.kind.eps,
            excess=self.excess,
            mismatches=self.mismatches,
            nan=self.nan,
            inf=self.inf,
            identical=self.identical,
            worst=None
            if self.worst is None
            else Worst(_unravel(self.worst[1], shape), self.worst[2], self.worst[3]),
        )


def _unravel(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()


def _dot(a: Array, b: Array) -> float:
    # not `a @ b`: the threads of BLAS cost more than they save on a chunk, and fight with the measured sides
    return float(np.einsum("i,i->", a, b))
