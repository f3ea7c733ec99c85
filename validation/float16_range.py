"""Values beyond 65,504, the largest float16: the first operator of the original that makes one.

It is run in float64, where the true ranges show.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .backends import Sample
from .backends.torch import Widened, narrowest
from .operators_seen import Place, operators_seen

__all__ = ["BEYOND", "LARGEST", "NARROWER", "Beyond", "first_beyond"]

LARGEST = 65504.0
BEYOND = "beyond 65,504, the largest float16"
NARROWER = "keep this part in float32 or bfloat16, or scale its inputs down (divide before a square or a sum)"


@dataclass(frozen=True, slots=True)
class Beyond:
    """Where the range is left: the module's path, or the operator where there is none; and a clause that says how far."""

    where: str
    text: str


def first_beyond(model: Any, sample: Sample) -> Beyond | None:
    """The first operator whose results leave float16's range although what it takes does not. One run, in float64.

    None where there is none, or where the model does not run in float64.
    """
    import torch
    from torch.utils import _pytree

    from .original import cloned

    leaves = [
        v for v in _pytree.tree_leaves((sample.args, dict(sample.kwargs))) if isinstance(v, torch.Tensor)
    ]
    wide = Widened(model, torch.float64, narrowest(model, leaves) or torch.float32)
    if not wide.available:
        return None
    found: list[Beyond] = []

    def see(at: Place, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if found:
            return
        high = _highest(_pytree.tree_leaves(result))
        if high > LARGEST and _highest(_pytree.tree_leaves((args, kwargs))) <= LARGEST:
            place = f"`{at.path}` ({func})" if at.path else str(func)
            found.append(
                Beyond(
                    at.path or str(func), f"{place} of the original reaches {high:,.6g} in float64, {BEYOND}"
                )
            )

    try:
        with operators_seen(see), torch.no_grad():
            wide.run(cloned(sample.args), cloned(dict(sample.kwargs)))
    except Exception:  # no float64 run: nothing is known
        return None
    return found[0] if found else None


def _highest(values: Iterable[Any]) -> float:
    """The largest finite magnitude of the floating tensors."""
    import torch

    highest = 0.0
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            size = value.detach().abs()
            finite = size[torch.isfinite(size)]
            if finite.numel():
                highest = max(highest, float(finite.max()))
    return highest
