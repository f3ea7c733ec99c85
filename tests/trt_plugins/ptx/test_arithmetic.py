"""Floating-point instructions against exact fractions, the C library and numpy."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from assembled import evaluate

from deployops.trt_plugins.ptx.faults import NotInterpreted

RNG = np.random.default_rng(1)
_LIBM = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
_LIBM.fmaf.restype = ctypes.c_float
_LIBM.fmaf.argtypes = (ctypes.c_float,) * 3
_LIBM.fma.restype = ctypes.c_double
_LIBM.fma.argtypes = (ctypes.c_double,) * 3
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def patterns(kind: str, count: int) -> Any:
    """Numbers of all sizes: random bits, and edges."""
    dtype = NUMPY[kind]
    size = np.dtype(dtype).itemsize
    raw = RNG.integers(0, 2 ** (8 * size), count, dtype=f"u{size}").view(dtype)
    info = np.finfo(dtype)
    edges = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal, 1, -1], dtype
    )
    return np.concatenate([raw, edges])


def agree(got: Any, expected: Any) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    fine = ~np.isnan(expected)
    bits = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(got[fine].view(bits), expected[fine].view(bits))


def fma_cases(kind: str) -> tuple[Any, Any, Any]:
    """Factors and summands, many of which nearly cancel or lie halfway between two numbers of the format."""
    dtype = NUMPY[kind]
    with np.errstate(all="ignore"):
        a = np.concatenate([patterns(kind, 150), RNG.normal(0, 1, 150).astype(dtype)])
        b = np.concatenate([patterns(kind, 150), RNG.normal(0, 1, 150).astype(dtype)])
        c = np.where(RNG.random(len(a)) < 0.5, RNG.permutation(a), (-a * b).astype(dtype))
        # products that lie exactly between two numbers, and a summand that decides
        digits = np.finfo(dtype).nmant
        one = dtype(1)
        tie_a = np.full(40, one + dtype(2.0 ** -(digits // 2 + 1)), dtype)
        tie_c = RNG.choice([2.0 ** -(digits * 2), -(2.0 ** -(digits * 2)), 2.0**-digits, 0.0], 40).astype(
            dtype
        )
    return np.concatenate([a, tie_a]), np.concatenate([b, tie_a]), np.concatenate([c, tie_c])


def test_fma_of_float32_is_rounded_once() -> None:
    a, b, c = fma_cases("f32")
    got = evaluate(
        "fma.rn.f32 %out, %in0, %in1, %in2;", [("f32", a), ("f32", b), ("f32", c)], ("f32", np.float32)
    )
    agree(got, np.array([_LIBM.fmaf(*map(float, t)) for t in zip(a, b, c, strict=True)], np.float32))


def test_fma_of_float32_where_two_roundings_would_be_wrong() -> None:
    """(1 + 2⁻¹²)² = 1 + 2⁻¹¹ + 2⁻²⁴, halfway between two float32; the summand, far below float64's digits, decides."""
    a = np.float32([1 + 2.0**-12] * 3)
    c = np.float32([0, 2.0**-100, -(2.0**-100)])
    got = evaluate("fma.rn.f32 %out, %in0, %in0, %in1;", [("f32", a), ("f32", c)], ("f32", np.float32))
    low, high = np.float32(1 + 2.0**-11), np.nextafter(np.float32(1 + 2.0**-11), np.float32(2))
    assert got.tolist() == [low, high, low]


def test_fma_of_float64_is_rounded_once() -> None:
    a, b, c = fma_cases("f64")
    got = evaluate(
        "fma.rn.f64 %out, %in0, %in1, %in2;", [("f64", a), ("f64", b), ("f64", c)], ("f64", np.float64)
    )
    agree(got, np.array([_LIBM.fma(*map(float, t)) for t in zip(a, b, c, strict=True)], np.float64))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["fma", "add", "sub", "mul"])
