"""Runs a launch: many threads at once, each instruction a step over arrays with a number for each lane.

Lanes that stand at the same block of steps go together; of several blocks, the first in the program goes first, so that lanes
come together again behind a branch. Where lanes must meet, they wait; where nobody can go on, it is a deadlock. Lanes of a
block are padded to whole warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import PtxFault
from .memory import GlobalMemory, LaneFault, LocalMemory, Memory, ParameterMemory, SharedMemory
from .program import Block, Program
from .source import Instruction
from .values import Array, as_type

__all__ = ["Launch", "Machine", "run_launch"]

LANES_AT_ONCE = 1 << 15
MOST_BLOCKS = (
    5_000_000  # of steps, for a group of blocks of threads: more than any kernel of the samples takes
)
_U32 = np.dtype("u4")


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launcher asks for. `parameters`: their bytes, as the kernel sees them; `dynamic_shared`: bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int
    parameters: bytes


def run_launch(program: Program, launch: Launch, memory: GlobalMemory) -> int:
    """Run all blocks; how many steps that took, for all lanes at once.

    Raises PtxFault where a thread does something wrong.
    """
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    most = program.function.most_threads
    if most is not None and threads > most:
        raise PtxFault(
            f"a launch with blocks of {threads} threads of a kernel that promises at most {most} (.maxntid)"
        )
    at_once = max(1, LANES_AT_ONCE // (-(-threads // 32) * 32))
    steps = 0
    with np.errstate(all="ignore"):
        for first in range(0, blocks, at_once):
            machine = Machine(program, launch, memory, first, min(at_once, blocks - first))
            steps += machine.run()
    return steps


class Machine:
    """Some blocks of a launch, while they run.

    Attributes:
        registers: arrays of shape (count,), or numbers that all lanes share. They are replaced, never written into.
        count, blocks, lanes_per_block, threads_per_block: lanes in all; how they are divided; how many of a block exist.
        alive: lanes that have not ended.
    """

    def __init__(
        self, program: Program, launch: Launch, memory: GlobalMemory, first: int, blocks: int
    ) -> None:
        self._program, self._launch, self._first_block = program, launch, first
        x, y, z = launch.block
        self.threads_per_block = threads = x * y * z
        self.blocks, self.lanes_per_block = blocks, -(-threads // 32) * 32
        self.count = blocks * self.lanes_per_block
        self._every = np.arange(self.count)
        thread = self._every % self.lanes_per_block
        self._thread = thread
        self.alive = thread < threads
        self._all_exist = threads == self.lanes_per_block
        self.registers: list[Array] = list(program.registers)
        self._set_special(thread, threads)
        shared = program.shared_size + launch.dynamic_shared
        self.shared = SharedMemory(blocks, shared, self.lanes_per_block, program.granule)
        self.memories: dict[str, Memory] = {
            "global": memory,
            "shared": self.shared,
            "local": LocalMemory(self.count, program.local_size),
            "param": ParameterMemory(launch.parameters),
        }
        self._ready: dict[int, Any] = {}  # block of steps -> mask of the lanes that stand there
        self._parked: dict[int, Any] = {}  # the same, waiting for others
        self._steps = 0

    def _set_special(self, thread: Array, threads: int) -> None:
        (x, y, z), grid = self._launch.block, self._launch.grid
        block = np.repeat(np.arange(self._first_block, self._first_block + self.blocks), self.lanes_per_block)
        lane = (thread % 32).astype(np.uint64)
        one = np.uint64(1)
        below, own = (one << lane) - one, one << lane
        every = np.uint64(0xFFFFFFFF)
        found: dict[str, Any] = {
            "%tid.x": thread % x, "%tid.y": thread // x % y, "%tid.z": thread // (x * y),
            "%ntid.x": x, "%ntid.y": y, "%ntid.z": z,
            "%ctaid.x": block % grid[0], "%ctaid.y": block // grid[0] % grid[1], "%ctaid.z": block // (grid[0] * grid[1]),
            "%nctaid.x": grid[0], "%nctaid.y": grid[1], "%nctaid.z": grid[2],
            "%laneid": lane, "%warpid": thread // 32, "%nwarpid": -(-threads // 32),
            "%lanemask_eq": own, "%lanemask_lt": below, "%lanemask_le": below | own,
            "%lanemask_gt": every & ~(below | own), "%lanemask_ge": every & ~below,
        }  # fmt: skip
        for name, number in self._program.special.items():
            value = found[name]
            if isinstance(value, int) or (self.blocks == 1 and name.startswith("%ctaid")):
                value = _U32.type(value if isinstance(value, int) else value[0])
            self.registers[number] = value.astype(_U32)

    # --- what steps use ------------------------------------------------------------------------------------------

    def mask_of(self, mask: Any) -> Array:
        """As an array; None means every lane."""
        return np.ones(self.count, bool) if mask is None else mask

    def mask_at(self, lanes: Array) -> Any:
        if len(lanes) == self.count:
            return None
        mask = np.zeros(self.count, bool)
        mask[lanes] = True
        return mask

    def lanes(self, mask: Any) -> Array:
        """The numbers of the lanes."""
        return self._every if mask is None else np.flatnonzero(mask)

    def first_lane(self, mask: Any) -> Array:
        return self._every[:1] if mask is None else np.flatnonzero(mask)[:1]

    def put(self, target: int, value: Array, mask: Any) -> None:
        """Write a register; `value` is a number for each lane, or for all."""
        if mask is None:
            self.registers[target] = value
        else:
            self.registers[target] = np.where(mask, value, as_type(self.registers[target], value.dtype))

    def put_lanes(self, target: int, value: Array, mask: Any, lanes: Array) -> None:
        """Write a register; `value` is a number for each of `lanes`, those of the mask in their order."""
        if mask is None:
            self.registers[target] = value
            return
        old = as_type(self.registers[target], value.dtype)
        new = np.array(old) if np.ndim(old) else np.full(self.count, old)
        new[lanes] = value
        self.registers[target] = new

    def at(self, register: int, dtype: np.dtype[Any], lanes: Array) -> Array:
        """What a register holds for each of these lanes."""
        value = as_type(self.registers[register], dtype)
        return value[lanes] if np.ndim(value) else np.full(len(lanes), value)

    def bits(self, mask: Array) -> Array:
        """For each warp, its lanes as the bits of a number."""
        return np.packbits(mask.reshape(-1, 32), axis=1, bitorder="little").view("<u4")[:, 0]

    # --- the order of things -------------------------------------------------------------------------------------

    def run(self) -> int:
        blocks = self._program.blocks
        self._ready[0] = None if self._all_exist else self.alive.copy()
        while self._ready or self._parked:
            if not self._ready:
                raise PtxFault(self._who_never_comes())
            number = min(self._ready)
            mask = self._ready.pop(number)
            block = blocks[number]
            if block.guard >= 0:
                mask = self._go_around(block, mask)
                if not mask.any():
                    continue
            if block.collective is not None:
                mask, nobody = self._meet(number, block, mask)
                if nobody:
                    continue
            self._take(block, mask)
            self._steps += 1
            if self._steps > MOST_BLOCKS:
                raise PtxFault(
                    f"the kernel does not end: {self._told(block.instruction, int(self.lanes(mask)[0]))}"
                )
        return self._steps

    def _go_around(self, block: Block, mask: Any) -> Any:
        """Those who do not take part in the block's meeting go on; the others are left."""
        holds = np.broadcast_to(self.registers[block.guard] ^ block.negated, self.count)
        come = self.mask_of(mask)
        around = come & ~holds
        if around.any():
            self._go(block.next, around)
        return come & holds

    def _meet(self, number: int, block: Block, mask: Any) -> tuple[Any, bool]:
        """Those who may go on; whether that is nobody. The others wait."""
        assert block.collective is not None
        if number in self._parked:
            waiting = self._parked.pop(number)
            mask = self._merged(mask, waiting)
        try:
            go = block.collective.ready(self, mask)
        except LaneFault as fault:
            raise self._fault(fault, block.instruction) from None
        if go is None:
            self._run_collective(block, None)
            return None, False
        if mask is None or go is not mask:
            left = self.mask_of(mask) & ~go
            if left.any():
                self._parked[number] = left
        if not go.any():
            return None, True
        self._run_collective(block, go)
        return go, False

    def _run_collective(self, block: Block, mask: Any) -> None:
        assert block.collective is not None
        try:
            block.collective.run(self, mask)
        except LaneFault as fault:
            raise self._fault(fault, block.instruction) from None

    def _who_never_comes(self) -> str:
        """Nobody can go on."""
        told = []
        for number, mask in sorted(self._parked.items()):
            block, come = self._program.blocks[number], self.mask_of(mask)
            lane = int(np.argmax(come))
            waits = f"{self._thread_of(lane)} at {block.instruction}"
            assert block.collective is not None
            awaited = block.collective.awaited(self, come, lane)
            ended = awaited[~self.alive[awaited]]
            if len(ended):
                return f"{self._thread_of(int(ended[0]))} ends, and never comes to where others wait for it: {waits}"
            at = awaited[come[awaited]]
            told.append(
                f"{waits} (with another mask than {self._thread_of(int(at[0]))})" if len(at) else waits
            )
        others = "others of its block" if len(told) == 1 else "each other"
        return f"deadlock: threads wait for {others}, who never come: {'; '.join(told[:4])}"

    def _merged(self, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return None
        both = a | b
        return None if self._all_exist and both.all() else both

    def _go(self, number: int, mask: Any) -> None:
        """Lanes come to a block of steps."""
        if number < 0:
            if mask is None:
                self.alive[:] = False
            else:
                self.alive &= ~mask
        elif number in self._ready:
            self._ready[number] = self._merged(self._ready[number], mask)
        else:
            self._ready[number] = mask

    def _take(self, block: Block, mask: Any) -> None:
        registers = self.registers
        step = None
        try:
            for step in block.steps:
                now = mask
                if step.guard >= 0:
                    holds = registers[step.guard]
                    if step.negated:
                        holds = ~holds
                    if np.ndim(holds) == 0:
                        if not holds:
                            continue
                    else:
                        now = holds if mask is None else holds & mask
                        if not now.any():
                            continue
                        if mask is None and now.all():
                            now = None
                step.run(self, now)
        except LaneFault as fault:
            raise self._fault(fault, step.instruction if step else None) from None
        if block.index >= 0:
            self._leave_by_table(block, mask)
        elif block.condition < 0:
            self._go(block.target, mask)
        else:
            self._leave_by_condition(block, mask)

    def _leave_by_condition(self, block: Block, mask: Any) -> None:
        holds = self.registers[block.condition]
        if block.negated:
            holds = ~holds
        if np.ndim(holds) == 0:
            self._go(block.target if holds else block.next, mask)
            return
        taken = holds if mask is None else holds & mask
        n, of = int(np.count_nonzero(taken)), self.count if mask is None else int(np.count_nonzero(mask))
        if n == of:
            self._go(block.target, mask)
        elif n == 0:
            self._go(block.next, mask)
        else:
            self._go(block.target, taken)
            self._go(block.next, ~taken if mask is None else mask & ~taken)

    def _leave_by_table(self, block: Block, mask: Any) -> None:
        index = np.broadcast_to(as_type(self.registers[block.index], _U32), self.count)
        come = self.mask_of(mask)
        for k in np.unique(index[come]):
            if k >= len(block.table):
                lane = int(np.argmax(come & (index == k)))
                raise self._fault(
                    LaneFault(lane, f"takes branch {k} of {len(block.table)}"), block.instruction
                )
            here = come & (index == k)
            self._go(block.table[k], None if self._all_exist and here.all() else here)

    # --- what went wrong -----------------------------------------------------------------------------------------

    def _fault(self, fault: LaneFault, instruction: Instruction | None) -> PtxFault:
        return PtxFault(f"{self._thread_of(fault.lane)} {fault}, {instruction}")

    def _told(self, instruction: Instruction | None, lane: int) -> str:
        return f"{self._thread_of(lane)} is at {instruction}"

    def _thread_of(self, lane: int) -> str:
        x, y, _ = self._launch.block
        grid: Sequence[int] = self._launch.grid
        t, b = int(self._thread[lane]), self._first_block + lane // self.lanes_per_block
        return (
            f"thread ({t % x}, {t // x % y}, {t // (x * y)}) of block "
            f"({b % grid[0]}, {b // grid[0] % grid[1]}, {b // (grid[0] * grid[1])})"
        )
