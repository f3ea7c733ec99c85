"""cvt, against numpy, exact fractions and the bit patterns of the formats."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from assembled import evaluate

ALL_HALVES = np.arange(65536, dtype=np.uint16)
RNG = np.random.default_rng(0)


def same(got: Any, expected: Any) -> None:
    """Bit for bit, but that NaN is NaN."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    nan = np.isnan(expected) if expected.dtype.kind == "f" else np.zeros(expected.shape, bool)
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), nan)
    bits = f"u{got.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(bits)[~nan], expected.view(bits)[~nan])


def half_value(bits: int) -> float:
    """IEEE 754 binary16, from its definition."""
    sign, exponent, fraction = -1.0 if bits >> 15 else 1.0, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return math.nan if fraction else sign * math.inf
    return sign * (fraction * 2.0**-24 if exponent == 0 else (1024 + fraction) * 2.0 ** (exponent - 25))


def bfloat_value(bits: int) -> float:
    """bfloat16, from its definition."""
    sign, exponent, fraction = -1.0 if bits >> 15 else 1.0, bits >> 7 & 255, bits & 127
    if exponent == 255:
        return math.nan if fraction else sign * math.inf
    return sign * (fraction * 2.0**-133 if exponent == 0 else (128 + fraction) * 2.0 ** (exponent - 134))


HALVES = np.array([half_value(int(b)) for b in ALL_HALVES])
BFLOATS = np.array([bfloat_value(int(b)) for b in ALL_HALVES])


def test_every_half_in_float32() -> None:
    got = evaluate("cvt.f32.f16 %out, %in0;", [("f16", ALL_HALVES)], ("f32", np.float32))
    same(got, HALVES.astype(np.float32))


def test_every_bfloat_in_float32() -> None:
    got = evaluate("cvt.f32.bf16 %out, %in0;", [("bf16", ALL_HALVES)], ("f32", np.float32))
    same(got, BFLOATS.astype(np.float32))
    # as nvcc writes it for compute_80
    got = evaluate("mov.b16 %h0, 0; mov.b32 %out, {%h0, %in0};", [("bf16", ALL_HALVES)], ("f32", np.float32))
    same(got, BFLOATS.astype(np.float32))


def rounded(x: float, values: Any, patterns: Any, mode: str) -> int:
    """The pattern of the number of a format that x is rounded to. `values`: its finite numbers, sorted."""
    exact = Fraction(x)
    above = int(np.searchsorted(values, x, "left"))
    if above < len(values) and values[above] == x:
        return above
    below = above - 1
    choose_up = {"rm": False, "rp": True, "rz": x < 0}.get(mode)
    if choose_up is None:
        # beyond the largest number, the next one there would be decides where infinity begins
        step = Fraction(float(values[-1])) - Fraction(float(values[-2]))
        high = Fraction(float(values[above])) if above < len(values) else Fraction(float(values[-1])) + step
        low = Fraction(float(values[below])) if below >= 0 else Fraction(float(values[0])) - step
        middle = (low + high) / 2
        if exact == middle:
            even_below = below >= 0 and int(patterns[below]) % 2 == 0
            choose_up = not even_below
        else:
            choose_up = exact > middle
    return above if choose_up else below


def expected_rounding(x: Any, all_values: Any, mode: str) -> Any:
    """x rounded to the format whose 65,536 patterns have `all_values`; patterns, NaN as 0x7fff."""
    finite = np.isfinite(all_values)
    order = np.argsort(all_values[finite], kind="stable")
    patterns = ALL_HALVES[finite][order]
    values = all_values[finite][order]
    values, first = np.unique(values, return_index=True)
    patterns = patterns[first]
    infinity = int(ALL_HALVES[all_values == np.inf][0])
    result = []
    for v in x:
        if math.isnan(v):
            result.append(0x7FFF)
        elif math.isinf(v):
            result.append(infinity | (0x8000 if v < 0 else 0))
        else:
            k = rounded(float(v), values, patterns, mode)
            if k >= len(values):
                result.append(infinity)
            elif k < 0:
                result.append(infinity | 0x8000)
            elif values[k] == 0:
                result.append(0x8000 if math.copysign(1, v) < 0 else 0)
            else:
                result.append(int(patterns[k]))
    return np.array(result, np.uint16)


