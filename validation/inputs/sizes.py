"""Which sizes of the open dims a sweep tries: the lowest and the highest, 1, and around powers of two.

Vectorised kernels have their faults at the ends of their blocks: one more or one less than a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["MOST_GROWN_BYTES", "MOST_INPUT_BYTES", "MOST_SETS", "OpenDim", "SizeSets", "highest", "size_sets"]

MOST_SETS = 24
MOST_INPUT_BYTES = 256 * 2**20
# Memory inside a model may grow with the square of its inputs (attention): bytes x growth stays below this.
MOST_GROWN_BYTES = 2**30

# Where no highest size is declared, a sweep costs no more than a few times the example.
_UNDECLARED_TIMES = 4
_UNDECLARED_BYTES = 2**20

_POWERS = (4, 8, 16, 32, 64, 128, 256)
_SPATIAL_STEP = 32  # image models halve their input five times


@dataclass(frozen=True, slots=True)
class OpenDim:
    """A dim whose size is open.

    Attributes:
        example: its size in the example.
        low, high, multiple: what is declared; `high` None where nothing is.
        spatial: height, width or length of an image or a signal with no declared low: a pixel alone says nothing.
    """

    name: str
    example: int
    low: int = 1
    high: int | None = None
    multiple: int = 1
    spatial: bool = False

    def allows(self, size: int) -> bool:
        return size >= self.low and (self.high is None or size <= self.high) and size % self.multiple == 0


@dataclass(frozen=True, slots=True)
class SizeSets:
    """Sizes by dim name, the example's not among them; and in words what was left out."""

    sets: tuple[Mapping[str, int], ...]
    left_out: tuple[str, ...] = ()


def size_sets(dims: Sequence[OpenDim], bytes_at: Callable[[Mapping[str, int]], int]) -> SizeSets:
    """The sizes of a full sweep: all dims together at their ends, then each alone.

    `bytes_at`: what the inputs take at these sizes.
    """
    example = {d.name: d.example for d in dims}
    base = max(bytes_at(example), 1)
    chosen: list[Mapping[str, int]] = []
    large: list[Mapping[str, int]] = []
    costly: list[Mapping[str, int]] = []
    beyond: list[Mapping[str, int]] = []
    for sizes in _distinct(_wanted(dims), example):
        size = bytes_at(sizes)
        undeclared = any(d.high is None and sizes[d.name] > d.example for d in dims)
        if size > MOST_INPUT_BYTES or size * max(size / base, 1.0) > MOST_GROWN_BYTES:
            large.append(sizes)
        elif undeclared and size > max(_UNDECLARED_TIMES * base, _UNDECLARED_BYTES):
            costly.append(sizes)
        elif len(chosen) < MOST_SETS:
            chosen.append(sizes)
        else:
            beyond.append(sizes)
    left_out = []
    if large:
        left_out.append(
            f"sizes left out for their memory (inputs over {MOST_INPUT_BYTES // 2**20} MiB, or grown too far from the "
            f"example's): {_listed(large, example)}"
        )
    if costly:
        left_out.append(
            f"sizes left out because they cost over {_UNDECLARED_TIMES} times the example and no highest size is "
            f"declared: {_listed(costly, example)}"
        )
    if beyond:
        left_out.append(
            f"sizes left out because a sweep tries at most {MOST_SETS} sets: {_listed(beyond, example)}"
        )
    return SizeSets(tuple(chosen), tuple(left_out))


def _wanted(dims: Sequence[OpenDim]) -> Iterator[dict[str, int]]:
    """Most telling first: together at the ends, all different, then each dim alone, the dims in turn."""
    example = {d.name: d.example for d in dims}
    yield {d.name: _lowest(d) for d in dims}
    yield {d.name: d.example if d.high is None else highest(d) for d in dims}
    yield {d.name: _near(d, d.example + (1 + i) * d.multiple) for i, d in enumerate(dims)}
    alone = [[(d.name, size) for size in _alone(d)] for d in dims]
    for turn in range(max(map(len, alone), default=0)):
        for sizes in alone:
            if turn < len(sizes):
                yield example | dict([sizes[turn]])


def _alone(dim: OpenDim) -> list[int]:
    """Sizes of one dim, most telling first."""
    step = max(dim.multiple, 1)
    if dim.spatial:
        grid = _SPATIAL_STEP if dim.example % _SPATIAL_STEP == 0 else 1
        first = [dim.example + grid, 2 * dim.example, dim.example // 2, dim.example - grid]
        sizes = [s for s in first if s > 1]
    else:
        ends = [0, 1, _lowest(dim), *([] if dim.high is None else [highest(dim)]), 2]
        around = [p + k * step for p in _powers(dim.example, step) for k in (-1, 0, 1)]
        sizes = [*ends, *around]
    if dim.spatial and dim.high is not None:
        sizes.insert(0, highest(dim))
    return [s for s in dict.fromkeys(sizes) if dim.allows(s)]


def _powers(example: int, step: int) -> list[int]:
    """Powers of two (times `step`), the one next to the example first."""
    powers = [p * step for p in _POWERS]
    return sorted(powers, key=lambda p: (abs(p - example), p))


def _lowest(dim: OpenDim) -> int:
    if dim.spatial:
        return dim.example
    return -(-dim.low // dim.multiple) * dim.multiple


def highest(dim: OpenDim) -> int:
    """The declared maximum, or the largest multiple below it; the example's size where none is declared."""
    return dim.example if dim.high is None else dim.high // dim.multiple * dim.multiple


def _near(dim: OpenDim, size: int) -> int:
    if dim.spatial and dim.example % _SPATIAL_STEP == 0:
        size = dim.example + (size - dim.example) * _SPATIAL_STEP
    return size if dim.allows(size) else dim.example


def _distinct(sets: Iterator[dict[str, int]], example: Mapping[str, int]) -> Iterator[dict[str, int]]:
    seen = {tuple(example.values())}
    for sizes in sets:
        key = tuple(sizes.values())
        if key not in seen:
            seen.add(key)
            yield sizes


def _listed(sets: Sequence[Mapping[str, int]], example: Mapping[str, int]) -> str:
    """`n=0, 1; h=4096`, dims changed together joined; cut where it gets long."""
    alone: dict[str, list[int]] = {}
    together: list[str] = []
    for sizes in sets:
        changed = {n: s for n, s in sizes.items() if s != example[n]}
        if len(changed) == 1:
            ((name, size),) = changed.items()
            alone.setdefault(name, []).append(size)
        else:
            together.append(" with ".join(f"{n}={s}" for n, s in changed.items()))
    parts = [f"{n}={', '.join(map(str, sorted(sizes)))}" for n, sizes in alone.items()] + together
    return "; ".join(parts[:8]) + (f"; and {len(parts) - 8} more" if len(parts) > 8 else "")
