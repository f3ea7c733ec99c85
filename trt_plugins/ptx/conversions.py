"""cvt: from one type to another, with its rounding and saturation (PTX ISA, "cvt")."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .faults import NotInterpreted
from .operation import Modifiers, Operation
from .rounding import bf16_from_f32, exact_sum, f32_from_bf16, round_to
from .source import Instruction
from .values import Array, canonical, dtype_of, flushed, is_float, joined

__all__ = ["conversion"]

_F32, _F64, _U64 = map(np.dtype, ("f4", "f8", "u8"))
_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def conversion(instruction: Instruction) -> Operation:
    """The operation of cvt. Raises NotInterpreted."""
    modifiers = Modifiers(instruction)
    source, target = modifiers.kind(), modifiers.kind()
    integral = modifiers.one_of(*_TO_INTEGER, default="")
    mode = modifiers.one_of("rn", "rz", "rm", "rp", default="")
    ftz, saturate, relu = modifiers.flag("ftz"), modifiers.flag("sat"), modifiers.flag("relu")
    modifiers.end()
    from_dtype, to_dtype = dtype_of(source), dtype_of(target)
    if from_dtype is None or to_dtype is None or "pred" in (source, target) or source.endswith("x2"):
        raise NotInterpreted.of(instruction)
    if target in ("f16x2", "bf16x2"):
        if source != "f32" or mode not in ("rn", "rz") or saturate:
            raise NotInterpreted.of(instruction)
        one = partial(_narrowed, target.removesuffix("x2"), mode, relu)
        return Operation((from_dtype, from_dtype), lambda a, b: joined(one(b), one(a)))
    if is_float(source) and is_float(target):
        return Operation(
            (from_dtype,), _between_floats(instruction, source, target, integral, mode, ftz, saturate, relu)
        )
    if relu:
        raise NotInterpreted.of(instruction)
    if is_float(source):
        if not integral or source == "bf16":
            raise NotInterpreted.of(instruction)
        return Operation((from_dtype,), partial(_to_integer, to_dtype, integral, ftz))
    if is_float(target):
        if target == "bf16" or not mode:
            raise NotInterpreted.of(instruction)
        return Operation((from_dtype,), partial(_from_integer, to_dtype, mode, saturate))
    if integral or mode or ftz:
        raise NotInterpreted.of(instruction)
    return Operation((from_dtype,), partial(_between_integers, to_dtype, saturate))


def _narrowed(target: str, mode: str, relu: bool, x: Array) -> Array:
    """float32 in half the bits."""
    if relu:
        x = np.where(x <= 0, _F32.type(0), x)
    if target == "bf16":
        return bf16_from_f32(x, mode)
    half = np.dtype("f2")
    return canonical(x.astype(half) if mode == "rn" else round_to(half, x.astype(_F64), np.float64(0), mode))


def _between_floats(
    instruction: Instruction,
    source: str,
    target: str,
    integral: str,
    mode: str,
    ftz: bool,
    saturate: bool,
    relu: bool,
) -> Any:
    order = ("bf16", "f16", "f32", "f64")
    narrower = order.index(target) < order.index(source) or {source, target} == {"f16", "bf16"}
    if "bf16" in (source, target) and (integral or saturate or ftz or (narrower and source != "f32")):
        raise NotInterpreted.of(instruction)
    if narrower and not mode and not integral:
        raise NotInterpreted.of(instruction)
    if relu and not (narrower and source == "f32"):
        raise NotInterpreted.of(instruction)

    def convert(x: Array) -> Array:
        wide = f32_from_bf16(x) if source == "bf16" else x
        if ftz and wide.dtype == _F32:
            wide = flushed(wide)
        if integral:
            wide = _TO_INTEGER[integral](wide)
        if target == "bf16" or relu:
            return _narrowed(target, mode, relu, wide)
        to = dtype_of(target)
        assert to is not None
        directed = narrower and mode not in ("", "rn")
        r = canonical(round_to(to, wide.astype(_F64), np.float64(0), mode) if directed else wide.astype(to))
        if ftz and to == _F32:
            r = flushed(r)
        if saturate:
            r = np.where(r != r, to.type(0), np.clip(r, to.type(0), to.type(1)))
        return r

    return convert


def _to_integer(to: np.dtype[Any], integral: str, ftz: bool, x: Array) -> Array:
    """Out of range: the nearest number in range. NaN: 0, or the top bit alone where 64 bits are on either side."""
    if ftz and x.dtype == _F32:
        x = flushed(x)
    whole = _TO_INTEGER[integral](x.astype(_F64))
    info = np.iinfo(to)
    top = float(info.max) + 1  # exact in float64, for 64 bits too: max + 1 is a power of 2
    inside = (whole >= float(info.min)) & (whole < top)
    r = np.where(inside, whole, 0.0).astype(to)
    r = np.where(whole < float(info.min), info.min, np.where(whole >= top, info.max, r)).astype(to)
    wide = to.itemsize == 8 or x.dtype == _F64
    nan = (1 << (8 * to.itemsize - 1)) if wide else 0
    of_nan = np.array(nan, f"u{to.itemsize}").view(to)[()]
    return np.where(x != x, of_nan, r)


def _from_integer(to: np.dtype[Any], mode: str, saturate: bool, x: Array) -> Array:
    if saturate:
        x = np.clip(x, 0, 1).astype(x.dtype)
    if mode == "rn" and to != np.dtype("f2"):
        return x.astype(to)
    # exact as two halves of 32 bits
    high = (x >> x.dtype.type(32)).astype(_F64) * 2.0**32 if x.dtype.itemsize == 8 else np.float64(0)
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(_F64) if x.dtype.itemsize == 8 else x.astype(_F64)
    return round_to(to, *exact_sum(low, high), mode)


def _between_integers(to: np.dtype[Any], saturate: bool, x: Array) -> Array:
    if not saturate:
        return x.astype(to)
    info = np.iinfo(to)
    low, high = max(info.min, np.iinfo(x.dtype).min), min(info.max, np.iinfo(x.dtype).max)
    return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(to)