def interesting_floats(values: Any) -> Any:
    """Numbers of a format, those halfway between two, those just beside, and some beyond the range."""
    finite = np.unique(values[np.isfinite(values)])
    chosen = RNG.choice(len(finite) - 1, 200)
    low, high = finite[chosen], finite[chosen + 1]
    middle = (low + high) / 2
    largest = finite[-1]
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, 2 * largest, -2 * largest])
    wide = np.concatenate([low, middle, edges])
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    return np.concatenate(
        [narrow, np.nextafter(narrow, np.float32(np.inf)), np.nextafter(narrow, np.float32(-np.inf))]
    )


@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize(("kind", "values"), [("f16", HALVES), ("bf16", BFLOATS)])
def test_float32_rounded_to_halves(kind: str, values: Any, mode: str) -> None:
    x = interesting_floats(values)
    got = evaluate(f"cvt.{mode}.{kind}.f32 %out, %in0;", [("f32", x)], (kind, np.uint16))
    expected = expected_rounding(x, values, mode)
    np.testing.assert_array_equal(got, expected)


def test_a_pair_of_halves_has_the_first_number_above() -> None:
    got = evaluate(
        "cvt.rn.f16x2.f32 %out, %in0, %in1;",
        [("f32", np.float32([1.0])), ("f32", np.float32([2.0]))],
        ("f16x2", np.uint32),
    )
    assert hex(got[0]) == hex(0x3C00 << 16 | 0x4000)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_float64_rounded_to_float32(mode: str) -> None:
    single = RNG.integers(0, 2**32, 300, dtype=np.uint32).view(np.float32)
    single = single[np.isfinite(single)]
    with np.errstate(over="ignore"):
        up = np.nextafter(single, np.float32(np.inf)).astype(np.float64)
    middle = (single.astype(np.float64) + np.where(np.isfinite(up), up, 0)) / 2
    x = np.concatenate(
        [middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), single.astype(np.float64)]
    )
    got = evaluate(f"cvt.{mode}.f32.f64 %out, %in0;", [("f64", x)], ("f32", np.float32))
    for value, r in zip(x, got, strict=True):
        exact, found = Fraction(float(value)), float(r)
        neighbours = [float(np.nextafter(r, np.float32(d))) for d in (-np.inf, np.inf)]
        if mode == "rn":
            near = [abs(Fraction(n) - exact) for n in neighbours if math.isfinite(n)]
            assert all(abs(Fraction(found) - exact) <= d for d in near)
            if any(abs(Fraction(found) - exact) == d for d in near):
                assert r.view(np.uint32) % 2 == 0
            continue
        towards_below = mode == "rm" or (mode == "rz" and value > 0)
        assert (Fraction(found) <= exact) if towards_below else (Fraction(found) >= exact)
        other = neighbours[1] if towards_below else neighbours[0]
        assert math.isinf(other) or (
            (Fraction(other) > exact) if towards_below else (Fraction(other) < exact)
        )


