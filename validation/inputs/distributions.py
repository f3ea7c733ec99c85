"""Values of one input, drawn anew: what faults of clamps, tails, epsilons and special numbers show on.

Every distribution follows the example's own scale, and its sign where the example has none below zero, so that a
model of logarithms gets positive numbers. A declared range of values is kept. Whole numbers and booleans are never
touched: an index must stay valid, an image an image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["FULL", "QUICK", "drawn", "is_drawable", "varied"]

QUICK = ("large", "tiny")
FULL = (
    "normal",
    "uniform",
    "large",
    "tiny",
    "zeros",
    "constant",
    "with NaN",
    "with Inf",
    "with -0 and subnormals",
)

_LARGE = 64.0  # exp saturates, GELU is at its tails
_LARGE_NARROW = 4.0  # float16, bfloat16: beyond, scores of attention are rounded by more than exp forgives
_TINY = 2.0**-12  # the square is far below every epsilon, no float16 is zero
_NEARLY = 2.0**-10
_VARIATION = 2.0**-6
_NARROWEST = 2  # bytes: float8 holds too few numbers to draw from


def drawn(
    example: torch.Tensor, kind: str, generator: torch.Generator, bounds: tuple[float, float] | None = None
) -> torch.Tensor | None:
    """A tensor of the example's shape and dtype, or None where the distribution says nothing new of it.

    Args:
        kind: one of `FULL`.
        bounds: the declared range of values, both ends included.
    """
    import torch

    if not _drawable(example) or (kind.startswith("with") and bounds is not None):
        return None
    finite = example.detach().double().flatten()
    finite = finite[torch.isfinite(finite)]
    scale = _scale(finite)
    make = _MAKERS[kind]
    values = make(example, scale, finite, generator)
    if bool((finite >= 0).all()) and finite.numel() and kind in ("normal", "large", "tiny"):
        values = values.abs()
    if bounds is not None:
        values = _within(values, kind, bounds, generator)
    result: torch.Tensor = _fitted(values, example.dtype)
    return None if torch.equal(result, example.detach()) else result


def varied(grown: torch.Tensor, example: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Repeated items of an example, each element moved by at most a sixty-fourth of itself, inside its extremes.

    The statistics of rounding errors take elements for independent: repeated ones are not. An example of few different
    values (a mask of 0 and 1, classes as floats) is left as it is, and so is every zero.
    """
    import torch

    if not _drawable(example) or grown.numel() <= example.numel():
        return grown
    finite = example.detach()[torch.isfinite(example.detach())]
    if 2 * len(finite.unique()) < example.numel():
        return grown
    noise = torch.rand(grown.shape, generator=generator, dtype=torch.float64) * 2 - 1
    moved = (grown.double() * (1 + _VARIATION * noise)).clamp(float(finite.min()), float(finite.max()))
    return torch.where(torch.isfinite(grown), moved.to(grown.dtype), grown)


def is_drawable(tensor: object) -> bool:
    """Whether distributions apply to a value: a tensor of a floating dtype that is no float8, with elements."""
    import torch

    return isinstance(tensor, torch.Tensor) and _drawable(tensor)


def _drawable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() >= _NARROWEST and tensor.numel() > 0


def _scale(finite: torch.Tensor) -> float:
    """The root mean square of the example, as a power of two, so that scaling by it is exact; 1 for zeros."""
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return 2.0 ** round(math.log2(size)) if 0 < size < math.inf else 1.0


Maker = Callable[["torch.Tensor", float, "torch.Tensor", "torch.Generator"], "torch.Tensor"]


def _normal(example: torch.Tensor, scale: float, _: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randn(example.shape, generator=generator, dtype=torch.float64) * scale


def _uniform(
    example: torch.Tensor, scale: float, finite: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    import torch

    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (-scale, scale)
    if low == high:
        low, high = (0.0, scale) if low >= 0 else (-scale, scale)
    share = torch.rand(example.shape, generator=generator, dtype=torch.float64)
    return low * (1 - share) + high * share


def _times(factor: float, narrow: float) -> Maker:
    def make(example: torch.Tensor, scale: float, finite: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        return _normal(example, scale * (narrow if example.element_size() < 4 else factor), finite, g)

    return make


def _zeros(example: torch.Tensor, scale: float, finite: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """Half of the elements, and the whole first row (of the last axis).

    Not all: equal numbers are rounded alike, so that the error of a long sum grows with its length, and differs between
    two correct ways to add by more than rounding explains.
    """
    import torch

    keep = torch.rand(example.shape, generator=g, dtype=torch.float64) < 0.5
    values = torch.where(keep, example.detach().double(), 0.0)
    _first_row(values).fill_(0.0)
    return values


def _constant(example: torch.Tensor, scale: float, finite: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    """One number in the first row, in the others up to a thousandth: for the reason that `_zeros` gives."""
    values = scale * (1 + _NEARLY * _normal(example, 1.0, finite, g))
    _first_row(values).fill_(scale)
    return values


def _first_row(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1, values.shape[-1])[0] if values.dim() else values


def _with(specials: Callable[[torch.dtype], Sequence[float]]) -> Maker:
    """The example with special numbers at its first, middle and last places and some between."""

    def make(example: torch.Tensor, scale: float, finite: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        import torch

        values = example.detach().double().flatten().clone()
        n = values.numel()
        numbers = specials(example.dtype)
        places = [0, n - 1, n // 2, *torch.randint(0, n, (max(1, min(13, n // 16)),), generator=g).tolist()]
        for turn, place in enumerate(dict.fromkeys(places)):
            values[place] = numbers[turn % len(numbers)]
        return values.reshape(example.shape)

    return make


def _subnormals(dtype: torch.dtype) -> Sequence[float]:
    import torch

    info = torch.finfo(dtype)
    return (-0.0, info.smallest_normal / 4, -info.smallest_normal / 4, 0.0, info.smallest_normal)


_MAKERS: dict[str, Maker] = {
    "normal": _normal,
    "uniform": _uniform,
    "large": _times(_LARGE, _LARGE_NARROW),
    "tiny": _times(_TINY, _TINY),
    "zeros": _zeros,
    "constant": _constant,
    "with NaN": _with(lambda _: (math.nan,)),
    "with Inf": _with(lambda _: (math.inf, -math.inf)),
    "with -0 and subnormals": _with(_subnormals),
}


def _within(
    values: torch.Tensor, kind: str, bounds: tuple[float, float], generator: torch.Generator
) -> torch.Tensor:
    """What a distribution means inside a declared range: its ends for "large", the number next to zero for "tiny"."""
    import torch

    low, high = bounds
    if kind == "large":
        ends = torch.rand(values.shape, generator=generator, dtype=torch.float64) < 0.5
        return torch.where(ends, torch.full_like(values, low), torch.full_like(values, high))
    if kind == "uniform":
        share = torch.rand(values.shape, generator=generator, dtype=torch.float64)
        values = low * (1 - share) + high * share
    return values.clamp(low, high)


def _fitted(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In the dtype; a finite number beyond its range is its largest one, not Inf."""
    import torch

    info = torch.finfo(dtype)
    finite = torch.isfinite(values)
    return torch.where(finite, values.clamp(info.min, info.max), values).to(dtype)
