"""setp, set and testp, with what NaN is to each (PTX ISA, "Comparison and Selection Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .faults import NotInterpreted
from .operation import Modifiers, Operation
from .rounding import f32_from_bf16
from .source import Instruction
from .values import Array, dtype_of, flushed, halves, is_float

__all__ = ["comparison", "float_test", "set_operation"]

_PRED = np.dtype(bool)
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(instruction: Instruction) -> Operation:
    """The operation of setp: one result, or the result and its opposite. Raises NotInterpreted."""
    modifiers = Modifiers(instruction)
    kind = modifiers.kind()
    compare = _comparison(instruction, modifiers, kind)
    combine = _COMBINE.get(modifiers.one_of(*_COMBINE, default=""))
    modifiers.end()
    dtype = dtype_of(kind)
    if dtype is None:
        raise NotInterpreted.of(instruction)
    pair = "|" in instruction.operands[0]
    if kind.endswith("x2"):
        if combine is not None or not pair:
            raise NotInterpreted.of(instruction)
        half = np.dtype("f2" if kind == "f16x2" else "u2")
        return Operation((dtype, dtype), partial(_of_pairs, compare, half))
    if not pair and combine is None:
        return Operation((dtype, dtype), compare)
    if combine is None:
        return Operation((dtype, dtype), lambda a, b: (r := compare(a, b), np.logical_not(r)))

    def combined(a: Array, b: Array, p: Array) -> Any:
        r = compare(a, b)
        return (combine(r, p), combine(np.logical_not(r), p)) if pair else combine(r, p)

    return Operation((dtype, dtype, _PRED), combined)


def _of_pairs(
    compare: Callable[[Array, Array], Array], half: np.dtype[Any], a: Array, b: Array
) -> tuple[Array, Array]:
    low, high = zip(halves(a), halves(b), strict=True)
    first = compare(*(v.view(half) for v in low))
    return first, compare(*(v.view(half) for v in high))


def _comparison(instruction: Instruction, modifiers: Modifiers, kind: str) -> Callable[[Array, Array], Array]:
    ftz = modifiers.flag("ftz")
    names = [*_COMPARE, *_UNSIGNED]
    if is_float(kind):
        names = [*_COMPARE, *(f"{n}u" for n in _COMPARE), "num", "nan"]
    name = modifiers.one_of(*names)
    if not is_float(kind):
        if kind[0] == "b" and name not in ("eq", "ne"):
            raise NotInterpreted.of(instruction)
        return _COMPARE[_UNSIGNED.get(name, name)]

    def compare(a: Array, b: Array) -> Array:
        if kind.startswith("bf"):
            a, b = f32_from_bf16(a), f32_from_bf16(b)
        if ftz:
            a, b = flushed(a), flushed(b)
        unordered = (a != a) | (b != b)
        if name in ("num", "nan"):
            return unordered if name == "nan" else np.logical_not(unordered)
        if name.endswith("u") and name[:-1] in _COMPARE:
            return _COMPARE[name[:-1]](a, b) | unordered
        return _COMPARE[name](a, b) & np.logical_not(unordered)  # ne too: false where one is NaN

    return compare


def set_operation(instruction: Instruction) -> Operation:
    """The operation of set: all bits, or 1.0, where the comparison holds. Raises NotInterpreted."""
    modifiers = Modifiers(instruction)
    kind, target = modifiers.kind(), modifiers.kind()
    if kind.endswith("x2") or target not in ("u32", "s32", "f32"):
        raise NotInterpreted.of(instruction)
    compare = _comparison(instruction, modifiers, kind)
    modifiers.end()
    dtype = dtype_of(kind)
    assert dtype is not None
    yes: Any = np.float32(1) if target == "f32" else np.uint32(0xFFFFFFFF)
    return Operation((dtype, dtype), lambda a, b: np.where(compare(a, b), yes, type(yes)(0)))


def float_test(instruction: Instruction) -> Operation:
    """The operation of testp. Raises NotInterpreted."""
    modifiers = Modifiers(instruction)
    kind = modifiers.kind()
    name = modifiers.one_of("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    modifiers.end()
    dtype = dtype_of(kind)
    if dtype is None or kind not in ("f32", "f64"):
        raise NotInterpreted.of(instruction)
    smallest = np.finfo(dtype).smallest_normal
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: x == x,
        "notanumber": lambda x: x != x,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= smallest),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < smallest),
    }
    return Operation((dtype,), tests[name])