@pytest.mark.parametrize("size", [16, 32, 64])
@pytest.mark.parametrize("sign", ["s", "u"])
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers_saturate(mode: str, sign: str, size: int) -> None:
    low, high = (-(2 ** (size - 1)), 2 ** (size - 1) - 1) if sign == "s" else (0, 2**size - 1)
    x = np.concatenate(
        [
            RNG.normal(0, 1000, 200),
            [0.5, 1.5, 2.5, -0.5, -1.5, 0.0, -0.0, np.inf, -np.inf],
            [float(low), float(high), low - 0.75, high + 0.75, 2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30],
        ]
    ).astype(np.float32)
    dtype = np.dtype(f"{'i' if sign == 's' else 'u'}{size // 8}")
    got = evaluate(f"cvt.{mode}.{sign}{size}.f32 %out, %in0;", [("f32", x)], (f"{sign}{size}", dtype))
    function = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    expected = [
        (high if v > 0 else low) if math.isinf(v) else min(max(function(Fraction(float(v))), low), high)
        for v in x
    ]
    assert [int(v) for v in got] == expected


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("f32", "s32", 0),
        ("f32", "u32", 0),
        ("f32", "s64", -(2**63)),
        ("f64", "s32", -(2**31)),
        ("f64", "u64", 2**63),
    ],
)
def test_nan_to_an_integer(source: str, kind: str, expected: int) -> None:
    """PTX ISA, cvt: "Zero if source is not double and destination is not .s64, .u64. Otherwise 1 << (BitWidth(dst) - 1)"."""
    nan = np.array([np.nan], np.float32 if source == "f32" else np.float64)
    dtype = np.dtype(("i" if kind[0] == "s" else "u") + str(int(kind[1:]) // 8))
    [got] = evaluate(f"cvt.rni.{kind}.{source} %out, %in0;", [(source, nan)], (kind, dtype))
    assert int(got) == expected


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_to_floats(mode: str, target: str, kind: str) -> None:
    size = int(kind[1:]) // 8
    dtype = np.dtype(("i" if kind[0] == "s" else "u") + str(size))
    info = np.iinfo(dtype)
    x = np.concatenate(
        [
            RNG.integers(info.min, info.max, 80, dtype=dtype),
            np.array([info.min, info.max, 0, 1, info.max - 1], dtype),
        ]
    )
    to = np.dtype(np.float32 if target == "f32" else np.float64)
    got = evaluate(f"cvt.{mode}.{target}.{kind} %out, %in0;", [(kind, x)], (target, to))
    for value, r in zip(x, got, strict=True):
        exact, found = int(value), int(r)
        below, above = (int(np.nextafter(r, to.type(d))) for d in (-np.inf, np.inf))
        if mode == "rn":
            assert abs(found - exact) <= min(abs(below - exact), abs(above - exact))
        elif mode == "rm" or (mode == "rz" and exact >= 0):
            assert found <= exact < max(above, exact + 1)
        else:
            assert found >= exact > min(below, exact - 1)


def test_integers_change_size_with_their_sign_and_saturate() -> None:
    x = np.array([-1, 127, 128, -129, 300, -32769], np.int32)
    got = evaluate("cvt.s32.s8 %out, %in0;", [("s32", x)], ("s32", np.int32))
    assert got.tolist() == [-1, 127, -128, 127, 44, -1]
    got = evaluate("cvt.sat.s8.s32 %h0, %in0; cvt.s32.s8 %out, %h0;", [("s32", x)], ("s32", np.int32))
    assert got.tolist() == [-1, 127, 127, -128, 127, -128]
    got = evaluate("cvt.u64.u32 %out, %in0;", [("s32", x)], ("u64", np.uint64))
    assert got[0] == 0xFFFFFFFF


def test_rounding_to_an_integral_float_and_saturation() -> None:
    x = np.float32([0.5, 1.5, -2.5, np.nan, 7.25, -0.25])
    for mode, expected in (("rni", [0, 2, -2, np.nan, 7, -0.0]), ("rzi", [0, 1, -2, np.nan, 7, -0.0]),
                           ("rmi", [0, 1, -3, np.nan, 7, -1]), ("rpi", [1, 2, -2, np.nan, 8, -0.0])):  # fmt: skip
        same(
            evaluate(f"cvt.{mode}.f32.f32 %out, %in0;", [("f32", x)], ("f32", np.float32)),
            np.float32(expected),
        )
    same(
        evaluate("cvt.sat.f32.f32 %out, %in0;", [("f32", x)], ("f32", np.float32)),
        np.float32([0.5, 1, 0, 0, 1, 0]),
    )
