"""Floating-point instructions: PTX ISA, "Floating Point Instructions" and "Half Precision Floating Point Instructions".

Each result is the exact one, rounded once. For `approx` and `full` the ISA allows an error; here they too are rounded
correctly (`APPROXIMATE` says what the device may be off by), but for those of float64, of which the device makes the upper
32 bits only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .faults import NotInterpreted
from .operation import Modifiers, Operation
from .rounding import (
    bf16_from_f32,
    exact_sum,
    f32_from_bf16,
    fma32,
    fma64,
    round_to,
    to_odd,
    zero_sign,
)
from .source import Instruction
from .values import Array, canonical, dtype_of, flushed, halves, is_float, joined

__all__ = ["APPROXIMATE", "float_operation"]

# What the device may be off by: PTX ISA 9.1, sections 9.7.3 (float32) and 9.7.4 (halves), the notes of each instruction.
# The same with .ftz, which flushes subnormal inputs and results besides. Relative errors unless said otherwise; where
# nothing is said, the ISA promises nothing.
APPROXIMATE = {
    "div.approx.f32": "2 ULP, for a divisor of 2^-126 to 2^126 in size",
    "div.full.f32": "2 ULP",
    "rcp.approx.f32": "1 ULP",
    "sqrt.approx.f32": "2^-23",
    "rsqrt.approx.f32": "2^-22.9",
    "sin.approx.f32": "2^-20.5 absolute in [-2 pi, 2 pi], 2^-14.7 in [-100 pi, 100 pi]",
    "cos.approx.f32": "2^-20.5 absolute in [-2 pi, 2 pi], 2^-14.7 in [-100 pi, 100 pi]",
    "lg2.approx.f32": "2^-22 absolute in (0.5, 2), 2^-22 elsewhere",
    "ex2.approx.f32": "2 ULP of the correctly rounded result",
    "tanh.approx.f32": "2^-11",
    "ex2.approx.f16": "2^-9.9",
    "tanh.approx.f16": "2^-10.987 absolute",
}

_F16, _F32, _F64 = map(np.dtype, ("f2", "f4", "f8"))
_MODES = ("rn", "rz", "rm", "rp")
Function = Callable[..., Array]


def float_operation(instruction: Instruction) -> Operation:
    """The operation of a floating-point instruction. Raises NotInterpreted."""
    name = instruction.opcode[0]
    modifiers = Modifiers(instruction)
    kind = modifiers.kind()
    if not is_float(kind) or name not in _TABLE:
        raise NotInterpreted.of(instruction)
    arity, make = _TABLE[name]
    ftz, saturate = modifiers.flag("ftz"), modifiers.flag("sat")
    function = make(instruction, modifiers, kind.removesuffix("x2"))
    relu = modifiers.flag("relu")
    modifiers.end()
    if kind.startswith("bf") and (ftz or saturate):
        raise NotInterpreted.of(instruction)
    plain = kind.startswith("bf") or name == "copysign"
    one = function if plain else partial(_finished, function, ftz, saturate, relu)
    if kind.startswith("bf") and relu:
        raise NotInterpreted.of(instruction)
    dtype = dtype_of(kind)
    assert dtype is not None
    if kind.endswith("x2"):
        half = _F16 if kind == "f16x2" else np.dtype("u2")
        return Operation((dtype,) * arity, partial(_of_pairs, one, half))
    return Operation((dtype,) * arity, one)


def _finished(function: Function, ftz: bool, saturate: bool, relu: bool, *x: Array) -> Array:
    if ftz:
        x = tuple(map(flushed, x))
    r = canonical(function(*x))
    if ftz:
        r = flushed(r)
    if saturate:
        r = np.where(r != r, r.dtype.type(0), np.clip(r, r.dtype.type(0), r.dtype.type(1)))
        r = np.where(r == 0, r.dtype.type(0), r)  # +0
    if relu:
        r = np.where(r <= 0, r.dtype.type(0), r)
    return r


def _of_pairs(function: Function, half: np.dtype[Any], *x: Array) -> Array:
    low, high = zip(*map(halves, x), strict=True)
    made = [function(*(v.view(half) for v in part)) for part in (low, high)]
    return joined(*made)


# --- sums and products -------------------------------------------------------------------------------------------


def _sum(sign: int, instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    mode = modifiers.one_of(*_MODES, default="rn")

    def add(a: Array, b: Array) -> Array:
        b = b if sign > 0 else -b
        if mode == "rn":
            return a + b
        if a.dtype == _F64:
            return zero_sign(round_to(_F64, *exact_sum(a, b), mode), a, b, mode)
        wide = a.astype(_F64), b.astype(_F64)
        return zero_sign(round_to(a.dtype, *exact_sum(*wide), mode), *wide, mode)

    if kind == "bf16":
        # the sum of two bfloat16 may need more bits than float64 has: rounded to odd on the way
        return lambda a, b: _bf16_sum(a, b if sign > 0 else b ^ np.uint16(0x8000))
    return add


def _bf16_of(s: Array, e: Array) -> Array:
    """s + e, rounded once to bfloat16: to float32 by way of odd."""
    odd = to_odd(s, e)
    toward_zero = round_to(_F32, odd, np.float64(0), "rz")
    inexact = toward_zero.astype(_F64) != odd
    bits = np.where(
        inexact & np.isfinite(odd), toward_zero.view(np.uint32) | np.uint32(1), toward_zero.view(np.uint32)
    )
    return bf16_from_f32(bits.view(_F32))


def _bf16_sum(a: Array, b: Array) -> Array:
    return _bf16_of(*exact_sum(f32_from_bf16(a).astype(_F64), f32_from_bf16(b).astype(_F64)))


def _product(instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    mode = modifiers.one_of(*_MODES, default="rn")

    def multiply(a: Array, b: Array) -> Array:
        if mode == "rn":
            return a * b
        if a.dtype == _F64:
            zero = np.float64(-0.0)
            return fma64(a, b, np.copysign(zero, _sign_of_product(a, b)), mode)
        return round_to(a.dtype, a.astype(_F64) * b.astype(_F64), np.float64(0), mode)

    if kind == "bf16":
        # 16 bits, and the range of float64: exact
        return lambda a, b: _bf16_of(
            f32_from_bf16(a).astype(_F64) * f32_from_bf16(b).astype(_F64), np.float64(0)
        )
    return multiply


def _sign_of_product(a: Array, b: Array) -> Array:
    return np.where(np.signbit(a) == np.signbit(b), np.float64(1), np.float64(-1))


def _fma(instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    mode = modifiers.one_of(*_MODES)
    if kind == "f32":
        return lambda a, b, c: fma32(a, b, c, mode)
    if kind == "f64":
        return lambda a, b, c: fma64(a, b, c, mode)
    if mode != "rn":
        raise NotInterpreted.of(instruction)

    def exact(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        return exact_sum(a.astype(_F64) * b.astype(_F64), c.astype(_F64))

    if kind == "bf16":
        return lambda a, b, c: _bf16_of(*exact(*map(f32_from_bf16, (a, b, c))))
    return lambda a, b, c: round_to(_F16, *exact(a, b, c), "rn")


# --- quotients, roots, transcendental functions ------------------------------------------------------------------


def _quotient(instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    mode = modifiers.one_of("rn", "approx", "full")
    if kind not in ("f32", "f64"):
        raise NotInterpreted.of(instruction)
    return _by_reciprocal if mode == "approx" else lambda a, b: a / b


def _by_reciprocal(a: Array, b: Array) -> Array:
    """div.approx.f32 is a · (1/b), and the reciprocal of a divisor beyond 2^126 is 0: PTX ISA 9.1, 9.7.3.8."""
    zero = a * np.copysign(_F32.type(0), b)
    return np.where(np.isfinite(b) & (np.abs(b) > _F32.type(2.0**126)), zero, a / b)


def _of_one(
    exact: Function, narrow_only: bool, instruction: Instruction, modifiers: Modifiers, kind: str
) -> Function:
    """A function of one number, computed in float64 where that rounds well, and rounded to its type."""
    mode = modifiers.one_of("rn", "approx")
    if kind == "f64":
        if mode == "approx" and "ftz" in instruction.opcode:
            # of the upper words: PTX ISA 9.1, 9.7.3.14 and 9.7.3.17
            return lambda x: _upper_word(exact(_upper_word(x)))
        if (
            narrow_only and instruction.opcode[0] != "rsqrt"
        ):  # rsqrt.approx.f64 is emulated in software, 9.7.3.16
            raise NotInterpreted.of(instruction)
        return exact
    if kind == "bf16":
        return lambda x: bf16_from_f32(exact(f32_from_bf16(x).astype(_F64)).astype(_F32))
    # Roots and quotients in float64, rounded again, are those rounded once: 53 bits are at least 2·24 + 2 (Figueroa,
    # "When is double rounding innocuous?", SIGNUM 30, 1995).
    return lambda x: exact(x.astype(_F64)).astype(x.dtype)


def _upper_word(x: Array) -> Array:
    """float64 of which the device makes the upper 32 bits."""
    bits = np.asarray(x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
    return bits.view(_F64)[()]


def _sqrt(instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    modifiers.one_of("rn", "approx")
    if kind not in ("f32", "f64"):
        raise NotInterpreted.of(instruction)
    return np.sqrt


# --- signs, the smaller and the larger ---------------------------------------------------------------------------


def _signs(clear: bool, instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    if kind == "bf16":
        if clear:
            return lambda x: x & np.uint16(0x7FFF)
        return lambda x: x ^ np.uint16(0x8000)
    return np.abs if clear else np.negative


def _extreme(larger: bool, instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    keep_nan = modifiers.flag("NaN")
    if modifiers.flag("xorsign", "abs"):
        raise NotInterpreted.of(instruction)
    if kind == "bf16":
        return lambda *x: bf16_from_f32(_extreme_of(larger, keep_nan, *map(f32_from_bf16, x)))
    return partial(_extreme_of, larger, keep_nan)


def _extreme_of(larger: bool, keep_nan: bool, *x: Array) -> Array:
    a = x[0]
    for b in x[1:]:
        nan = (a != a) | (b != b)
        # −0 is smaller than +0
        first = np.where(a == b, np.signbit(b) == larger, (a > b) == larger)
        r = np.where(first, a, b)
        a = np.where(nan, a + b, r) if keep_nan else np.where(a != a, b, np.where(b != b, a, r))
    return a


def _copysign(instruction: Instruction, modifiers: Modifiers, kind: str) -> Function:
    if kind not in ("f32", "f64"):
        raise NotInterpreted.of(instruction)
    return lambda a, b: np.copysign(b, a)


_TABLE: dict[str, tuple[int, Callable[[Instruction, Modifiers, str], Function]]] = {
    "add": (2, partial(_sum, 1)),
    "sub": (2, partial(_sum, -1)),
    "mul": (2, _product),
    "fma": (3, _fma),
    "mad": (3, _fma),
    "div": (2, _quotient),
    "rcp": (1, partial(_of_one, lambda x: 1 / x, False)),
    "rsqrt": (1, partial(_of_one, lambda x: 1 / np.sqrt(x), True)),
    "sqrt": (1, _sqrt),
    "ex2": (1, partial(_of_one, np.exp2, True)),
    "lg2": (1, partial(_of_one, np.log2, True)),
    "sin": (1, partial(_of_one, np.sin, True)),
    "cos": (1, partial(_of_one, np.cos, True)),
    "tanh": (1, partial(_of_one, np.tanh, True)),
    "abs": (1, partial(_signs, True)),
    "neg": (1, partial(_signs, False)),
    "min": (2, partial(_extreme, False)),
    "max": (2, partial(_extreme, True)),
    "copysign": (2, _copysign),
}
