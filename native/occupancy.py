"""How many blocks of a kernel fit on a multiprocessor at once, from what it needs and what the architecture has.

Blocks, warps, shared memory and what of it is reserved: `arch_traits.h` of CUDA's C++ Core Libraries (cuda/__device, in the
wheel nvidia-cuda-cccl 13.3.5). The rule, the units and the barriers: the toolkit's `cuda_occupancy.h`, with which a test
compares; of CUDA 13.5, as that of 13.0 gives 10.3 twice the barriers. The shared memory is taken to be as large as can be.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Multiprocessor", "Occupancy", "multiprocessor", "occupancy"]

_WARP = 32
_REGISTERS = 65536  # of a multiprocessor, in four parts; as many at most for a block
_PARTS = 4
_REGISTER_UNIT = 256  # registers that a warp is given at once


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What a multiprocessor has.

    Attributes:
        blocks, warps: that it holds at once.
        shared: bytes of shared memory for all blocks; `shared_unit`: they are given in multiples of this.
        reserved: bytes that each block loses to the system.
        barriers: for all blocks; 0: the toolkit's calculator does not count them (before 9.0).
    """

    blocks: int
    warps: int
    shared: int
    shared_unit: int
    reserved: int
    barriers: int


def _from(blocks: int, warps: int, kilobytes: int, barriers_per_block: int = 0) -> Multiprocessor:
    return Multiprocessor(blocks, warps, kilobytes << 10, 128, 1024, blocks * barriers_per_block)


_KNOWN = {
    75: Multiprocessor(16, 32, 64 << 10, 256, 0, 0),
    80: _from(32, 64, 164),
    86: _from(16, 48, 100),
    87: _from(16, 48, 164),
    88: _from(16, 48, 100),
    89: _from(24, 48, 100),
    90: _from(32, 64, 228, 2),
    100: _from(32, 64, 228, 2),
    103: _from(32, 64, 228, 1),
    110: _from(24, 48, 228, 1),
    120: _from(24, 48, 100, 1),
    121: _from(24, 48, 100, 1),
}


def multiprocessor(arch: int) -> Multiprocessor | None:
    """That of a compute capability, 80 for 8.0; None where it is not known here."""
    return _KNOWN.get(arch)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full a multiprocessor is.

    Attributes:
        threads: of a block.
        blocks, warps: at once on a multiprocessor.
        fraction: of the warps that it could hold.
        limited_by: "warps", "registers", "shared memory", "blocks" or "barriers", the first that is used up.
    """

    threads: int
    blocks: int
    warps: int
    fraction: float
    limited_by: tuple[str, ...]


def occupancy(arch: int, threads: int, registers: int, shared: int, barriers: int = 0) -> Occupancy | None:
    """The occupancy of a kernel; None for an architecture that is not known here.

    Args:
        threads: of a block.
        registers: of a thread.
        shared: bytes of a block, static and dynamic.
        barriers: that a block uses.
    """
    sm = multiprocessor(arch)
    if sm is None:
        return None
    warps = -(-threads // _WARP)
    limits = {"warps": sm.warps // warps, "blocks": sm.blocks}
    of_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    if of_warp:
        whole = -(-warps // _PARTS) * _PARTS  # what a block is counted as, against what a block may have
        fits = of_warp * whole <= _REGISTERS
        limits["registers"] = _REGISTERS // _PARTS // of_warp * _PARTS // warps if fits else 0
    of_block = -(-(shared + sm.reserved) // sm.shared_unit) * sm.shared_unit
    if of_block:
        limits["shared memory"] = sm.shared // of_block
    if barriers and sm.barriers:
        limits["barriers"] = sm.barriers // barriers
    blocks = min(limits.values())
    least = tuple(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(threads, blocks, blocks * warps, blocks * warps / sm.warps, least)
