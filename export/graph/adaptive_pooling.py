"""Adaptive pooling at any size, in operators that ONNX has.

Output o of an axis covers the inputs from floor(o * in / out) to ceil((o + 1) * in / out). The windows differ in length and
overlap, unless `in` is a multiple of `out` at every size declared: then they are those of an ordinary pooling. Else each axis in
turn is gathered by a table of indices, which the file computes from the sizes that it is run at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .declared_sizes import always

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

__all__ = ["adaptive_poolings"]


def adaptive_poolings() -> dict[Any, Any]:
    """Decompositions by operator."""
    import torch

    aten = torch.ops.aten
    return {
        aten._adaptive_avg_pool2d.default: _average,
        aten._adaptive_avg_pool3d.default: _average,
        aten.adaptive_max_pool2d.default: _maximum,
        aten.adaptive_max_pool3d.default: _maximum,
    }


def _average(x: torch.Tensor, output_size: Sequence[Any]) -> torch.Tensor:
    import torch

    axes = range(x.dim() - len(output_size), x.dim())
    windows = _equal_windows(x, output_size)
    if windows is not None:
        pool: Any = torch.ops.aten.avg_pool2d if len(windows) == 2 else torch.ops.aten.avg_pool3d
        pooled: torch.Tensor = pool(x, windows, windows)
        return pooled
    # torch adds in float32 too
    result = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    for axis, size in zip(axes, output_size, strict=True):
        result = _averaged(result, axis, size)
    return result.to(x.dtype)


def _averaged(x: torch.Tensor, axis: int, size: Any) -> torch.Tensor:
    import torch

    if always(x.shape[axis] == size):
        return x
    if isinstance(size, int) and size == 1:
        return x.mean(axis, keepdim=True)
    index, inside, length = _windows(x, axis, size)
    trailing = [1] * (x.dim() - axis - 1)
    taken = torch.where(inside.view(*inside.shape, *trailing), _taken(x, axis, index), 0)
    return taken.sum(axis + 1) / length.to(x.dtype).view(-1, *trailing)


def _maximum(x: torch.Tensor, output_size: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The maxima and where they are. Of the two, what is not used falls away."""
    import torch

    windows = _equal_windows(x, output_size)
    if windows is not None:
        pool: Any = (
            torch.ops.aten.max_pool2d_with_indices
            if len(windows) == 2
            else torch.ops.aten.max_pool3d_with_indices
        )
        pooled: tuple[torch.Tensor, torch.Tensor] = pool(x, windows, windows)
        return pooled
    first = x.dim() - len(output_size)
    result = x
    for axis, size in enumerate(output_size, first):
        if not always(x.shape[axis] == size):
            result = _taken(result, axis, _windows(x, axis, size)[0]).amax(axis + 1)
    return result, _places(x, output_size, first)


def _places(x: torch.Tensor, output_size: Sequence[Any], first: int) -> torch.Tensor:
    """The index of each maximum, the first of equal ones, as torch counts: row by row."""
    import torch

    dims = len(output_size)
    windows, places = x, torch.zeros([1] * (2 * dims), dtype=torch.int64)
    for k, size in enumerate(output_size):
        axis = first + 2 * k  # the axes before are windows already, of two dims each
        index = _windows(x, first + k, size)[0]
        windows = _taken(windows, axis, index)
        shape = [1] * (2 * dims)
        places = places * x.shape[first + k] + index.view(
            *shape[: 2 * k], index.shape[0], index.shape[1], *shape[2 * k + 2 :]
        )
    order = [*range(first), *range(first, first + 2 * dims, 2), *range(first + 1, first + 2 * dims, 2)]
    windows = windows.permute(order).flatten(first + dims)
    places = places.permute([*range(0, 2 * dims, 2), *range(1, 2 * dims, 2)]).flatten(dims)
    at = windows.argmax(-1, keepdim=True)
    return places.expand(windows.shape).gather(-1, at).squeeze(-1)


def _equal_windows(x: torch.Tensor, output_size: Sequence[Any]) -> list[int] | None:
    """The lengths of the windows where they are the same at all sizes declared, and overlap nowhere."""
    lengths = []
    for size, out in zip(x.shape[x.dim() - len(output_size) :], output_size, strict=True):
        hint = _hint(size) // max(_hint(out), 1)
        if not hint or not always(size == hint * out):
            return None
        lengths.append(hint)
    return lengths


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _windows(x: torch.Tensor, axis: int, out: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Indices int64 [out, longest], which of them are in the window bool [out, longest], lengths int64 [out].

    Indices past a window's end repeat its last one.
    """
    import torch

    size = x.shape[axis]
    place = torch.arange(out, device=x.device)
    # not torch.div: torch's ONNX function of that divides in float32, and is wrong from 2**24 on
    start = torch.ops.aten.floor_divide(place * size, out)
    end = torch.ops.aten.floor_divide((place + 1) * size + (out - 1), out)
    index = start[:, None] + torch.arange(size // out + 2, device=x.device)
    return torch.minimum(index, end[:, None] - 1), index < end[:, None], end - start


def _taken(x: torch.Tensor, axis: int, index: torch.Tensor) -> torch.Tensor:
    """x with its axis replaced by the two dims of `index`."""
    rows, columns = index.shape
    taken = x.index_select(axis, index.reshape(-1))
    return taken.view(*x.shape[:axis], rows, columns, *x.shape[axis + 1 :])
