"""ld, st, atom and red: what reaches memory (PTX ISA, "Data Movement and Conversion Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .faults import NotInterpreted
from .memory import WINDOWS, LaneFault, SharedMemory
from .source import Instruction
from .values import Array, as_type, dtype_of

if TYPE_CHECKING:
    from .machine import Machine
    from .program import Compiler

__all__ = ["atomic_step", "load_step", "store_step"]

Step = Callable[["Machine", Any], None]
_S64 = np.dtype("i8")
# They say how to cache and order: all is in order here.
_NO_MATTER = {
    "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "weak", "volatile", "relaxed", "acquire", "release", "acq_rel",
    "cta", "cluster", "gpu", "sys", "L1:no_allocate", "L1:evict_last", "L1:evict_first", "L1:evict_normal",
    "L1:evict_unchanged", "L2:64B", "L2:128B", "L2:256B", "noftz", "mmio",
}  # fmt: skip
_SPACES = {"global": "global", "const": "global", "shared": "shared", "shared:cta": "shared", "local": "local",
           "param": "param", "param:entry": "param"}  # fmt: skip


class _Access:
    """Where an instruction reaches: its space, its type, how many numbers, and the address."""

    def __init__(self, compiler: Compiler, instruction: Instruction, address: str) -> None:
        kind = instruction.opcode[-1]
        found = dtype_of(kind)
        if found is None or kind == "pred":
            raise NotInterpreted.of(instruction)
        self.dtype: np.dtype[Any] = found
        self.space, self.count = "generic", 1
        self.rest: list[str] = []
        for modifier in instruction.opcode[1:-1]:
            if modifier in _SPACES:
                self.space = _SPACES[modifier]
            elif modifier in ("v2", "v4", "v8"):
                self.count = int(modifier[1:])
            elif modifier not in _NO_MATTER:
                self.rest.append(modifier)
        self.size = self.dtype.itemsize * self.count
        self.base, self.offset = compiler.address(address, instruction)

    def addresses(self, machine: Machine, lanes: Array) -> Array:
        """One for each of these lanes."""
        base = machine.registers[self.base]
        if base.dtype.kind == "f":
            base = base.view(f"u{base.dtype.itemsize}")
        a = base.astype(_S64) + self.offset
        return a[lanes] if np.ndim(a) else np.full(len(lanes), a, _S64)

    def each_space(self, machine: Machine, lanes: Array, a: Array) -> list[tuple[str, Array, Array]]:
        """The spaces that are reached, each with the positions of its lanes and their addresses in it."""
        everything = np.arange(len(lanes))
        if self.space != "generic":
            return [(self.space, everything, a)]
        windows = a >> 48
        found = []
        for name, window in WINDOWS.items():
            at = np.flatnonzero(windows == window >> 48)
            if len(at):
                found.append((name, at, a[at] - window))
        if sum(len(at) for _, at, _ in found) < len(a):
            strange = int(np.argmax((windows < 0) | (windows > 3)))
            raise LaneFault(
                int(lanes[strange]), f"reaches {int(a[strange]) & (1 << 64) - 1:#x}, where no memory is"
            )
        return found

    def places(
        self, machine: Machine, space: str, lanes: Array, a: Array, write: bool, atomic: bool = False
    ) -> tuple[Any, Array]:
        """The memory, and for each lane the number of its item in it."""
        memory = machine.memories[space]
        if (a & (self.size - 1)).any():
            at = int(np.argmax((a & (self.size - 1)) != 0))
            raise LaneFault(
                int(lanes[at]),
                f"{'writes' if write else 'reads'} {self.size} bytes at an address that is {int(a[at]) % self.size} "
                f"past a multiple of {self.size}",
            )
        where = memory.locate(lanes, a, self.size, write)
        if isinstance(memory, SharedMemory) and not atomic:
            (memory.sees_write if write else memory.sees_read)(lanes, where, self.size)
        return memory, where // self.dtype.itemsize


def load_step(compiler: Compiler, instruction: Instruction) -> Step:
    access = _Access(compiler, instruction, instruction.operands[1])
    if access.rest:
        raise NotInterpreted.of(instruction)
    text = instruction.operands[0]
    names = text[1:-1].split(",") if text[0] == "{" else [text]
    if len(names) != access.count:
        raise NotInterpreted.of(instruction)
    targets = [None if n == "_" else compiler.target(n, instruction) for n in names]
    widths = [None if n == "_" else compiler.width(n, instruction) for n in names]
    kind = "i" if access.dtype.kind == "i" else "u"

    def run(machine: Machine, mask: Any) -> None:
        if access.space == "param" and np.ndim(machine.registers[access.base]) == 0:
            first = int(machine.registers[access.base]) + access.offset
            lane = machine.first_lane(mask)
            place = int(access.places(machine, "param", lane, np.array([first], _S64), False)[1][0])
            items = machine.memories["param"].content.view(access.dtype)[place : place + access.count]
            for k, target in enumerate(targets):
                if target is not None:
                    machine.put(target, _extended(items[k], widths[k], kind), mask)
            return
        lanes = machine.lanes(mask)
        a = access.addresses(machine, lanes)
        columns: list[Array] = []
        spaces = access.each_space(machine, lanes, a)
        for space, at, inside in spaces:
            memory, where = access.places(machine, space, lanes[at], inside, False)
            view = memory.content.view(access.dtype)
            if access.count > 1:
                both = view[where[:, None] + np.arange(access.count)].T
                parts = list(both)
            else:
                parts = [view[where]]
            if len(spaces) == 1:
                columns = parts
            else:
                columns = columns or [np.zeros(len(lanes), access.dtype) for _ in parts]
                for column, part in zip(columns, parts, strict=True):
                    column[at] = part
        for k, target in enumerate(targets):
            if target is not None:
                machine.put_lanes(
                    target, _extended(np.ascontiguousarray(columns[k]), widths[k], kind), mask, lanes
                )

    return run


def _extended(value: Array, width: int | None, kind: str) -> Array:
    """A number as wide as its register: with its sign where its type has one."""
    if width is None or value.dtype.itemsize == width:
        return value
    bits = value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "f" else value
    return bits.astype(f"{kind}{width}")


def store_step(compiler: Compiler, instruction: Instruction) -> Step:
    access = _Access(compiler, instruction, instruction.operands[0])
    if access.rest:
        raise NotInterpreted.of(instruction)
    text = instruction.operands[1]
    names = text[1:-1].split(",") if text[0] == "{" else [text]
    if len(names) != access.count:
        raise NotInterpreted.of(instruction)
    sources = [compiler.source(n, access.dtype, instruction) for n in names]

    def run(machine: Machine, mask: Any) -> None:
        lanes = machine.lanes(mask)
        a = access.addresses(machine, lanes)
        for space, at, inside in access.each_space(machine, lanes, a):
            memory, where = access.places(machine, space, lanes[at], inside, True)
            view = memory.content.view(access.dtype)
            for k, source in enumerate(sources):
                value = as_type(machine.registers[source], access.dtype)
                view[where + k] = value[lanes[at]] if np.ndim(value) else value

    return run


def _step_up(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _step_down(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


_UPDATES: dict[str, Callable[..., Array]] = {
    "add": lambda old, x: old + x,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, x: x,
    "inc": _step_up,
    "dec": _step_down,
    "cas": lambda old, expected, x: np.where(old == expected, x, old),
}


def atomic_step(compiler: Compiler, instruction: Instruction) -> Step:
    """atom and red: lanes one after another where they meet at one address."""
    returns = instruction.opcode[0] == "atom"
    operands = instruction.operands if returns else ("_", *instruction.operands)
    access = _Access(compiler, instruction, operands[1])
    if len(access.rest) != 1 or access.rest[0] not in _UPDATES or access.count > 1:
        raise NotInterpreted.of(instruction)
    name, kind = access.rest[0], instruction.opcode[-1]
    if (
        kind.startswith("bf")
        or kind.endswith("x2")
        or (access.dtype.kind == "f" and name not in ("add", "exch"))
    ):
        raise NotInterpreted.of(instruction)
    update = _UPDATES[name]
    sources = [compiler.source(n, access.dtype, instruction) for n in operands[2:]]
    target = None if operands[0] == "_" else compiler.target(operands[0], instruction)

    def run(machine: Machine, mask: Any) -> None:
        lanes = machine.lanes(mask)
        a = access.addresses(machine, lanes)
        result = np.zeros(len(lanes), access.dtype)
        for space, at, inside in access.each_space(machine, lanes, a):
            memory, where = access.places(machine, space, lanes[at], inside, True, True)
            view = memory.content.view(access.dtype)
            given = []
            for source in sources:
                value = as_type(machine.registers[source], access.dtype)
                given.append(value[lanes[at]] if np.ndim(value) else np.full(len(at), value))
            left = np.arange(len(at))
            while len(left):
                # the first lane of each address that is left
                _, first = np.unique(where[left], return_index=True)
                now = left[np.sort(first)]
                old = view[where[now]]
                result[at[now]] = old
                view[where[now]] = update(old, *(g[now] for g in given))
                left = np.delete(left, np.sort(first))
        if target is not None:
            machine.put_lanes(target, result, mask, lanes)

    return run
