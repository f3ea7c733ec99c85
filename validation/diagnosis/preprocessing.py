"""Inputs that the two sides read differently: another layout, channel order, scale or offset.

Found by running the original on changed inputs and comparing with the candidate's outputs: where the change is what
the candidate does inside, its outputs are explained. A few runs, and only after a failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ..backends import Sample
from ..original import Expected, Original
from ..record import Finding
from .residual import Elsewhere, Wrong, explains, failing, nowhere

if TYPE_CHECKING:
    import torch

__all__ = ["MOST_RUNS", "explain"]

Array = npt.NDArray[Any]

MOST_RUNS = 32

# The per-channel means and deviations of ImageNet that torchvision's models are trained with.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class _Change:
    """`kind` of finding, what the candidate reads the input as, and how to make that of the tensor."""

    kind: str
    text: str
    make: Callable[[torch.Tensor], torch.Tensor]


def explain(
    original: Original,
    sample: Sample,
    got: list[Array],
    expected: list[Expected],
    names: Sequence[str],
    inputs: Sequence[str],
    elsewhere: Elsewhere = nowhere,
    wrong: Sequence[Wrong] | None = None,
) -> Iterator[Finding]:
    """A finding for the first change of one input that explains every failed output, on every sample.

    `inputs`: names of the leaves of the call.
    """
    import torch
    from torch.utils import _pytree

    wrong = list(failing(got, expected)) if wrong is None else wrong
    if not wrong:
        return
    leaves = _pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    runs = 0
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.numel() < 2:
            continue
        for change in _changes(leaf):
            if runs >= MOST_RUNS:
                return
            changed = _changed(sample, position, change)
            if changed is None:
                continue
            runs += 1
            arrays = _outputs(original, changed, len(got))
            if not arrays or not all(explains(g, e, arrays[k]) for k, g, e in wrong):
                continue
            if _holds(original, position, change, elsewhere()):
                outputs = f" in {', '.join(names[k] for k, _, _ in wrong)}" if len(got) > 1 else ""
                yield Finding(
                    change.kind,
                    "note",
                    f"the outputs are those of the original on {inputs[position]} {change.text}: that explains all of the "
                    f"difference{outputs}",
                    where=inputs[position],
                    advice="the two sides read this input differently: compare the first nodes of the file, and what is done "
                    "to the input before it, with the model's own preprocessing",
                )
                return


def _changed(sample: Sample, position: int, change: _Change) -> Sample | None:
    """The sample with one input changed; None where the change does nothing, or is none for its shape."""
    import torch
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten((sample.args, dict(sample.kwargs)))
    leaf = leaves[position]
    try:
        made = change.make(leaf).contiguous()
    except (RuntimeError, ValueError, IndexError):
        return None
    if made.shape != leaf.shape or torch.equal(made, leaf):
        return None
    args, kwargs = _pytree.tree_unflatten([*leaves[:position], made, *leaves[position + 1 :]], spec)
    return replace(sample, args=args, kwargs=kwargs)


def _outputs(original: Original, sample: Sample, count: int) -> list[Array]:
    """Of a run; none where the model does not take the sample: then it is not the explanation."""
    try:
        arrays = original.arrays(sample)
    except Exception:  # whatever a model raises
        return []
    return arrays if len(arrays) == count else []


def _holds(
    original: Original,
    position: int,
    change: _Change,
    others: Sequence[tuple[Sample, list[Array], list[Expected]]],
) -> bool:
    """Whether the same change explains other samples; on one that it leaves as it is, nothing may differ."""
    for sample, got, expected in others:
        changed = _changed(sample, position, change)
        arrays = [e.array for e in expected] if changed is None else _outputs(original, changed, len(got))
        if not arrays or not all(
            explains(g, e, a, True) for g, e, a in zip(got, expected, arrays, strict=True)
        ):
            return False
    return True


def _changes(leaf: torch.Tensor) -> Iterator[_Change]:
    """Most likely first: channel order and scale of images, then layouts, then the rest."""
    floating = leaf.is_floating_point()
    channels = _channel_axes(leaf)
    for axis in channels:
        yield _Change(
            "layout",
            f"with the channels (axis {axis}) in reverse order, BGR for RGB",
            partial(_flipped, axis),
        )
    if floating:
        yield from _scales(leaf, channels)
    yield from _layouts(leaf)
    for axis in range(1, leaf.dim()):
        if leaf.dim() >= 3 and axis not in channels and leaf.shape[axis] > 1:
            yield _Change("layout", f"mirrored along axis {axis}", partial(_flipped, axis))
    for axis in range(1 if leaf.dim() > 1 else 0, leaf.dim()):
        if leaf.shape[axis] > 3:
            yield _Change("shift", f"shifted by +1 along axis {axis}", partial(_rolled, axis, 1))
            yield _Change("shift", f"shifted by -1 along axis {axis}", partial(_rolled, axis, -1))
    if floating:
        yield _Change("sign", "with the other sign", lambda t: -t)


def _channel_axes(leaf: torch.Tensor) -> list[int]:
    """Axes that may be those of colours: of size 3 or 4, in a tensor of at least three axes."""
    if leaf.dim() < 3:
        return []
    return [a for a in range(leaf.dim()) if leaf.shape[a] in (3, 4) and (a or leaf.dim() == 3)]


def _scales(leaf: torch.Tensor, channels: Sequence[int]) -> Iterator[_Change]:
    yield _Change("scale", "divided by 255", lambda t: t / 255)
    yield _Change("scale", "multiplied by 255", lambda t: t * 255)
    yield _Change("scale", "mapped from [0, 1] to [-1, 1]", lambda t: t * 2 - 1)
    yield _Change("scale", "mapped from [-1, 1] to [0, 1]", lambda t: (t + 1) / 2)
    yield _Change("scale", "mapped from [0, 255] to [-1, 1]", lambda t: t / 127.5 - 1)
    for axis in channels:
        if leaf.shape[axis] == 3:
            name = "normalised by ImageNet's mean and deviation"
            yield _Change("scale", name, partial(_normalised, axis))
            yield _Change("scale", "without being " + name, partial(_raw, axis))


def _flipped(axis: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flip(axis)


def _rolled(axis: int, step: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.roll(step, axis)


def _permuted(order: Sequence[int], tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(*order).reshape(tensor.shape)


def _reread(shape: Sequence[int], order: Sequence[int], tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(*shape).permute(*order)


def _normalised(axis: int, tensor: torch.Tensor) -> torch.Tensor:
    return (tensor - _along(tensor, axis, _MEAN)) / _along(tensor, axis, _STD)


def _raw(axis: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor * _along(tensor, axis, _STD) + _along(tensor, axis, _MEAN)


def _along(tensor: torch.Tensor, axis: int, values: Sequence[float]) -> torch.Tensor:
    import torch

    shape = [1] * tensor.dim()
    shape[axis] = len(values)
    return torch.tensor(values, dtype=tensor.dtype).reshape(shape)


def _layouts(leaf: torch.Tensor) -> Iterator[_Change]:
    """Axes but the first permuted, read again in the shape that the model takes: the bytes of another layout."""
    rank = leaf.dim()
    if not 2 <= rank <= 4:
        return
    fixed = 0 if rank == 2 else 1
    orders = [(*range(fixed), *o) for o in itertools.permutations(range(fixed, rank))]
    if rank == 3:  # (C, H, W) without a batch
        orders += [(1, 2, 0), (2, 0, 1), (2, 1, 0), (1, 0, 2)]
    for order in dict.fromkeys(orders):
        if order == tuple(range(rank)):
            continue
        moved = [leaf.shape[a] for a in order]
        if moved == list(leaf.shape):
            yield _Change("layout", f"with its axes in the order {list(order)}", partial(_permuted, order))
            continue
        yield _Change(
            "layout",
            f"with its axes in the order {list(order)}, read as {list(leaf.shape)} (a reshape where a transpose is meant)",
            partial(_permuted, order),
        )
        inverse = sorted(range(rank), key=list(order).__getitem__)
        yield _Change(
            "layout",
            f"read as {moved}, then with its axes in the order {inverse} (a transpose too many)",
            partial(_reread, moved, inverse),
        )
