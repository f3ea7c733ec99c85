"""Where a gradient is wrong, in words: gradcheck says that it is, with matrices that nobody can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["explain"]

_STEP = 1e-6
_MOST_ELEMENTS = 128  # of an argument or a result that are looked at: each costs two calls, or one backward


def explain(
    call: Callable[..., Sequence[torch.Tensor]],
    leaves: Sequence[torch.Tensor],
    names: Sequence[str],
    outputs: Sequence[str],
) -> str | None:
    """The worst entry of the Jacobian: where, what the backward says there, what finite differences say.

    None where no entry is far off.
    """
    import torch

    results = [r for r in call(*leaves) if r.requires_grad]
    chosen = [range(min(r.numel(), _MOST_ELEMENTS)) for r in results]
    rows: list[list[Any]] = [  # result, element -> the gradient of every leaf
        [torch.autograd.grad(r.flatten()[i], leaves, retain_graph=True, allow_unused=True) for i in which]
        for r, which in zip(results, chosen, strict=True)
    ]
    worst, text = 1.0, None
    for k, leaf in enumerate(leaves):
        for j in range(min(leaf.numel(), _MOST_ELEMENTS)):
            slopes = _differences(call, leaves, k, j, results)
            for o, r in enumerate(results):
                for i in chosen[o]:
                    gradient = rows[o][i][k]
                    given = 0.0 if gradient is None else gradient.flatten()[j].item()
                    expected = slopes[o][i].item()
                    off = abs(given - expected) / (1e-5 + 1e-3 * abs(expected))
                    off = math.inf if math.isnan(off) else off
                    if off <= worst:
                        continue
                    worst = off
                    entry = f"d {outputs[o]}{_index(r, i)} / d {names[k]}{_index(leaf, j)}"
                    if gradient is None:
                        text = (
                            f"the backward gives None for `{names[k]}`, as if nothing depended on it; by finite "
                            f"differences {entry} is {expected:.6g}"
                        )
                    else:
                        text = f"{entry}: the backward gives {given:.6g}, finite differences {expected:.6g}"
    return text


def _differences(
    call: Callable[..., Sequence[torch.Tensor]],
    leaves: Sequence[torch.Tensor],
    k: int,
    j: int,
    results: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """How every result changes with element `j` of leaf `k`, flattened."""
    import torch

    def moved(step: float) -> list[torch.Tensor]:
        given = [leaf.detach().clone() for leaf in leaves]
        given[k] = given[k].contiguous()
        given[k].view(-1)[j] += step
        given = [g.requires_grad_() for g in given]
        return [r.detach().flatten() for r in call(*given) if r.requires_grad]

    with torch.enable_grad():
        above, below = moved(_STEP), moved(-_STEP)
    return [(a - b) / (2 * _STEP) for a, b in zip(above, below, strict=True)]


def _index(t: torch.Tensor, flat: int) -> str:
    """``[0, 2]``; nothing for a number."""
    places = []
    for size in reversed(t.shape):
        places.append(flat % size)
        flat //= size
    return f"[{', '.join(map(str, reversed(places)))}]" if t.dim() else ""
