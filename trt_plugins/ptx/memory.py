"""The memories of a launch: global memory in pieces with names, and those of blocks and threads.

Each has `locate`: addresses as lanes have them -> places in its `content`; or LaneFault, where a lane touches what is not
there. Addresses of shared, local and parameter memory begin at 0; a generic address of one has its window on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .values import Array

__all__ = [
    "WINDOWS",
    "GlobalMemory",
    "LaneFault",
    "LocalMemory",
    "Memory",
    "ParameterMemory",
    "Segment",
    "SharedMemory",
]

WINDOWS = {"global": 0, "shared": 1 << 48, "local": 2 << 48, "param": 3 << 48}
_GAP = 256  # bytes between pieces that nobody may touch


class Memory(Protocol):
    """Bytes, and where in them the addresses of lanes lie."""

    content: Any

    def locate(self, lanes: Array, a: Array, size: int, write: bool) -> Array: ...


class LaneFault(Exception):
    """What a lane did wrong; the machine adds which thread that is, and where."""

    def __init__(self, lane: int, text: str) -> None:
        super().__init__(text)
        self.lane = lane


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of global memory. `content`: bytes that it begins with; None: of `size` bytes, all NaN."""

    name: str
    address: int
    size: int
    content: bytes | None = None
    writable: bool = True