def test_directed_rounding(name: str, mode: str, kind: str) -> None:
    dtype = NUMPY[kind]
    a, b, c = fma_cases(kind)
    every = [("a", a), ("b", b), ("c", c)][: 3 if name == "fma" else 2]
    operands = ", ".join(f"%in{k}" for k in range(len(every)))
    got = evaluate(f"{name}.{mode}.{kind} %out, {operands};", [(kind, v) for _, v in every], (kind, dtype))
    for x, y, z, r in zip(a, b, c, got, strict=True):
        if not all(map(math.isfinite, map(float, (x, y, z)))):
            continue
        p, q = Fraction(float(x)), Fraction(float(y))
        exact = {"fma": p * q + Fraction(float(z)), "add": p + q, "sub": p - q, "mul": p * q}[name]
        below, above = float(np.nextafter(r, dtype(-np.inf))), float(np.nextafter(r, dtype(np.inf)))
        down = mode == "rm" or (mode == "rz" and exact > 0)
        if down:
            assert float(r) == -math.inf or Fraction(float(r)) <= exact
            assert math.isinf(above) or Fraction(above) > exact
        else:
            assert float(r) == math.inf or Fraction(float(r)) >= exact
            assert math.isinf(below) or Fraction(below) < exact


def test_an_exact_difference_of_zero_is_negative_where_it_is_rounded_down() -> None:
    x = np.float32([1.5])
    got = evaluate("sub.rm.f32 %out, %in0, %in0;", [("f32", x)], ("f32", np.float32))
    assert math.copysign(1, got[0]) == -1
    got = evaluate("sub.rn.f32 %out, %in0, %in0;", [("f32", x)], ("f32", np.float32))
    assert math.copysign(1, got[0]) == 1


def exact_in(kind: str, exact: Fraction) -> float:
    """A fraction rounded to nearest, to even: for float16 and bfloat16 by their spacing."""
    digits, smallest = {"f16": (11, -24), "bf16": (8, -133)}[kind]
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = math.floor(math.log2(size)) if size >= Fraction(1, 2**1000) else -1000
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** max(exponent - digits + 1, smallest)
    whole = round(size / unit)  # to even
    largest = Fraction(65504) if kind == "f16" else Fraction(255) * Fraction(2) ** 120
    value = whole * unit
    return math.copysign(math.inf if value > largest else float(value), 1 if exact > 0 else -1)


def bfloat(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["fma", "add", "mul"])
def test_halves_are_rounded_once(name: str, kind: str) -> None:
    raw = [RNG.integers(0, 65536, 300, dtype=np.uint16) for _ in range(3)]
    near = RNG.integers(
        0x3C00, 0x3C40, (3, 100), dtype=np.uint16
    )  # near 1 in float16, and near 0.01 in bfloat16
    raw = [np.concatenate([a, b]) for a, b in zip(raw, near, strict=True)]
    values = [
        v.view(np.float16).astype(np.float64) if kind == "f16" else bfloat(v).astype(np.float64) for v in raw
    ]
    if name == "add" and kind == "bf16":
        with pytest.raises(NotInterpreted):  # nonsense: a type that is none
            evaluate(
                "add.rn.bf17 %out, %in0, %in1;", [("bf16", raw[0]), ("bf16", raw[1])], ("bf16", np.uint16)
            )
    count = 3 if name == "fma" else 2
    operands = ", ".join(f"%in{k}" for k in range(count))
    got = evaluate(f"{name}.rn.{kind} %out, {operands};", [(kind, v) for v in raw[:count]], (kind, np.uint16))
    found = got.view(np.float16).astype(np.float64) if kind == "f16" else bfloat(got).astype(np.float64)
    for x, y, z, r in zip(*values, found, strict=True):
        if not all(map(math.isfinite, (x, y, z) if count == 3 else (x, y))):
            continue
        p, q = Fraction(x), Fraction(y)
        exact = p + q if name == "add" else p * q + (Fraction(z) if name == "fma" else 0)
        assert r == exact_in(kind, exact)


def test_pairs_of_halves_are_two_operations() -> None:
    low = np.float16([1.5, -2.0, 65504])
    high = np.float16([0.25, 3.0, 1.0])
    both = low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << 16
    got = evaluate("fma.rn.f16x2 %out, %in0, %in0, %in0;", [("f16x2", both)], ("f16x2", np.uint32))
    with np.errstate(over="ignore"):
        assert (got & 0xFFFF).astype(np.uint16).view(np.float16).tolist() == [3.75, 2.0, np.inf]
    assert (got >> 16).astype(np.uint16).view(np.float16).tolist() == [0.3125, 12.0, 2.0]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_quotients_and_roots(kind: str) -> None:
    dtype = NUMPY[kind]
    a, b = patterns(kind, 100), RNG.permutation(patterns(kind, 100))
    with np.errstate(all="ignore"):
        agree(evaluate(f"div.rn.{kind} %out, %in0, %in1;", [(kind, a), (kind, b)], (kind, dtype)), a / b)
        agree(
            evaluate(f"rcp.rn.{kind} %out, %in0;", [(kind, a)], (kind, dtype)), (dtype(1) / a).astype(dtype)
        )
        agree(evaluate(f"sqrt.rn.{kind} %out, %in0;", [(kind, a)], (kind, dtype)), np.sqrt(a))


