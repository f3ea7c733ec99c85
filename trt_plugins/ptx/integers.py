"""Integer, logic and shift instructions, and those that move bits: PTX ISA, "Integer Arithmetic Instructions" and on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .faults import NotInterpreted
from .operation import Modifiers, Operation
from .source import Instruction
from .values import Array, as_type, dtype_of, is_float

__all__ = ["integer_operation"]

_U32, _S32, _U64, _S64 = map(np.dtype, ("u4", "i4", "u8", "i8"))
_PRED = np.dtype(bool)
Function = Callable[..., Array]


def integer_operation(instruction: Instruction) -> Operation:
    """The operation of an instruction on integers or bits. Raises NotInterpreted."""
    name = instruction.opcode[0]
    modifiers = Modifiers(instruction)
    kind = modifiers.kind()
    if name not in _TABLE or (is_float(kind) and name not in ("selp", "slct")):
        raise NotInterpreted.of(instruction)
    dtype = dtype_of(kind)
    assert dtype is not None
    operation = _TABLE[name](instruction, modifiers, dtype)
    modifiers.end()
    return operation


def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.itemsize}")


def doubled(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type with twice the bits."""
    return np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")


# --- arithmetic --------------------------------------------------------------------------------------------------


def _plain(
    arity: int, function: Function, instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]
) -> Operation:
    return Operation((dtype,) * arity, function)


def _add(sign: int, instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    if modifiers.flag("cc"):
        raise NotInterpreted.of(instruction)
    if modifiers.flag("sat"):
        if dtype != _S32:
            raise NotInterpreted.of(instruction)
        return Operation((dtype, dtype), lambda a, b: _saturated(a.astype(_S64) + sign * b.astype(_S64)))
    return Operation((dtype, dtype), (lambda a, b: a + b) if sign > 0 else (lambda a, b: a - b))


def _saturated(wide: Array) -> Array:
    return np.clip(wide, -(2**31), 2**31 - 1).astype(_S32)


def _product(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype, dtype), _multiply(instruction, modifiers, dtype))


def _multiply(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Function:
    part = modifiers.one_of("lo", "hi", "wide")
    if part == "lo":
        return lambda a, b: a * b
    if dtype.itemsize == 8:
        if part == "wide":
            raise NotInterpreted.of(instruction)
        return _high_product_64
    wide = doubled(dtype)
    if part == "wide":
        return lambda a, b: a.astype(wide) * b.astype(wide)
    bits = 8 * dtype.itemsize
    return lambda a, b: ((a.astype(wide) * b.astype(wide)) >> wide.type(bits)).astype(dtype)


def _high_product_64(a: Array, b: Array) -> Array:
    """The upper 64 of 128 bits, from products of 32 bits (Warren, Hacker's Delight, 8-2)."""
    signed = a.dtype.kind == "i"
    x, y = as_type(a, _U64), as_type(b, _U64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> shift, y & low, y >> shift
    middle = x1 * y0 + ((x0 * y0) >> shift)
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> shift) + (other >> shift)
    if signed:
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return as_type(high, a.dtype)


def _mad(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    wide = "wide" in instruction.opcode
    if modifiers.flag("sat", "cc"):
        raise NotInterpreted.of(instruction)
    multiply = _multiply(instruction, modifiers, dtype)
    third = doubled(dtype) if wide else dtype
    return Operation((dtype, dtype, third), lambda a, b, c: multiply(a, b) + c)


def _mul24(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    if modifiers.one_of("lo", "hi") == "hi":
        raise NotInterpreted.of(instruction)
    shift = dtype.type(8)
    return Operation((dtype, dtype), lambda a, b: ((a << shift) >> shift) * ((b << shift) >> shift))


def _divide(
    remainder: bool, instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]
) -> Operation:
    def divide(a: Array, b: Array) -> Array:
        b = np.where(b == 0, dtype.type(1), b)  # the machine has refused those of lanes that take part
        if dtype.kind == "u":
            return a % b if remainder else a // b
        # towards 0; the most negative number over −1 wraps
        rest = np.where(b == -1, dtype.type(0), np.fmod(a, np.where(b == -1, dtype.type(1), b)))
        quotient = np.where(b == -1, -a, (a - rest) // np.where(b == -1, dtype.type(1), b))
        return rest if remainder else quotient

    return Operation((dtype, dtype), divide)


def _extreme(larger: bool, instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    relu = modifiers.flag("relu")
    f = np.maximum if larger else np.minimum
    if relu:
        return Operation((dtype, dtype), lambda a, b: np.maximum(f(a, b), dtype.type(0)))
    return Operation((dtype, dtype), f)


def _sad(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype,) * 3, lambda a, b, c: c + np.where(a < b, b - a, a - b))


# --- bits --------------------------------------------------------------------------------------------------------


def _logic(
    function: Function, instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]
) -> Operation:
    return Operation((dtype, dtype), function)


def _not(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype,), np.logical_not if dtype == _PRED else np.invert)


def _cnot(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype,), lambda a: np.where(a == 0, dtype.type(1), dtype.type(0)))


