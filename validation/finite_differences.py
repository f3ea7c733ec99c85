"""Who is right about a gradient: finite differences in float64, along a random direction.

Autograd through a reference is no truth where the reference is written with a kink that its function has not: the
slope of |x| at 0 counts as 0, also where the two sides of the kink cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["slope", "slope_by"]

_STEP = 1e-6  # error of the central difference: 1e-12 of the third derivative, and 1e-10 of rounding


def slope(
    function: Callable[..., Sequence[torch.Tensor]],
    leaves: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    which: int,
    direction: torch.Tensor,
) -> float:
    """d/dt of the weighted sum of the outputs when leaf `which` moves along `direction`; everything in float64."""
    import torch

    leaves = [leaf.double() for leaf in leaves]
    step = _STEP * max(1.0, float(leaves[which].abs().max()) if leaves[which].numel() else 1.0)

    def at(t: float) -> list[torch.Tensor]:
        moved = list(leaves)
        moved[which] = leaves[which] + t * direction
        with torch.no_grad():
            return list(function(*moved))

    ends = zip(at(step), at(-step), weights, strict=True)
    return float(sum(((a - b) * w.double()).sum() for a, b, w in ends)) / (2 * step)


def slope_by(gradient: Any, direction: torch.Tensor) -> float:
    """The same by a gradient."""
    return float((gradient.double() * direction).sum())
