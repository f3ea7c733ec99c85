"""How much difference is acceptable: the budget of an output, derived. The formula, its sources and its margins stand
in docs/budget.md.

In short, with p PyTorch's result in the deployed dtype, w the same model in float64, r the runtime's result, eps the
spacing of the dtype at 1, S the largest |w|: the elements are put into groups of one sign and about one magnitude, and
in each group PyTorch's own error p - w is known. Then

    each element     |r - w| <= K luck max(own) + F eps min(S, 1) + R eps |w|
    each group       rms(r - w) <= K2 (luck rms(own) + F2 eps size) + floor
    each group       |mean(r - w)| <= B |mean(own)| + C eps size + floor + Z sd(r - w) / sqrt(n)
    the whole        rms as above, and the gain, by which r is w on average, as the mean
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from .difference import Metrics
from .float_types import FloatType, float_type
from .groups import ENOUGH, Group, groups_of, lean_of
from .running import ROWS, Tolerance

__all__ = [
    "EXACT",
    "HOPELESS",
    "Band",
    "Budget",
    "Factors",
    "blind",
    "derived",
    "factors",
    "most",
    "own_rtol",
    "rms_of",
    "user",
]

# An original whose own rounding error exceeds this part of its output says nothing about a runtime, and neither does a
# budget that allows this part of it.
HOPELESS = 0.1


@dataclass(frozen=True, slots=True)
class Band:
    """What elements of one sign and magnitude may differ by.

    Attributes:
        sign: 1 or -1, of the reference.
        exponent: from 2**exponent up to the next band; the lowest holds everything below it, the highest all above.
        atol: of each element, besides rtol.
        rms: of the elements together.
        bias: |mean difference|, besides what chance explains.
        lean: of the elements that are off by more than two ULPs, how many more may be off to one side than to the other,
            as a part of them and besides what chance explains; infinity where it is not judged.
    """

    sign: int
    exponent: int
    atol: float
    rms: float
    bias: float
    lean: float = math.inf


@dataclass(frozen=True, slots=True)
class Budget:
    """What an output may differ by from its reference.

    Attributes:
        atol, rtol: per element, |got - want| <= atol + rtol * |want|. Where there are bands, `atol` is the largest.
        rms: of the whole output; infinity where only the elements count.
        source: where the numbers come from, for the report.
        own_max, own_rms: PyTorch's own error, where it is known.
        observations: the different elements it is known from.
        exact: integers and booleans.
        hopeless: PyTorch's own error is too large a part of the output for a pass to mean anything.
        gain: |gain|, besides what chance explains; infinity where it is not judged.
        lean: as in `Band`, over all positive and over all negative elements.
        bands: by sign and magnitude, positive ones first, from the largest down; empty where one atol is for all.
        largest: the dtype's largest number; where the reference is within the budget of it, Inf may be rounded.
    """

    atol: float
    rtol: float
    rms: float
    source: str
    own_max: float | None = None
    own_rms: float | None = None
    observations: int = 0
    exact: bool = False
    hopeless: bool = False
    gain: float = math.inf
    lean: tuple[float, ...] = ()
    bands: tuple[Band, ...] = ()
    largest: float = 0.0

    def tolerance(self) -> Tolerance:
        """For `measure`."""
        coarse = math.inf
        if self.own_rms is not None:  # golden: the stored value may be as far off again
            coarse = HOPELESS * (2 if self.source.startswith("twice ") else 1)
        if not self.bands:
            return Tolerance(self.rtol, self.atol, None, coarse)
        rows = np.empty(ROWS)
        half = ROWS // 2
        for sign, part in ((1, slice(0, half)), (-1, slice(half, ROWS))):
            bands = [b for b in self.bands if b.sign == sign] or list(self.bands)
            table = rows[part]
            table[:] = bands[0].atol
            for above, band in pairwise(bands):
                table[: max(above.exponent + 1023, 0)] = band.atol
        return Tolerance(self.rtol, self.atol, rows, coarse)


@dataclass(frozen=True, slots=True)
class Factors:
    """The letters of docs/budget.md."""

    own: float  # K
    floor: float  # F
    relative: float  # R
    own_rms: float  # K2
    floor_rms: float  # F2
    own_bias: float  # B
    bias: float  # C
    unknown: float  # ULPs of the scale where PyTorch's own error is unknown
    narrow: bool

    def eps(self, kind: FloatType) -> float:
        """Of the dtype that functions are computed in: float32 for narrower ones."""
        return 2.0**-23 if self.narrow else kind.eps


_FULL = Factors(8, 4, 4, 4, 1, 8, 2, 64, narrow=False)
_NARROW = Factors(2, 16, 2, 1.5, 1 / math.sqrt(12), 4, 0.6, 8, narrow=True)
_NARROW_LONGER = replace(_NARROW, own_rms=2)

EXACT = Budget(0.0, 0.0, math.inf, "exact: integers and booleans", exact=True)


def own_rtol(dtype: Any) -> float:
    """Half a unit in the last place: PyTorch's own error for `derived` is what goes beyond the final rounding."""
    return float_type(dtype).eps / 2