def test_approximations_are_within_what_the_isa_allows() -> None:
    x = np.abs(patterns("f32", 150))
    x = x[np.isfinite(x) & (x > 1e-30) & (x < 1e30)]
    for name, exact, bound in (
        ("rcp.approx.ftz.f32", lambda v: 1 / v, 2.0**-23),
        ("rsqrt.approx.ftz.f32", lambda v: 1 / math.sqrt(v), 2.0**-22.9),
        ("sqrt.approx.ftz.f32", math.sqrt, 2.0**-23),
    ):
        got = evaluate(f"{name} %out, %in0;", [("f32", x)], ("f32", np.float32))
        assert all(
            abs(float(r) - exact(float(v))) <= bound * exact(float(v)) for v, r in zip(x, got, strict=True)
        ), name
    small = RNG.uniform(-100, 100, 500).astype(np.float32)
    got = evaluate("ex2.approx.ftz.f32 %out, %in0;", [("f32", small)], ("f32", np.float32))
    assert all(
        abs(float(r) - 2.0 ** float(v)) <= 2.0**-22 * 2.0 ** float(v) for v, r in zip(small, got, strict=True)
    )


def test_a_fast_quotient_by_a_divisor_beyond_two_to_the_126_is_zero() -> None:
    """PTX ISA, div: "For 2^126 < |b| < 2^128, if a is infinity, div.approx.f32 returns NaN, otherwise … zero"."""
    a = np.float32([3e38, -3e38, np.inf, 1, 3e38, 1])
    b = np.float32([2.0**127, 2.0**127, 2.0**127, -(2.0**127), 2.0**126, np.inf])
    got = evaluate("div.approx.f32 %out, %in0, %in1;", [("f32", a), ("f32", b)], ("f32", np.float32))
    assert np.isnan(got[2])
    assert got[[0, 1, 3, 5]].tolist() == [0, 0, 0, 0]
    assert np.signbit(got[[0, 1, 3]]).tolist() == [False, True, True]
    assert abs(got[4] / (3e38 / 2.0**126) - 1) <= 2.0**-22


