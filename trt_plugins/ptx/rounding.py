"""Results rounded once: exact sums and products in float64 as a number and its error, and their rounding.

A pair (s, e) stands for the exact s + e, with |e| at most half an ULP of s. Where e is not 0, s is rounded to odd: of the
two float64 around the exact value, the one whose last bit is 1. Rounding that once more, to a format of at most 51 bits, gives
what rounding the exact value once gives (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE
Transactions on Computers 57, 2008).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = [
    "bf16_from_f32",
    "exact_product",
    "exact_sum",
    "f32_from_bf16",
    "fma32",
    "fma64",
    "round_to",
    "to_odd",
]

Array = Any  # numpy array or scalar

_F32, _F64, _U32, _U64 = map(np.dtype, ("f4", "f8", "u4", "u8"))
_INF = np.float64(np.inf)


def exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b in float64 and its error (Knuth's TwoSum). The error is 0 where the sum is not finite."""
    s = a + b
    shadow = s - a
    e = (a - (s - shadow)) + (b - shadow)
    return s, np.where(np.isfinite(s), e, 0.0)


def exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a · b in float64 and its error (Dekker's TwoProduct); right where neither overflows nor loses bits below 2⁻¹⁰⁷⁴."""
    p = a * b
    a_high, b_high = _high_half(a), _high_half(b)
    a_low, b_low = a - a_high, b - b_high
    e = ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
    return p, np.where(np.isfinite(e), e, 0.0)


def _high_half(a: Array) -> Array:
    scaled = a * np.float64(134217729.0)  # 2²⁷ + 1
    return scaled - (scaled - a)


def to_odd(s: Array, e: Array) -> Array:
    """s + e, rounded to odd."""
    even = (np.asarray(s).view(_U64) & np.uint64(1)) == 0
    return np.where((e != 0) & even & np.isfinite(s), np.nextafter(s, np.where(e > 0, _INF, -_INF)), s)


def round_to(dtype: np.dtype[Any], s: Array, e: Array, mode: str) -> Array:
    """s + e rounded once to float16, float32 or float64. `mode`: rn (to even), rz, rm (down), rp (up)."""
    if dtype == _F64:
        r, above, below = s, e < 0, e > 0
    else:
        r = (to_odd(s, e) if mode == "rn" else s).astype(dtype)
        wide = r.astype(_F64)
        above = (wide > s) | ((wide == s) & (e < 0))
        below = (wide < s) | ((wide == s) & (e > 0))
    if mode == "rn":
        return r
    down, up = np.nextafter(r, -np.inf, dtype=dtype), np.nextafter(r, np.inf, dtype=dtype)
    finite = np.isfinite(s)
    if mode == "rm":
        return np.where(above & finite, down, r)
    if mode == "rp":
        return np.where(below & finite, up, r)
    r = np.where(above & finite & (s > 0), down, r)
    return np.where(below & finite & (s < 0), up, r)


def zero_sign(result: Array, a: Array, b: Array, mode: str) -> Array:
    """An exact sum a + b of 0 is −0 where it is rounded down, unless both are +0 (IEEE 754, 6.3)."""
    if mode != "rm":
        return result
    negative = (result == 0) & (np.signbit(a) | np.signbit(b))
    return np.where(negative, np.negative(np.abs(result)), result)


def fma32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a·b + c in float32, rounded once.

    The product of two float32 is exact in float64. Rounding the float64 sum to nearest once more goes wrong only
    where it lies halfway between two float32; these, and results below the normal numbers, are rounded by way of odd.
    """
    product = a.astype(_F64) * b.astype(_F64)
    wide = c.astype(_F64)
    s = product + wide
    if mode == "rn":
        r = s.astype(_F32)
        bits = np.asarray(s).view(_U64) & np.uint64(0x1FFFFFFF)
        doubtful = (bits == np.uint64(0x10000000)) | (np.abs(s) < 1.1754943508222875e-38 * 2)
        if not doubtful.any():
            return r
        return np.where(doubtful, round_to(_F32, *exact_sum(product, wide), "rn"), r)
    return zero_sign(round_to(_F32, *exact_sum(product, wide), mode), product, wide, mode)


_SAFE_SMALL, _SAFE_LARGE = 2.0**-900, 2.0**990


def fma64(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a·b + c in float64, rounded once.

    As Boldo and Melquiond do it, without a fused instruction; where a product or its error leaves the range in which this is
    exact, number by number in fractions.
    """
    a, b, c = np.broadcast_arrays(np.asarray(a), np.asarray(b), np.asarray(c))
    high, low = exact_product(a, b)
    t_high, t_low = exact_sum(c, low)
    v_high, v_low = exact_sum(high, t_high)
    # t_low + v_low, rounded to odd, keeps what decides
    z = to_odd(*exact_sum(t_low, v_low))
    s, e = exact_sum(v_high, z)
    r = zero_sign(s if mode == "rn" else round_to(_F64, s, e, mode), high, c, mode)
    size_a, size_b, size_p = np.abs(a), np.abs(b), np.abs(high)
    fine = (
        (size_a < _SAFE_LARGE) & (size_b < _SAFE_LARGE) & (size_p < _SAFE_LARGE) & (np.abs(c) < _SAFE_LARGE)
    )
    fine &= (size_p > _SAFE_SMALL) | (a == 0) | (b == 0)
    fine &= (np.abs(r) > _SAFE_SMALL) | (r == 0)
    # what is not finite comes out as the plain sum does
    plain = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    # … a finite product leaves an infinite summand as it is, even where float64 has no such product
    r = np.where(plain, np.where(np.isfinite(a) & np.isfinite(b), c, a * b + c), r)
    strange = ~(fine | plain)
    if strange.any():
        r = np.array(r)
        for at in np.argwhere(strange):
            k = tuple(at)
            r[k] = _fma_of_fractions(float(a[k]), float(b[k]), float(c[k]), mode)
    return r[()]


def _fma_of_fractions(a: float, b: float, c: float, mode: str) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        same = math.copysign(1, a) * math.copysign(1, b) == math.copysign(1, c)
        negative = (same and math.copysign(1, c) < 0) or (not same and mode == "rm")
        return -0.0 if negative else 0.0
    try:
        r = exact.numerator / exact.denominator  # rounded once, to nearest
    except OverflowError:
        r = math.inf if exact > 0 else -math.inf
    sign = 1.0 if exact > 0 else -1.0
    if mode == "rn":
        return math.copysign(r, sign)
    if math.isinf(r):
        above = r > 0
        below = r < 0
    else:
        above, below = Fraction(r) > exact, Fraction(r) < exact
    down, up = math.nextafter(r, -math.inf), math.nextafter(r, math.inf)
    downwards = mode == "rm" or (mode == "rz" and exact > 0)
    if above and downwards:
        r = down
    elif below and not downwards:
        r = up
    return math.copysign(r, sign) if r == 0 else r


def f32_from_bf16(bits: Array) -> Array:
    """bfloat16, as 16 bits, in float32."""
    return (bits.astype(_U32) << np.uint32(16)).view(_F32)


def bf16_from_f32(x: Array, mode: str = "rn") -> Array:
    """float32 rounded to bfloat16, as 16 bits. NaN is 0x7fff."""
    bits = x.view(_U32)
    if mode == "rn":
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    else:
        inexact = (bits & np.uint32(0xFFFF)) != 0
        away = inexact & (np.signbit(x) if mode == "rm" else ~np.signbit(x) if mode == "rp" else np.False_)
        rounded = bits + np.where(away, np.uint32(0x10000), np.uint32(0))
        rounded = np.where(np.isinf(x), bits, rounded)
    return np.where(x != x, np.uint16(0x7FFF), (rounded >> np.uint32(16)).astype(np.uint16))
