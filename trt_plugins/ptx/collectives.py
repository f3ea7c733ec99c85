"""Instructions at which threads wait for each other: barriers of a block, and exchanges between the lanes of a warp.

Each says which of the lanes that have come may go on (`ready`), and what they do then (`run`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .faults import NotInterpreted
from .memory import LaneFault
from .source import Instruction
from .values import Array, as_type, dtype_of

if TYPE_CHECKING:
    from .machine import Machine
    from .program import Compiler

__all__ = ["COLLECTIVES", "Collective", "collective"]

_U32, _S64, _PRED = np.dtype("u4"), np.dtype("i8"), np.dtype(bool)
_EVERY_LANE = np.uint32(0xFFFFFFFF)


class Collective(Protocol):
    """A meeting of lanes."""

    def ready(self, machine: Machine, mask: Any) -> Any:
        """Those of the lanes in `mask` (None: all lanes) for whom all others have come. Raises LaneFault."""

    def awaited(self, machine: Machine, come: Array, lane: int) -> Array:
        """For whom a lane waits, where `come` are there: the numbers of the lanes."""

    def run(self, machine: Machine, mask: Any) -> None: ...


def collective(compiler: Compiler, instruction: Instruction) -> Collective:
    """Raises NotInterpreted."""
    return COLLECTIVES[instruction.opcode[0]](compiler, instruction)


# --- barriers ----------------------------------------------------------------------------------------------------


class _Barrier:
    """Of all threads of the block, those that end too: as the emulation has it."""

    def __init__(self, compiler: Compiler, instruction: Instruction) -> None:
        modifiers = [m for m in instruction.opcode[1:] if m not in ("cta", "aligned")]
        operands = list(instruction.operands)
        self._reduction = ""
        if modifiers and modifiers[0] == "red":
            self._reduction = modifiers[1] if len(modifiers) == 3 else ""
            if self._reduction not in ("popc", "and", "or"):
                raise NotInterpreted.of(instruction)
            self._target = compiler.target(operands.pop(0), instruction)
            given = operands.pop()
            self._negated = given.startswith("!")
            self._source = compiler.source(given.lstrip("!"), _PRED, instruction)
        elif modifiers != ["sync"]:
            raise NotInterpreted.of(instruction)
        if operands != ["0"]:  # of some threads, or another than that of __syncthreads
            raise NotInterpreted(f"{'.'.join(instruction.opcode)} {', '.join(operands)}")

    def ready(self, machine: Machine, mask: Any) -> Any:
        if mask is None:
            return None
        whole = mask.reshape(machine.blocks, -1).sum(1) == machine.threads_per_block
        return mask & np.repeat(whole, machine.lanes_per_block)

    def awaited(self, machine: Machine, come: Array, lane: int) -> Array:
        first = lane - lane % machine.lanes_per_block
        threads = np.arange(first, first + machine.threads_per_block)
        return threads[~come[threads]]

    def run(self, machine: Machine, mask: Any) -> None:
        come = machine.mask_of(mask)
        by_block = come.reshape(machine.blocks, -1)
        machine.shared.barrier(np.flatnonzero(by_block.any(1)))
        if not self._reduction:
            return
        given = np.broadcast_to(machine.registers[self._source], come.shape) ^ self._negated
        given = given.reshape(by_block.shape)
        made: Array
        if self._reduction == "popc":
            made = (given & by_block).sum(1).astype(_U32)
        elif self._reduction == "or":
            made = (given & by_block).any(1)
        else:
            made = (given | ~by_block).all(1)
        machine.put(self._target, np.repeat(made, machine.lanes_per_block), mask)


# --- warps -------------------------------------------------------------------------------------------------------


class _OfWarp:
    """A meeting of the lanes that a mask names: each of them comes, and names the same ones."""

    _members: int

    def ready(self, machine: Machine, mask: Any) -> Any:
        named = as_type(machine.registers[self._members], _U32)
        if mask is None and np.ndim(named) == 0 and named == _EVERY_LANE:
            return None
        lanes = machine.lanes(mask)
        members = machine.at(self._members, _U32, lanes)
        self._expect_members(machine, lanes, members)
        go = np.zeros(machine.count, bool)
        for chosen, warps, present in self._groups(machine, lanes):
            value = members[np.searchsorted(lanes, chosen[0])]
            go[chosen] = present[warps] == value
        return mask if go.sum() == len(lanes) else go

    def _expect_members(self, machine: Machine, lanes: Array, members: Array) -> None:
        """Raises LaneFault where a mask leaves out its own lane, or names one that will not come."""
        out = (members >> (lanes % 32).astype(_U32)) & np.uint32(1) == 0
        if out.any():
            at = int(np.argmax(out))
            raise LaneFault(
                int(lanes[at]),
                f"is lane {int(lanes[at]) % 32}, which the mask {int(members[at]):#010x} leaves out",
            )
        absent = members & ~machine.bits(machine.alive)[lanes // 32]
        if absent.any():
            at = int(np.argmax(absent != 0))
            lane = (int(absent[at]) & -int(absent[at])).bit_length() - 1
            thread = int(lanes[at]) % machine.lanes_per_block // 32 * 32 + lane
            why = (
                "has ended"
                if thread < machine.threads_per_block
                else "does not exist: the block has too few threads"
            )
            raise LaneFault(
                int(lanes[at]), f"has the mask {int(members[at]):#010x}, which names lane {lane}, which {why}"
            )

    def awaited(self, machine: Machine, come: Array, lane: int) -> Array:
        members = np.broadcast_to(as_type(machine.registers[self._members], _U32), machine.count)
        named = lane // 32 * 32 + np.flatnonzero((members[lane] >> np.arange(32, dtype=_U32)) & np.uint32(1))
        return named[~come[named] | (members[named] != members[lane])]

    def _groups(self, machine: Machine, lanes: Array) -> list[tuple[Array, Array, Array]]:
        """The lanes of each mask: which, the number of their warp, and of each warp those that are here, as bits."""
        members = machine.at(self._members, _U32, lanes)
        groups = []
        for value in np.unique(members):
            chosen = lanes[members == value]
            here = np.zeros(machine.count, bool)
            here[chosen] = True
            groups.append((chosen, chosen // 32, machine.bits(here)))
        return groups


class _WarpBarrier(_OfWarp):
    def __init__(self, compiler: Compiler, instruction: Instruction) -> None:
        self._members = compiler.source(instruction.operands[0], _U32, instruction)

    def run(self, machine: Machine, mask: Any) -> None:
        """Lanes of a warp run in step: there is nothing to do."""


class _Shuffle(_OfWarp):
    def __init__(self, compiler: Compiler, instruction: Instruction) -> None:
        if len(instruction.opcode) != 4 or instruction.opcode[1] != "sync" or instruction.opcode[3] != "b32":
            raise NotInterpreted.of(instruction)
        self._mode = instruction.opcode[2]
        if self._mode not in ("up", "down", "bfly", "idx"):
            raise NotInterpreted.of(instruction)
        first, _, second = instruction.operands[0].partition("|")
        self._target = None if first == "_" else compiler.target(first, instruction)
        self._found = compiler.target(second, instruction) if second else None
        self._value, self._b, self._c, self._members = (
            compiler.source(o, _U32, instruction) for o in instruction.operands[1:5]
        )

    def run(self, machine: Machine, mask: Any) -> None:
        lanes = machine.lanes(mask)
        lane = lanes % 32
        b = machine.at(self._b, _U32, lanes).astype(_S64) & 31
        c = machine.at(self._c, _U32, lanes).astype(_S64)
        segment, clamp = (c >> 8) & 31, c & 31
        last, first = (lane & segment) | (clamp & ~segment & 31), lane & segment
        if self._mode == "up":
            source = lane - b
            found = source >= last
        else:
            source = {"down": lane + b, "bfly": lane ^ b, "idx": first | (b & ~segment & 31)}[self._mode]
            found = source <= last
        source = np.where(found, source, lane)
        members = machine.at(self._members, _U32, lanes)
        absent = (members >> source.astype(_U32)) & np.uint32(1) == 0
        places = lanes - lane + source
        if mask is not None:
            absent |= ~machine.mask_of(mask)[places]
        if absent.any():
            at = int(np.argmax(absent))
            raise LaneFault(int(lanes[at]), f"takes from lane {int(source[at])}, which takes no part")
        value = np.broadcast_to(as_type(machine.registers[self._value], _U32), machine.count)
        if self._target is not None:
            machine.put_lanes(self._target, value[places], mask, lanes)
        if self._found is not None:
            machine.put_lanes(self._found, found, mask, lanes)


class _Vote(_OfWarp):
    def __init__(self, compiler: Compiler, instruction: Instruction) -> None:
        if len(instruction.opcode) != 4 or instruction.opcode[1] != "sync":
            raise NotInterpreted.of(instruction)
        self._mode = instruction.opcode[2]
        if self._mode not in ("all", "any", "uni", "ballot"):
            raise NotInterpreted.of(instruction)
        self._target = compiler.target(instruction.operands[0], instruction)
        given = instruction.operands[1]
        self._negated = given.startswith("!")
        self._source = compiler.source(given.lstrip("!"), _PRED, instruction)
        self._members = compiler.source(instruction.operands[2], _U32, instruction)

    def run(self, machine: Machine, mask: Any) -> None:
        given = machine.bits(np.broadcast_to(machine.registers[self._source], machine.count) ^ self._negated)
        for lanes, warps, present in self._groups(machine, machine.lanes(mask)):
            votes = given & present
            made = {
                "ballot": votes,
                "any": votes != 0,
                "all": votes == present,
                "uni": (votes == 0) | (votes == present),
            }[self._mode]
            machine.put_lanes(self._target, made[warps], machine.mask_at(lanes), lanes)


class _Match(_OfWarp):
    def __init__(self, compiler: Compiler, instruction: Instruction) -> None:
        kind = dtype_of(instruction.opcode[-1])
        names = set(instruction.opcode[1:-1])
        if kind is None or names not in ({"any", "sync"}, {"all", "sync"}):
            raise NotInterpreted.of(instruction)
        self._all, self._dtype = "all" in names, kind
        first, _, second = instruction.operands[0].partition("|")
        self._target = compiler.target(first, instruction)
        self._found = compiler.target(second, instruction) if second else None
        self._source = compiler.source(instruction.operands[1], kind, instruction)
        self._members = compiler.source(instruction.operands[2], _U32, instruction)

    def run(self, machine: Machine, mask: Any) -> None:
        value = np.broadcast_to(as_type(machine.registers[self._source], self._dtype), machine.count).reshape(
            -1, 32
        )
        for lanes, warps, present in self._groups(machine, machine.lanes(mask)):
            here = (present[:, None] >> np.arange(32, dtype=_U32)) & np.uint32(1) != 0
            equal = (value[warps] == value.reshape(-1)[lanes][:, None]) & here[warps]
            same = (equal.astype(_U32) << np.arange(32, dtype=_U32)).sum(1).astype(_U32)
            everybody = same == present[warps]
            made = np.where(everybody, same, np.uint32(0)) if self._all else same
            machine.put_lanes(self._target, made, machine.mask_at(lanes), lanes)
            if self._found is not None:
                machine.put_lanes(self._found, everybody, machine.mask_at(lanes), lanes)


_REDUCTIONS: dict[str, Callable[..., Array]] = {
    "add": np.add.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


class _Reduce(_OfWarp):
    def __init__(self, compiler: Compiler, instruction: Instruction) -> None:
        kind = instruction.opcode[-1]
        if (
            len(instruction.opcode) != 4
            or instruction.opcode[2] not in _REDUCTIONS
            or kind not in ("u32", "s32", "b32")
        ):
            raise NotInterpreted.of(instruction)
        self._reduce = _REDUCTIONS[instruction.opcode[2]]
        found = dtype_of(kind)
        assert found is not None
        self._dtype = found
        self._target = compiler.target(instruction.operands[0], instruction)
        self._source = compiler.source(instruction.operands[1], found, instruction)
        self._members = compiler.source(instruction.operands[2], _U32, instruction)

    def run(self, machine: Machine, mask: Any) -> None:
        value = np.broadcast_to(as_type(machine.registers[self._source], self._dtype), machine.count).reshape(
            -1, 32
        )
        for lanes, warps, present in self._groups(machine, machine.lanes(mask)):
            made = np.zeros(len(present), self._dtype)
            for warp in np.unique(warps):
                here = (present[warp] >> np.arange(32, dtype=_U32)) & np.uint32(1) != 0
                made[warp] = self._reduce(value[warp][here], dtype=self._dtype)
            machine.put_lanes(self._target, made[warps], machine.mask_at(lanes), lanes)


def _bar(compiler: Compiler, instruction: Instruction) -> Collective:
    if instruction.opcode[1] == "warp":
        return _WarpBarrier(compiler, instruction)
    return _Barrier(compiler, instruction)


COLLECTIVES: dict[str, Callable[[Compiler, Instruction], Collective]] = {
    "bar": _bar,
    "barrier": _bar,
    "shfl": _Shuffle,
    "vote": _Vote,
    "match": _Match,
    "redux": _Reduce,
}