def test_fast_float64_takes_and_gives_the_upper_word_only() -> None:
    """PTX ISA, rcp.approx.ftz.f64: the lower 32 bits of the input are ignored, those of the result are 0."""
    x = np.float64([1 + 2.0**-52, 3 + 2.0**-40, -7.0])
    upper = np.float64([1, 3, -7])
    for name, exact in (("rcp", lambda v: 1 / v), ("rsqrt", lambda v: 1 / np.sqrt(v))):
        with np.errstate(invalid="ignore"):
            got = evaluate(f"{name}.approx.ftz.f64 %out, %in0;", [("f64", x)], ("f64", np.float64))
            same = evaluate(f"{name}.approx.ftz.f64 %out, %in0;", [("f64", upper)], ("f64", np.float64))
            wanted = exact(upper)
        good = np.isfinite(wanted)
        assert got[good].tolist() == same[good].tolist()
        assert not (got[good].view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
        assert (np.abs(got[good] / wanted[good] - 1) <= 2.0**-20).all()


def test_flush_to_zero_takes_and_gives_no_subnormal_numbers() -> None:
    tiny = np.float32([2.0**-127, -(2.0**-127), 2.0**-126])
    half = np.float32([0.5])
    plain = evaluate(
        "mul.rn.f32 %out, %in0, %in1;", [("f32", tiny), ("f32", np.float32([1, 1, 0.5]))], ("f32", np.float32)
    )
    assert plain.tolist() == [2.0**-127, -(2.0**-127), 2.0**-127]
    ftz = evaluate(
        "mul.rn.ftz.f32 %out, %in0, %in1;",
        [("f32", tiny), ("f32", np.float32([1, 1, 0.5]))],
        ("f32", np.float32),
    )
    assert ftz.tolist() == [0, 0, 0]
    assert np.signbit(ftz).tolist() == [False, True, False]
    assert half[0] == 0.5


def test_saturation_clamps_and_makes_nan_zero() -> None:
    x = np.float32([-1, 0.25, 3, np.nan])
    got = evaluate("add.rn.sat.f32 %out, %in0, 0f00000000;", [("f32", x)], ("f32", np.float32))
    assert got.tolist() == [0, 0.25, 1, 0]


def test_the_larger_and_the_smaller_leave_nan_out_and_know_signed_zeros() -> None:
    a = np.float32([1, np.nan, np.nan, 0.0, -0.0])
    b = np.float32([2, 3, np.nan, -0.0, 0.0])
    got = evaluate("max.f32 %out, %in0, %in1;", [("f32", a), ("f32", b)], ("f32", np.float32))
    agree(got, np.float32([2, 3, np.nan, 0.0, 0.0]))
    got = evaluate("min.f32 %out, %in0, %in1;", [("f32", a), ("f32", b)], ("f32", np.float32))
    agree(got, np.float32([1, 3, np.nan, -0.0, -0.0]))
    got = evaluate("max.NaN.f32 %out, %in0, %in1;", [("f32", a), ("f32", b)], ("f32", np.float32))
    agree(got, np.float32([2, np.nan, np.nan, 0.0, 0.0]))


def test_what_is_made_of_nan_is_the_devices_nan() -> None:
    """PTX ISA, "Floating Point Instructions": "the result is canonical NaN, 0x7fffffff"; x86 makes 0xffc00000 of 0 · ∞."""
    got = evaluate(
        "mul.rn.f32 %out, %in0, %in1;",
        [("f32", np.float32([0])), ("f32", np.float32([np.inf]))],
        ("f32", np.uint32),
    )
    assert hex(got[0]) == "0x7fffffff"


@pytest.mark.parametrize(
    ("compare", "ordered", "with_nan"),
    [("lt", True, False), ("ltu", True, True), ("ne", True, False), ("neu", True, True), ("equ", False, True),
     ("eq", False, False), ("num", True, False), ("nan", False, True), ("geu", False, True)],
)  # fmt: skip
def test_comparisons_with_nan(compare: str, ordered: bool, with_nan: bool) -> None:
    got = evaluate(
        f"setp.{compare}.f32 %p0, %in0, %in1; selp.b32 %out, 1, 0, %p0;",
        [("f32", np.float32([1, np.nan])), ("f32", np.float32([2, 2]))],
        ("u32", np.uint32),
    )
    assert got.tolist() == [ordered, with_nan]


def test_a_comparison_is_combined_with_a_predicate_and_has_an_opposite() -> None:
    got = evaluate(
        "setp.gt.s32 %p2, %in1, 0; setp.lt.and.s32 %p0|%p1, %in0, 5, %p2;"
        "selp.b32 %r0, 1, 0, %p0; selp.b32 %r1, 2, 0, %p1; or.b32 %out, %r0, %r1;",
        [("s32", np.int32([3, 7, 3, 7])), ("s32", np.int32([1, 1, -1, -1]))],
        ("u32", np.uint32),
    )
    assert got.tolist() == [1, 2, 0, 0]


def test_tests_of_floats() -> None:
    x = np.float32([1, np.inf, np.nan, 1e-40])
    for name, expected in (("finite", [1, 0, 0, 1]), ("infinite", [0, 1, 0, 0]), ("notanumber", [0, 0, 1, 0]),
                           ("normal", [1, 0, 0, 0]), ("subnormal", [0, 0, 0, 1])):  # fmt: skip
        got = evaluate(
            f"testp.{name}.f32 %p0, %in0; selp.b32 %out, 1, 0, %p0;", [("f32", x)], ("u32", np.uint32)
        )
        assert got.tolist() == expected, name


def test_copysign_takes_the_sign_of_the_first() -> None:
    """PTX ISA: "Copy sign bit of a into value of b"."""
    got = evaluate(
        "copysign.f32 %out, %in0, %in1;",
        [("f32", np.float32([-0.0, 1])), ("f32", np.float32([3, -4]))],
        ("f32", np.float32),
    )
    assert got.tolist() == [-3, 4]
