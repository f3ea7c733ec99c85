"""What values the samples have, and which kinds of them none has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .call_names import named_inputs
from .sweep import Bounds

if TYPE_CHECKING:
    import torch

    from ..backends import Sample

__all__ = ["untried"]


def untried(model: Any, samples: Sequence[Sample], bounds: Bounds) -> Iterator[str]:
    """A note for each floating input that is never negative, and each other input that has one value throughout.

    `bounds`: declared ranges of values; what they exclude need not be tried.
    """
    import torch

    extremes: dict[str, tuple[bool, float, float]] = {}
    for sample in samples:
        for name, value in named_inputs(model, sample):
            if not isinstance(value, torch.Tensor) or not value.numel() or value.is_complex():
                continue
            floating = value.is_floating_point()
            values = value.detach()
            low, high = _extremes(values.to(torch.float32) if floating and value.itemsize == 1 else values)
            if not (math.isfinite(low) and math.isfinite(high)):
                values = values[torch.isfinite(values)]
                if not values.numel():
                    continue
                low, high = _extremes(values)
            _, lowest, highest = extremes.get(name, (floating, low, high))
            extremes[name] = (floating, min(low, lowest), max(high, highest))
    for name, (floating, low, high) in extremes.items():
        least, largest = bounds.get(name, (float("-inf"), float("inf")))
        if low == high and least != largest:
            yield f"{name} is {low:g} in every element of every sample: no other value was tried"
        elif floating and low >= 0 and least < 0:
            yield f"no negative value of {name} was tried: its values are from {low:.6g} to {high:.6g}"


def _extremes(values: torch.Tensor) -> tuple[float, float]:
    if values.dtype.is_floating_point:
        low, high = values.aminmax()
        return float(low), float(high)
    return float(values.min()), float(values.max())
