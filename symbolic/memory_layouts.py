"""The same values at other places in memory: what a slice, a transposition or a broadcast leaves behind.

Runtimes are fed contiguous arrays. PyTorch kernels are not: one that takes the strides for granted is wrong on
these, and so is an original that was to be the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["LAYOUTS", "copied", "is_dense", "laid_out", "with_strides"]

LAYOUTS = ("strided", "transposed storage", "expanded")


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor | None:
    """The tensor in another layout, None where there is none for its shape.

    "strided": every second element of a larger block. "transposed storage": axes stored in reverse order. "expanded":
    the first item of an axis, repeated without memory of its own, so that values differ from the tensor's.
    """
    if tensor.numel() < 2:
        return None
    if layout == "strided":
        wide = tensor.new_empty([*tensor.shape[:-1], 2 * tensor.shape[-1]])
        view = wide[..., ::2]
        view.copy_(tensor)
        wide[..., 1::2] = wide[
            ..., ::2
        ]  # never uninitialised memory: a wrong kernel is wrong the same way twice
        return view
    if layout == "transposed storage":
        reverse = list(reversed(range(tensor.dim())))
        found = tensor.permute(reverse).contiguous().permute(reverse)
        return None if found.is_contiguous() else found
    axis = next((a for a, size in enumerate(tensor.shape) if size > 1), None)
    if layout != "expanded":
        raise ValueError(f"no layout {layout!r}; there are {', '.join(LAYOUTS)}")
    return None if axis is None else tensor.narrow(axis, 0, 1).clone().expand(tensor.shape)


def is_dense(value: Any) -> bool:
    """Whether the elements of a tensor lie one behind another; true of what has no strides."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return True
    return bool(value.is_contiguous())


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of the original; `clone` closes gaps and spells broadcasts out."""
    return tensor.clone() if is_dense(tensor) else with_strides(tensor, tensor.stride())


def with_strides(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The values in memory of their own with these strides, 0 in the gaps: a wrong kernel is wrong the same way twice.

    A plain copy where elements would share memory (but for those of an expanded axis), or where a few would lie in a huge block.
    """
    import torch

    inner = tensor
    for axis, (stride, size) in enumerate(zip(strides, tensor.shape, strict=True)):
        if stride == 0 and size > 1:
            inner = inner.narrow(axis, 0, 1)
    span = _span(inner.shape, strides)
    if span is None or span > 4 * inner.numel() + 1024:
        return tensor.clone()
    fresh = torch.zeros(span, dtype=tensor.dtype, device=tensor.device).as_strided(inner.shape, strides)
    return fresh.copy_(inner).expand(tensor.shape)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """Elements from the first to the last one in memory; None where two of them share a place."""
    if 0 in shape:
        return 0
    reach = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride < reach:
                return None
            reach += stride * (size - 1)
    return reach
