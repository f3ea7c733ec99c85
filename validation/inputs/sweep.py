"""A sweep: the calls that follow from one example, at other sizes, with other values and in other layouts."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...symbolic.memory_layouts import LAYOUTS, laid_out
from ..backends import Sample
from .distributions import FULL, QUICK, drawn, is_drawable
from .sizes import OpenDim, size_sets

if TYPE_CHECKING:
    from ...export.inputs.signature import Signature

__all__ = ["Bounds", "other_values", "signature_dims", "swept_sizes"]

Bounds = Mapping[str, tuple[float, float]]  # declared ranges of values by name of the input

SEEDS = 2  # further draws of a full sweep


def other_values(
    base: Sample, names: Sequence[str], bounds: Bounds, seed: int, full: bool, notes: dict[str, None]
) -> list[Sample]:
    """The example with its floating inputs drawn anew, and, in a full sweep, in other layouts.

    `names`: of the leaves of the call, in order.
    """
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten((base.args, dict(base.kwargs)))
    named = list(zip(names, leaves, strict=True))
    if not any(is_drawable(v) for _, v in named):
        notes["no input is floating-point: no distributions were swept, whole numbers keep their domain"] = (
            None
        )
        kinds: Sequence[str] = ()
    else:
        kinds = FULL if full else QUICK

    def made(label: str, change: Callable[[str, Any], Any]) -> Iterator[Sample]:
        values = [change(name, value) if hasattr(value, "dtype") else value for name, value in named]
        if any(v is not None for v in values):
            # a leaf that the change says nothing of stays as it is
            kept = [old if new is None else new for new, old in zip(values, leaves, strict=True)]
            args, kwargs = _pytree.tree_unflatten(kept, spec)
            yield replace(base, label=f"{base.label}, {label}", args=args, kwargs=kwargs, golden={})

    found: list[Sample] = []
    for kind in kinds:
        for turn in range(SEEDS if kind == "normal" else 1):
            label = kind if kind != "normal" else f"normal, seed {seed + turn}"
            found += made(label, _drawer(kind, seed + turn, bounds))
    ranged = [n for n, v in named if n in bounds and is_drawable(v)]
    if ranged and full:
        notes[f"no NaN, Inf or subnormals in inputs with a declared range of values: {', '.join(ranged)}"] = (
            None
        )
    if full:
        for layout in LAYOUTS:
            # `expanded` repeats items, also whole numbers: they stay in their domain
            found += made(layout, partial(_laid_out, layout))
    return found


def _laid_out(layout: str, _: str, value: Any) -> Any:
    return laid_out(value, layout)


def _drawer(kind: str, seed: int, bounds: Bounds) -> Callable[[str, Any], Any]:
    import torch

    def draw(name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return None
        # a stream for each input and kind: other inputs change nothing
        number = (zlib.crc32(f"{name}/{kind}".encode()) << 16) + seed
        return drawn(value, kind, torch.Generator().manual_seed(number), bounds.get(name))

    return draw


def swept_sizes(
    dims: Sequence[OpenDim], bytes_at: Callable[[Mapping[str, int]], int], notes: dict[str, None]
) -> list[Mapping[str, int]]:
    """The size sets of a full sweep; what is left out goes to the notes."""
    found = size_sets(dims, bytes_at)
    notes |= dict.fromkeys(found.left_out)
    return list(found.sets)


def signature_dims(signature: Signature) -> tuple[list[OpenDim], Callable[[Mapping[str, int]], int]]:
    """The open dims of declared inputs, and what all inputs take at given sizes."""
    from math import prod

    from ...export.inputs.input_spec import Symbol, item_bytes

    example = signature.example_sizes()
    dims = [
        OpenDim(
            name,
            example[name],
            symbol.low,
            symbol.high,
            symbol.multiple,
            spatial=signature.is_spatial(name) and symbol.low == 1,
        )
        for name, symbol in signature.symbols.items()
    ]

    def bytes_at(sizes: Mapping[str, int]) -> int:
        return sum(
            item_bytes(spec.dtype)
            * prod(sizes[d.name] if isinstance(d, Symbol) else d for d in spec.shape or ())
            for spec in signature.specs
            if spec.is_tensor
        )

    return dims, bytes_at