def _aligned_bytes(size: int, value: int = 0) -> Any:
    """Bytes that begin at a multiple of 16."""
    raw = np.full(size + 32, value, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + (size + 15) // 16 * 16]


class GlobalMemory:
    """Tensors and variables of a launch."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = sorted(segments, key=lambda s: s.address)
        self._places: list[int] = []
        place = 0
        for s in self.segments:
            # as far from a multiple of 16 as its address is
            place += (s.address - place) % 16
            self._places.append(place)
            place += s.size + _GAP
        self.content = _aligned_bytes(place, 0xFF)
        for s, at in zip(self.segments, self._places, strict=True):
            if s.content is not None:
                self.content[at : at + s.size] = np.frombuffer(s.content, np.uint8, s.size)
        self._begins = np.array([s.address for s in self.segments] or [0], np.int64)
        self._ends = np.array([s.address + s.size for s in self.segments] or [0], np.int64)
        self._shifts = np.array(
            [at - s.address for s, at in zip(self.segments, self._places, strict=True)] or [0], np.int64
        )
        self._writable = np.array([s.writable for s in self.segments] or [False])

    def read_segment(self, segment: Segment) -> bytes:
        at = self._places[self.segments.index(segment)]
        return bytes(self.content[at : at + segment.size])

    def locate(self, lanes: Array, a: Array, size: int, write: bool) -> Array:
        low, high = int(a.min()), int(a.max()) + size
        k = int(np.searchsorted(self._begins, low, "right")) - 1
        if k >= 0 and high <= self._ends[k] and (self._writable[k] or not write):
            return a + self._shifts[k]
        each = np.searchsorted(self._begins, a, "right") - 1
        wrong = (each < 0) | (a + size > self._ends[each]) | (write & ~self._writable[each])
        if wrong.any():
            at = int(np.argmax(wrong))
            raise LaneFault(int(lanes[at]), self._told(int(a[at]), size, write))
        return a + self._shifts[each]

    def _told(self, address: int, size: int, write: bool) -> str:
        verb = "writes" if write else "reads"
        for s in self.segments:
            if s.address <= address < s.address + s.size:
                if address + size > s.address + s.size:
                    return f"{verb} {address + size - s.address - s.size} bytes beyond the end of {s.name}"
                return f"writes into {s.name}, which is an input"
        near = min(
            self.segments,
            key=lambda s: max(s.address - address, address - s.address - s.size),
            default=None,
        )
        if (
            near is None
            or min(abs(address - near.address), abs(address - near.address - near.size)) > 1 << 32
        ):
            return f"{verb} at {address:#x}, where no memory is"
        if address < near.address:
            return f"{verb} {near.address - address} bytes before {near.name}"
        return f"{verb} {address + size - near.address - near.size} bytes beyond the end of {near.name}"


class SharedMemory:
    """The shared memories of blocks that run together, each with what was written, and who touched it since a barrier.

    Two accesses to the same bytes by different warps, one of them a write, need a barrier between them. Lanes of one warp
    run in step here, so that what is missing between them is not seen.
    """

    def __init__(self, blocks: int, size: int, lanes_per_block: int, granule: int) -> None:
        self.size = size
        self._granule = granule  # bytes of the smallest access
        self._stride = (size + 15) // 16 * 16
        total = max(blocks * self._stride, 16)
        self.content = _aligned_bytes(total, 0xFF)
        self._written = _aligned_bytes(total, 0)
        lane = np.arange(blocks * lanes_per_block, dtype=np.int64)
        self._base = lane // lanes_per_block * self._stride
        self._warp = lane % lanes_per_block // 32
        self._block = lane // lanes_per_block
        self._epoch = np.ones(blocks, np.int64)
        self._one_warp = lanes_per_block == 32
        words = total // granule
        # 64 · epoch + warp, of the last write, and of the smallest and the largest warp that read since; 0: nobody
        self._writer, self._low, self._high = (np.zeros(words, np.int64) for _ in range(3))

    def locate(self, lanes: Array, a: Array, size: int, write: bool) -> Array:
        wrong = (a < 0) | (a + size > self.size)
        if wrong.any():
            at = int(np.argmax(wrong))
            verb = "writes" if write else "reads"
            over = int(a[at]) + size - self.size
            where = f"{over} bytes beyond the end of" if a[at] >= 0 else "before"
            raise LaneFault(int(lanes[at]), f"{verb} {where} shared memory, which has {self.size} bytes")
        return a + self._base[lanes]

    def barrier(self, blocks: Array) -> None:
        """These blocks have met: what comes is after what was."""
        self._epoch[blocks] += 1

    def sees_read(self, lanes: Array, places: Array, size: int) -> None:
        unit = min(size, 8)
        one = np.frombuffer(b"\1" * unit, f"u{unit}")[0]
        view = self._written.view(f"u{unit}")
        for part in range(0, size, unit):
            wrong = view[(places + part) // unit] != one
            if wrong.any():
                at = int(np.argmax(wrong))
                raise LaneFault(int(lanes[at]), "reads shared memory that nobody has written")
        if self._one_warp:
            return
        mine = self._epoch[self._block[lanes]] * 64 + self._warp[lanes]
        for word in self._words(places, size):
            writer = self._writer[word]
            wrong = (writer >> 6 == mine >> 6) & (writer != mine)
            if wrong.any():
                self._race(lanes, wrong, writer, "reads", "writes")
            stale = self._low[word] >> 6 != mine >> 6
            low = np.where(stale, mine, np.minimum(self._low[word], mine))
            high = np.where(stale, mine, np.maximum(self._high[word], mine))
            # lanes come by warp: the last of equal places stays, so the smallest is written last
            self._low[word[::-1]] = low[::-1]
            self._high[word] = high

    def sees_write(self, lanes: Array, places: Array, size: int) -> None:
        unit = min(size, 8)
        one = np.frombuffer(b"\1" * unit, f"u{unit}")[0]
        view = self._written.view(f"u{unit}")
        for part in range(0, size, unit):
            view[(places + part) // unit] = one
        if self._one_warp:
            return
        mine = self._epoch[self._block[lanes]] * 64 + self._warp[lanes]
        for word in self._words(places, size):
            for seen, verb in (
                (self._writer[word], "writes"),
                (self._low[word], "reads"),
                (self._high[word], "reads"),
            ):
                wrong = (seen >> 6 == mine >> 6) & (seen != mine)
                if wrong.any():
                    self._race(lanes, wrong, seen, "writes", verb)
            self._writer[word] = mine
            wrong = self._writer[word] != mine  # another warp, in this very instruction
            if wrong.any():
                self._race(lanes, wrong, self._writer[word], "writes", "writes")

    def _words(self, places: Array, size: int) -> list[Array]:
        return [(places + part) // self._granule for part in range(0, size, self._granule)]

    def _race(self, lanes: Array, wrong: Array, other: Array, verb: str, others: str) -> None:
        at = int(np.argmax(wrong))
        raise LaneFault(
            int(lanes[at]),
            f"{verb} shared memory that warp {int(other[at]) & 63} of its block {others} too, with no barrier between",
        )


class LocalMemory:
    """Memory of each thread."""

    def __init__(self, lanes: int, size: int) -> None:
        self._size = size
        self._stride = (size + 15) // 16 * 16
        self.content = _aligned_bytes(max(lanes * self._stride, 16), 0xFF)

    def locate(self, lanes: Array, a: Array, size: int, write: bool) -> Array:
        wrong = (a < 0) | (a + size > self._size)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise LaneFault(int(lanes[at]), f"{'writes' if write else 'reads'} beyond its local memory")
        return a + lanes * self._stride


class ParameterMemory:
    """The parameters of a launch, the same for all threads."""

    def __init__(self, content: bytes) -> None:
        self.content = _aligned_bytes(max(len(content), 16))
        self.content[: len(content)] = np.frombuffer(content, np.uint8)
        self._size = len(content)

    def locate(self, lanes: Array, a: Array, size: int, write: bool) -> Array:
        wrong = (a < 0) | (a + size > self._size) | write
        if wrong.any():
            at = int(np.argmax(wrong))
            raise LaneFault(int(lanes[at]), f"{'writes' if write else 'reads beyond'} its parameters")
        return a
