"""Integer inputs that are multiplied or added up: what large ones give is not tried, for an index must stay valid.

Products that pass int64 wrap around in PyTorch; a runtime may clip them instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...export.buffers import buffers_kept
from ..backends.torch import evaluating
from ..operators_seen import Place, operators_seen
from .call_names import named_inputs
from .sweep import Bounds

if TYPE_CHECKING:
    from ..backends import Sample

__all__ = ["not_tried"]

# Products of a few such numbers reach int64's largest.
_LARGE = 2**31
_PRODUCTS = ("prod", "cumprod", "pow", "square")
_OF_TWO = ("mul", "mm", "bmm", "matmul", "dot")
_SUMS = ("sum", "cumsum")
# What these give is no value of the whole numbers that they are given.
_BY_INDEX = (
    "scatter",
    "scatter_",
    "gather",
    "index",
    "index_select",
    "embedding",
    "take",
    "bincount",
    "one_hot",
)


def not_tried(model: Any, samples: Sequence[Sample], bounds: Bounds) -> Iterator[str]:
    """A note for each integer input without a declared range that is multiplied or added up, and whose values were small."""
    import torch

    largest: dict[str, int] = {}
    for sample in samples:
        for name, value in named_inputs(model, sample):
            if isinstance(value, torch.Tensor) and _whole(value) and value.numel() and name not in bounds:
                least, most = int(value.min()), int(value.max())
                largest[name] = max(largest.get(name, 0), abs(least), abs(most))
    small = {n: v for n, v in largest.items() if v < _LARGE}
    for name, function in _used(model, samples[0], set(small)).items() if small else ():
        if small[name] <= 1 and function in _SUMS:
            continue  # a mask
        yield (
            f"no whole number of {name} beyond {small[name]:,} was tried, and the original has a `{function}` of it: where that "
            "passes the range of its type, PyTorch wraps around and a runtime may not. Give samples with the largest numbers that "
            "you expect"
        )


def _used(model: Any, sample: Sample, names: set[str]) -> dict[str, str]:
    """Of these inputs those of which products or sums are taken, and by what; empty where the model does not run."""
    import torch
    from torch.utils import _pytree

    found: dict[str, str] = {}
    alive: list[Any] = []  # or another tensor may get the identity of one that is gone
    origins: dict[int, set[str]] = {}

    def see(place: Place, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        given = [v for v in _pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        of = set().union(*(origins.get(id(v), set()) for v in given))
        if not of:
            return
        name = str(func).split(".")[1] if str(func).startswith("aten.") else ""
        if name in _BY_INDEX:
            return
        whole = [v for v in given if _whole(v)]
        taken = name in _PRODUCTS or name in _SUMS or (name in _OF_TWO and len(whole) > 1)
        for tensor in (v for v in _pytree.tree_leaves(result) if isinstance(v, torch.Tensor)):
            if not _whole(tensor):
                continue
            alive.append(tensor)
            origins[id(tensor)] = of
            if taken and whole:
                for one in of:
                    found.setdefault(one, name)

    args, kwargs = _pytree.tree_map(
        lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (sample.args, dict(sample.kwargs))
    )
    copied = type(sample)(sample.label, args, kwargs)
    for name, value in named_inputs(model, copied):
        if name in names and isinstance(value, torch.Tensor):
            alive.append(value)
            origins[id(value)] = {name}
    try:
        with (
            torch.random.fork_rng(devices=[]),
            evaluating(model),
            buffers_kept(model),
            torch.no_grad(),
            operators_seen(see),
        ):
            model(*args, **kwargs)
    except Exception:  # whether it runs is told elsewhere
        return {}
    return found


def _whole(tensor: Any) -> bool:
    import torch

    return not (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype != torch.bool