def derived(own: Metrics, dtype: Any, source: str, longer: bool = False) -> Budget:
    """The budget from PyTorch's own error, measured with `rtol=own_rtol(dtype)` against the wider run.

    `longer`: `own` is known from more runs and from the least accurate sound way of computing the same.
    """
    kind = float_type(dtype)
    f = factors(kind, longer)
    groups = groups_of(own.binades)
    n = max(sum(g.distinct for g in groups) or own.compared, 1)
    floor = _floor(own.scale, kind, f, longer)
    bands = tuple(_band(g, groups, kind, f, floor) for g in groups)
    return Budget(
        atol=max((b.atol for b in bands), default=floor),
        rtol=f.relative * kind.eps,
        rms=rms_of(own.rms, n, own.scale_rms, kind, f),
        source=source,
        own_max=own.max_abs,
        own_rms=own.rms,
        observations=n,
        hopeless=own.rms > HOPELESS * own.scale_rms + _ulp(kind, own.scale_rms),
        gain=f.own_bias * abs(own.gain) + f.bias * kind.eps,
        lean=tuple(lean_of(Group(s, 0, tuple(r for r in own.binades if r.sign == s))) for s in (1, -1))
        if f.narrow
        else (),
        bands=bands,
        largest=kind.largest,
    )


def rms_of(own_rms: float, n: int, scale_rms: float, kind: FloatType, f: Factors) -> float:
    """What the whole output may differ by, from PyTorch's own error of `n` different elements."""
    floor = f.floor_rms * (min(1.0, 16 / math.sqrt(n)) if f.narrow else 1.0)
    return f.own_rms * ((1 + 8 / n) * own_rms + floor * _ulp(kind, scale_rms)) + _subnormal(kind)


def most(own_max: float, n: int, scale: float, kind: FloatType, f: Factors, longer: bool = False) -> Band:
    """The widest band that `derived` makes of an own error of at most `own_max` in an output of this scale."""
    floor = _floor(scale, kind, f, longer)
    small = floor if f.narrow else floor / 4
    luck = 1 + 8 / min(n, 2 * ENOUGH)
    ulp = max(kind.eps * 1.5 * scale, kind.smallest)  # a row's elements count as 1.5 times their power of two
    return Band(
        sign=1,
        exponent=0,
        atol=f.own * luck * own_max + floor,
        rms=f.own_rms * (luck * own_max + f.floor_rms * ulp) + small,
        bias=f.own_bias * own_max + f.bias * ulp + small,
    )


def _floor(scale: float, kind: FloatType, f: Factors, longer: bool) -> float:
    """Functions inside are inexact against values of order one; at most, against the output's largest."""
    return f.floor * f.eps(kind) * (scale if longer else min(scale, 1.0)) + _subnormal(kind)


def _band(group: Group, groups: list[Group], kind: FloatType, f: Factors, floor: float) -> Band:
    near = _neighbours(group, groups)
    pool = Group(group.sign, group.exponent, tuple(r for g in near for r in g.rows))
    luck = 1 + 8 / max(pool.distinct, 1)
    small = floor if f.narrow else floor / 4
    bias = max(abs(g.bias) for g in near)
    ulp = max(kind.eps * group.size, kind.smallest)
    return Band(
        sign=group.sign,
        exponent=group.exponent,
        atol=f.own * luck * pool.excess + floor,
        rms=f.own_rms * (luck * max(g.rms for g in near) + f.floor_rms * ulp) + small,
        bias=f.own_bias * bias + f.bias * ulp + small,
        lean=max(lean_of(g) for g in near) if f.narrow else math.inf,
    )


def _neighbours(group: Group, groups: list[Group]) -> list[Group]:
    """The group, the ones beside it, and more where those have too few elements to know an error from."""
    same = [g for g in groups if g.sign == group.sign]
    at = same.index(group)
    near = same[max(at - 1, 0) : at + 2]
    if sum(g.distinct for g in near) < 2 * ENOUGH:
        low, high = min(g.exponent for g in near), max(g.exponent for g in near)
        near += [g for g in groups if g.sign != group.sign and low <= g.exponent <= high]
    return near if sum(g.distinct for g in near) >= 2 * ENOUGH else groups


def blind(scale: float, dtype: Any, why: str) -> Budget:
    """The budget where PyTorch's own error is unknown: 64 ULPs of the output's scale (narrow types: 8)."""
    kind = float_type(dtype)
    f = factors(kind)
    return Budget(
        atol=f.unknown * _ulp(kind, scale),
        rtol=f.relative * kind.eps,
        rms=math.inf,
        source=f"{f.unknown:g} ULPs of the output's scale ({why})",
        largest=kind.largest,
    )


def user(atol: float | None, rtol: float | None) -> Budget:
    """The user's own tolerance, against the original as given."""
    source = f"user tolerance, atol {atol or 0.0:g}, rtol {rtol or 0.0:g}"
    return Budget(atol or 0.0, rtol or 0.0, math.inf, source)


def factors(kind: FloatType, longer: bool = False) -> Factors:
    """The constants of a dtype; `longer` as in `derived`."""
    if kind.eps <= 2.0**-23:
        return _FULL
    return _NARROW_LONGER if longer else _NARROW


def _subnormal(kind: FloatType) -> float:
    """Runtimes may flush subnormal numbers to zero, where that is as good as nothing (not in float16)."""
    return max(kind.tiny if kind.tiny < 1e-30 else 0.0, 2 * kind.smallest)


def _ulp(kind: FloatType, scale: float) -> float:
    return max(kind.eps * scale, kind.smallest)
