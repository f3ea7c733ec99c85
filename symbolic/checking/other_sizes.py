"""Samples at other sizes than they were drawn in, so that a shape rule cannot just repeat the samples' shapes.

Sizes that are equal in a sample are taken to be one size, and stay equal; values are repeated or cut along the
dim, so that indices stay valid. Whether an operator takes the new sizes, its reference says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .sample_runs import SampleRun

if TYPE_CHECKING:
    import torch

__all__ = ["OtherSizes", "other_sizes"]

_MOST_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class OtherSizes:
    """A run with other sizes. `sizes`: old to new, where equal ones stayed equal; None where they did not."""

    run: SampleRun
    sizes: Mapping[int, int] | None


def other_sizes(run: SampleRun) -> Iterator[tuple[OtherSizes, ...]]:
    """Alternatives to try: of each tuple the first that the reference accepts is enough.

    First all sizes at once, then each size alone, then single dims of those that occur several times. A kernel
    that is not Python may read beyond a tensor whose sizes do not fit, so an adopted operator only grows whole.
    """
    dims = [s for t in run.sample.tensors() for s in t.shape]
    sizes = sorted({s for s in dims if s > 1})  # 0 and 1 are special: empty, broadcast
    if not sizes:
        return
    doubled = {s: 2 * s for s in sizes}
    everything = (_resized(run, doubled),)
    if run.op.custom_op is None:
        yield _small(everything)
        return
    yield _small((_resized(run, {s: s + 1 for s in sizes}), *everything))
    if len(sizes) > 1:
        for size in sizes:
            yield _small(
                tuple(
                    _resized(run, {s: s for s in sizes} | {size: new})
                    for new in (size + 1, 2 * size, size - 1)
                )
            )
    for place, size in enumerate(dims):
        if size > 1 and dims.count(size) > 1:
            yield _small(tuple(_one_dim(run, place, new) for new in (size + 1, 2 * size)))


def _small(alternatives: tuple[OtherSizes, ...]) -> tuple[OtherSizes, ...]:
    return tuple(a for a in alternatives if sum(t.numel() for t in a.run.sample.tensors()) <= _MOST_ELEMENTS)


def _resized(run: SampleRun, sizes: Mapping[int, int]) -> OtherSizes:
    def fit(t: torch.Tensor) -> torch.Tensor:
        for axis, size in enumerate(t.shape):
            t = _stretched(t, axis, sizes.get(size, size))
        return t

    return OtherSizes(run.changed(fit), sizes)


def _one_dim(run: SampleRun, place: int, new: int) -> OtherSizes:
    """The `place`-th dim among those of all tensors in `new`."""
    before = 0

    def fit(t: torch.Tensor) -> torch.Tensor:
        nonlocal before
        axis = place - before
        before += t.dim()
        return _stretched(t, axis, new) if 0 <= axis < t.dim() else t

    return OtherSizes(run.changed(fit), None)


def _stretched(t: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """`size` along `axis`, the values repeated or cut."""
    import torch

    old = t.shape[axis]
    return t if size == old else t.index_select(axis, torch.arange(size) % old)
