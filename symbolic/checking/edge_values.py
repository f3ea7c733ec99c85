"""Samples of values at which elementwise functions differ that agree elsewhere: zeros, ties between whole numbers, large, tiny.

Random samples hold none of them. A body that rounds halves away from zero, or takes the logarithm of a cube root's argument,
is right on all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .sample_runs import SampleRun

if TYPE_CHECKING:
    import torch

__all__ = ["EDGES", "edge_runs"]

EDGES = "zeros, ties at a half, whole, large and tiny numbers"


def edge_runs(run: SampleRun) -> Iterator[SampleRun]:
    """The run with edge values in the place of its own; nothing for an operator that is not seen to be elementwise.

    Values are left out that the sample suggests to be outside of the domain: negative ones where it has none, those above one
    where it has none.
    """
    tensors = [t for t in run.sample.tensors() if t.dim()]
    if not tensors or not _elementwise(run, tensors):
        return
    import torch

    edges = _edges(tensors)
    count, size = len(edges), tensors[0].numel()
    for start in range(0, count, size):
        turn = iter(range(len(tensors)))

        def filled(t: torch.Tensor, start: int = start, turn: Iterator[int] = turn) -> torch.Tensor:
            if not t.dim():
                return t
            # further arguments are in another phase, and so meet other partners
            places = (torch.arange(size) + start + 5 * next(turn)) % count
            return edges[places].to(t.dtype).reshape(t.shape)

        yield run.changed(filled)


def _edges(tensors: list[torch.Tensor]) -> torch.Tensor:
    """float64, of one dim."""
    import torch

    info = torch.finfo(min((t.dtype for t in tensors), key=lambda d: torch.finfo(d).max))
    # a square of it stays finite, and one of its reciprocal is no subnormal number
    large = 2.0 ** (torch.tensor(min(info.max, 2.0**126)).log2().item() // 2)
    sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 6.5, 8.0, large, 1 / large]
    values = torch.tensor([s for v in sizes for s in (v, -v)], dtype=torch.float64)
    own = torch.cat([t.detach().double().flatten() for t in tensors])
    if not (own < 0).any():
        values = values[values > 0]
    if own.abs().max() <= 1:
        values = values[values.abs() <= 1]
    return values


def _elementwise(run: SampleRun, tensors: list[torch.Tensor]) -> bool:
    """Whether every output has the shape of every tensor, and its elements do not change where only others of the inputs do."""
    import torch

    shape = tensors[0].shape
    if not tensors[0].numel() or any(t.shape != shape or not t.is_floating_point() for t in tensors):
        return False
    generator = torch.Generator().manual_seed(0)
    try:
        own = run.reference()
        for _ in range(3):
            mask = torch.rand(shape, generator=generator) < 0.5

            def other(t: torch.Tensor, mask: torch.Tensor = mask) -> torch.Tensor:
                return torch.where(mask, t.flatten()[t.numel() // 2], t) if t.dim() else t

            changed = run.changed(other).reference()
            for before, after in zip(own, changed, strict=True):
                same = (before == after) | (before.isnan() & after.isnan())
                if before.shape != shape or not bool(same[~mask].all()):
                    return False
    except Exception:  # whatever the user's reference raises
        return False
    return True
