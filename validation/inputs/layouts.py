"""The same values at other places in memory: what a slice, a transposition or a broadcast leaves behind.

Runtimes are fed contiguous arrays. PyTorch kernels are not: one that takes the strides for granted is wrong on
these, and so is the original that was to be the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["LAYOUTS", "copied", "laid_out"]

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


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the strides of the original; `clone` closes gaps and spells broadcasts out."""
    import torch

    if tensor.is_contiguous() or tensor.layout is not torch.strided:
        return tensor.clone()
    repeated = [
        a for a, (s, n) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)) if s == 0 and n > 1
    ]
    inner = tensor
    for axis in repeated:
        inner = inner.narrow(axis, 0, 1)
    span = _span(inner)
    if span is None or span > 4 * inner.numel() + 1024:
        return tensor.clone()  # elements that share memory, or a small slice of a huge block
    # zeros: what lies in the gaps must be the same in every run
    block = torch.zeros(span, dtype=tensor.dtype, device=tensor.device)
    fresh = block.as_strided(inner.shape, inner.stride())
    fresh.copy_(inner)
    return fresh.expand(tensor.shape) if repeated else fresh


def _span(tensor: torch.Tensor) -> int | None:
    """Elements from the first to the last one in memory; None where two of them share a place."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return None
            reach += stride * (size - 1)
    return reach if tensor.numel() else 0