def _shift(left: bool, instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    bits = 8 * dtype.itemsize

    def shift(a: Array, n: Array) -> Array:
        far = n >= bits  # all bits are shifted out: numpy and C leave that open
        count = np.where(far, np.uint32(0), n).astype(dtype)
        if left:
            return np.where(far, dtype.type(0), a << count)
        gone = a >> dtype.type(bits - 1) if dtype.kind == "i" else dtype.type(0)
        return np.where(far, gone, a >> count)

    return Operation((dtype, _U32), shift)


def _funnel(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    left = modifiers.one_of("l", "r") == "l"
    wraps = modifiers.one_of("wrap", "clamp") == "wrap"

    def shift(low: Array, high: Array, n: Array) -> Array:
        count = (n & np.uint32(31) if wraps else np.minimum(n, np.uint32(32))).astype(_U64)
        both = (high.astype(_U64) << np.uint64(32)) | low.astype(_U64)
        if left:
            # shl by 32 of 64 bits keeps `low` in the upper half
            return ((both << count) >> np.uint64(32)).astype(_U32)
        return (both >> count).astype(_U32)

    return Operation((_U32,) * 3, shift)


def _lop3(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    table = int(instruction.operands[4], 0)

    def apply(a: Array, b: Array, c: Array, _: Array) -> Array:
        r = _U32.type(0)
        for k in range(8):
            if table >> k & 1:
                r = r | ((a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c))
        return r

    return Operation((_U32,) * 4, apply)


def _popc(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype,), lambda a: np.bitwise_count(a).astype(_U32))


def _leading(a: Array) -> Array:
    """How many zeros stand before the first 1."""
    bits = 8 * a.dtype.itemsize
    n = np.full(np.shape(a), bits, _U32)
    found = np.zeros(np.shape(a), bool)
    for k in range(bits):
        here = ((a >> a.dtype.type(bits - 1 - k)) & a.dtype.type(1)) != 0
        n = np.where(here & ~found, np.uint32(k), n)
        found = found | here
    return n


def _clz(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype,), _leading)


def _bfind(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    as_shift = modifiers.flag("shiftamt")
    plain, bits = unsigned(dtype), 8 * dtype.itemsize

    def find(a: Array) -> Array:
        value = as_type(np.where(a < 0, ~a, a) if dtype.kind == "i" else a, plain)
        zeros = _leading(value)
        at = zeros if as_shift else np.uint32(bits - 1) - zeros
        return np.where(value == 0, np.uint32(0xFFFFFFFF), at)

    return Operation((dtype,), find)


def _brev(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    bits = 8 * dtype.itemsize

    def reverse(a: Array) -> Array:
        r = dtype.type(0)
        for k in range(bits):
            r = r | (((a >> dtype.type(k)) & dtype.type(1)) << dtype.type(bits - 1 - k))
        return r

    return Operation((dtype,), reverse)


def _bfe(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    """PTX ISA, bfe: the bits beyond the value are its sign."""
    bits = 8 * dtype.itemsize
    plain = unsigned(dtype)

    def extract(a: Array, b: Array, c: Array) -> Array:
        begin, length = b & np.uint32(0xFF), c & np.uint32(0xFF)
        last = np.minimum(begin.astype(_S64) + length - 1, bits - 1)
        signed = dtype.kind == "i"
        r = plain.type(0)
        u = as_type(a, plain)
        sign_at = np.maximum(last, 0).astype(plain)
        sign = np.where((length == 0) | (not signed), plain.type(0), (u >> sign_at) & plain.type(1))
        for k in range(bits):
            at = begin.astype(_S64) + k
            there = (k < length) & (at < bits)
            bit = np.where(there, (u >> np.minimum(at, bits - 1).astype(plain)) & plain.type(1), sign)
            r = r | (bit << plain.type(k))
        return as_type(r, dtype)

    return Operation((dtype, _U32, _U32), extract)


def _bfi(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    bits = 8 * dtype.itemsize

    def insert(a: Array, b: Array, c: Array, d: Array) -> Array:
        begin, length = (c & np.uint32(0xFF)).astype(_S64), (d & np.uint32(0xFF)).astype(_S64)
        r = b
        for k in range(bits):
            inside = (begin <= k) & (k < begin + length)
            bit = (a >> np.clip(k - begin, 0, bits - 1).astype(dtype)) & dtype.type(1)
            r = np.where(inside, (r & ~dtype.type(1 << k)) | (bit << dtype.type(k)), r)
        return r

    return Operation((dtype, dtype, _U32, _U32), insert)


def _prmt(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    if len(instruction.opcode) > 2:
        raise NotInterpreted.of(instruction)

    def permute(a: Array, b: Array, c: Array) -> Array:
        both = a.astype(_U64) | (b.astype(_U64) << np.uint64(32))
        r = _U32.type(0)
        for k in range(4):
            selector = (c >> np.uint32(4 * k)) & np.uint32(15)
            byte = (both >> ((selector & np.uint32(7)).astype(_U64) * np.uint64(8))) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            byte = np.where(selector & np.uint32(8), sign, byte)
            r = r | (byte.astype(_U32) << np.uint32(8 * k))
        return r

    return Operation((_U32,) * 3, permute)


# --- choices -----------------------------------------------------------------------------------------------------


def _selp(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    return Operation((dtype, dtype, _PRED), lambda a, b, p: np.where(p, a, b))


def _slct(instruction: Instruction, modifiers: Modifiers, dtype: np.dtype[Any]) -> Operation:
    # slct.type.s32 or slct.type.f32: the type of the choice is the last one
    first = dtype_of(modifiers.kind())
    if modifiers.flag("ftz") or first is None:
        raise NotInterpreted.of(instruction)
    return Operation((first, first, dtype), lambda a, b, c: np.where(c >= 0, a, b))


_TABLE: dict[str, Callable[[Instruction, Modifiers, np.dtype[Any]], Operation]] = {
    "add": partial(_add, 1),
    "sub": partial(_add, -1),
    "mul": _product,
    "mad": _mad,
    "mul24": _mul24,
    "div": partial(_divide, False),
    "rem": partial(_divide, True),
    "min": partial(_extreme, False),
    "max": partial(_extreme, True),
    "abs": partial(_plain, 1, np.abs),
    "neg": partial(_plain, 1, np.negative),
    "sad": _sad,
    "and": partial(_logic, np.bitwise_and),
    "or": partial(_logic, np.bitwise_or),
    "xor": partial(_logic, np.bitwise_xor),
    "not": _not,
    "cnot": _cnot,
    "shl": partial(_shift, True),
    "shr": partial(_shift, False),
    "shf": _funnel,
    "lop3": _lop3,
    "popc": _popc,
    "clz": _clz,
    "bfind": _bfind,
    "brev": _brev,
    "bfe": _bfe,
    "bfi": _bfi,
    "prmt": _prmt,
    "selp": _selp,
    "slct": _slct,
}
