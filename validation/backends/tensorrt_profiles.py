"""Which of an engine's profiles covers a call: shapes of inputs on the device, values of shape inputs on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import NotCheckedError

__all__ = ["Range", "fitting_profile", "profile_ranges"]

Shape = tuple[int, ...]
Range = tuple[Shape, Shape]  # smallest and largest, of a shape or of values


def profile_ranges(engine: Any, inputs: Sequence[str], on_host: Sequence[str]) -> list[dict[str, Range]]:
    """Of each profile, the smallest and the largest of every input. `on_host`: those that hold sizes themselves."""
    return [
        {
            name: found
            for name in inputs
            if (found := _values(engine, name, index) if name in on_host else _shapes(engine, name, index))
        }
        for index in range(engine.num_optimization_profiles)
    ]


def fitting_profile(ranges: Sequence[Mapping[str, Range]], asked: Mapping[str, Shape]) -> int:
    """The first profile that covers all shapes and values.

    Raises NotCheckedError where none does: the engine was not built for them.
    """
    for index, profile in enumerate(ranges):
        if all(name not in profile or _inside(value, *profile[name]) for name, value in asked.items()):
            return index
    offered = "; ".join(
        ", ".join(f"{n} from {list(low)} to {list(high)}" for n, (low, high) in profile.items())
        for profile in ranges
    )
    wanted = ", ".join(f"{n} {list(value)}" for n, value in asked.items())
    raise NotCheckedError(f"the engine was not built for {wanted}: its profiles are {offered or 'none'}")


def _shapes(engine: Any, name: str, index: int) -> Range:
    fixed = tuple(engine.get_tensor_shape(name))
    if all(size >= 0 for size in fixed):
        return fixed, fixed  # a profile need not say anything of it
    low, _, high = engine.get_tensor_profile_shape(name, index)
    return tuple(low), tuple(high)


def _values(engine: Any, name: str, index: int) -> Range | None:
    """Its documentation names these arguments the other way round than it takes them: the types tell."""
    try:
        found = engine.get_tensor_profile_values(index, name)
    except TypeError:
        found = engine.get_tensor_profile_values(name, index)
    return (tuple(found[0]), tuple(found[2])) if len(found) == 3 else None


def _inside(value: Shape, low: Shape, high: Shape) -> bool:
    return len(value) == len(low) and all(a <= v <= b for v, a, b in zip(value, low, high, strict=True))
