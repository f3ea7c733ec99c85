"""What the machine does for each instruction that neither branches nor waits: operands from registers, results into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .accesses import atomic_step, load_step, store_step
from .arithmetic import float_operation
from .comparisons import comparison, float_test, set_operation
from .conversions import conversion
from .faults import NotInterpreted
from .integers import integer_operation
from .memory import WINDOWS, LaneFault
from .operation import Operation
from .source import Instruction
from .values import as_type, dtype_of, is_float

if TYPE_CHECKING:
    from .machine import Machine
    from .program import Compiler

__all__ = ["Run", "step_of"]

Run = Callable[["Machine", Any], None]
_NOTHING = {"membar", "fence", "prefetch", "prefetchu", "nanosleep"}


def step_of(compiler: Compiler, i: Instruction) -> Run:
    """What the machine does for an instruction. Raises NotInterpreted."""
    name, kind = i.opcode[0], i.opcode[-1]
    if name in ("ld", "ldu"):
        return load_step(compiler, i)
    if name == "st":
        return store_step(compiler, i)
    if name in ("atom", "red"):
        return atomic_step(compiler, i)
    if name == "mov":
        return _move(compiler, i)
    if name == "cvta":
        return _change_space(compiler, i)
    if name == "activemask":
        return _active(compiler, i)
    if name == "trap":
        return _trap
    if name in _NOTHING:
        return lambda machine, mask: None
    if name == "setp":
        return _applied(compiler, i, comparison(i))
    if name == "set":
        return _applied(compiler, i, set_operation(i))
    if name == "testp":
        return _applied(compiler, i, float_test(i))
    if name == "cvt":
        return _applied(compiler, i, conversion(i))
    if dtype_of(kind) is None:
        raise NotInterpreted.of(i)
    if is_float(kind) and name not in ("selp", "slct"):
        return _applied(compiler, i, float_operation(i))
    operation = integer_operation(i)
    run = _applied(compiler, i, operation)
    return _refusing_zero(compiler, i, operation, run) if name in ("div", "rem") else run


def _applied(compiler: Compiler, i: Instruction, operation: Operation) -> Run:
    given = i.operands[1:]
    if len(given) != len(operation.sources):
        raise NotInterpreted(i.text)
    flipped = tuple(text.startswith("!") for text in given)
    sources = tuple(
        (compiler.source(text.lstrip("!"), dtype, i), dtype)
        for text, dtype in zip(given, operation.sources, strict=True)
    )
    names = i.operands[0].split("|")
    targets = tuple(None if n == "_" else compiler.target(n, i) for n in names)
    widths = tuple(None if n == "_" else compiler.width(n, i) for n in names)
    apply = operation.apply
    if any(flipped):

        def run_flipped(machine: Machine, mask: Any) -> None:
            registers = machine.registers
            values = [
                np.logical_not(registers[n]) if flip else as_type(registers[n], dtype)
                for (n, dtype), flip in zip(sources, flipped, strict=True)
            ]
            made = apply(*values)
            for target, value in zip(targets, made if len(targets) > 1 else (made,), strict=True):
                if target is not None:
                    machine.put(target, value, mask)

        return run_flipped
    if len(targets) > 1:

        def run_pair(machine: Machine, mask: Any) -> None:
            registers = machine.registers
            made = apply(*[as_type(registers[n], dtype) for n, dtype in sources])
            for target, value in zip(targets, made, strict=True):
                if target is not None:
                    machine.put(target, value, mask)

        return run_pair
    target, width = targets[0], widths[0]
    if target is None:
        raise NotInterpreted(i.text)
    to: int = target

    def run(machine: Machine, mask: Any) -> None:
        registers = machine.registers
        value = apply(*[as_type(registers[n], dtype) for n, dtype in sources])
        if value.dtype.itemsize != width:
            # a narrow result in a wide register, with its sign where its type has one
            value = value.astype(f"{'i' if value.dtype.kind == 'i' else 'u'}{width}")
        if mask is None:
            registers[to] = value
        else:
            machine.put(to, value, mask)

    return run


def _refusing_zero(compiler: Compiler, i: Instruction, operation: Operation, run: Run) -> Run:
    divisor = compiler.source(i.operands[2], operation.sources[1], i)

    def checked(machine: Machine, mask: Any) -> None:
        zero = np.broadcast_to(machine.registers[divisor] == 0, machine.count) & machine.mask_of(mask)
        if zero.any():
            raise LaneFault(int(np.argmax(zero)), "divides an integer by 0")
        run(machine, mask)

    return checked


def _trap(machine: Machine, mask: Any) -> None:
    raise LaneFault(int(machine.lanes(mask)[0]), "comes to a trap")


def _active(compiler: Compiler, i: Instruction) -> Run:
    target = compiler.target(i.operands[0], i)

    def run(machine: Machine, mask: Any) -> None:
        bits = machine.bits(machine.mask_of(mask))
        machine.put(target, np.repeat(bits, 32), mask)

    return run


def _move(compiler: Compiler, i: Instruction) -> Run:
    kind = i.opcode[-1]
    dtype = dtype_of(kind)
    if dtype is None or len(i.opcode) != 2:
        raise NotInterpreted.of(i)
    to, source = i.operands
    if to[0] == "{":
        names = to[1:-1].split(",")
        part = np.dtype(f"u{dtype.itemsize // len(names)}")
        number = compiler.source(source, dtype, i)
        targets = [None if n == "_" else compiler.target(n, i) for n in names]
        bits = 8 * part.itemsize
        plain = np.dtype(f"u{dtype.itemsize}")

        def split(machine: Machine, mask: Any) -> None:
            value = as_type(machine.registers[number], plain)
            for k, target in enumerate(targets):
                if target is not None:
                    machine.put(target, (value >> plain.type(bits * k)).astype(part), mask)

        return split
    target = compiler.target(to, i)
    if source[0] == "{":
        names = source[1:-1].split(",")
        part = np.dtype(f"u{dtype.itemsize // len(names)}")
        numbers = [compiler.source(n, part, i) for n in names]
        plain = np.dtype(f"u{dtype.itemsize}")
        bits = 8 * part.itemsize

        def join(machine: Machine, mask: Any) -> None:
            value = plain.type(0)
            for k, n in enumerate(numbers):
                value = value | (as_type(machine.registers[n], part).astype(plain) << plain.type(bits * k))
            machine.put(target, value, mask)

        return join
    number = compiler.source(source, dtype, i)
    width = compiler.width(to, i)
    if width != dtype.itemsize and dtype.kind != "b":
        raise NotInterpreted(i.text)

    def run(machine: Machine, mask: Any) -> None:
        machine.put(target, as_type(machine.registers[number], dtype), mask)

    return run


def _change_space(compiler: Compiler, i: Instruction) -> Run:
    spaces = [m for m in i.opcode[1:] if m not in ("to", "u64", "u32", "shared:cta")] or ["shared"]
    space = {"const": "global", "param:entry": "param"}.get(spaces[0], spaces[0])
    if i.opcode[-1] != "u64" or space not in WINDOWS or len(spaces) > 1:
        raise NotInterpreted.of(i)
    window = np.uint64(WINDOWS[space])
    back = "to" in i.opcode
    target, source = compiler.target(i.operands[0], i), compiler.source(i.operands[1], np.dtype("u8"), i)

    def run(machine: Machine, mask: Any) -> None:
        value = as_type(machine.registers[source], np.dtype("u8"))
        machine.put(target, value - window if back else value + window, mask)

    return run
