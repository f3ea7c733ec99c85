"""Operators of a user, one for each thing that a plugin can have; their CUDA kernels are in `kernels/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from deployops import operator

HALVES = ("float32", "float16", "bfloat16")


@operator("trtpack::attributes", dtypes=("float32", "float64", "int32"))
def attributes(
    x: Tensor,
    count: int,
    scale: float = 0.1,
    flag: bool = True,
    mode: str = "add",
    steps: list[int] = [1, 2],  # noqa: B006 - torch reads the default
    weights: list[float] = [],  # noqa: B006
    limit: float | None = None,
) -> Tensor:
    """x·count + scale, whose fraction whole numbers leave out: every kind of attribute."""
    return x * count + (scale if x.is_floating_point() else int(scale))


@attributes.fake
def _(
    x: Tensor,
    count: int,
    scale: float = 0.1,
    flag: bool = True,
    mode: str = "add",
    steps: Any = (),
    weights: Any = (),
    limit: float | None = None,
) -> Tensor:
    return torch.empty_like(x)


@attributes.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), 2
    yield draw(4), 3, 2.5, False, "max", [7], [0.5], 2.0
    yield draw(0, 5), 2


@operator("trtpack::parts", dtypes=HALVES, outputs=("left", "right"))
def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first half of the columns, and the rest of them transposed: two outputs, shapes by formulas."""
    half = x.shape[1] // 2
    return x[:, :half].clone(), x[:, half:].t().clone(memory_format=torch.contiguous_format)


@parts.fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = x.shape
    return x.new_empty(rows, columns // 2), x.new_empty(columns - columns // 2, rows)


@parts.samples
def _(draw: Any) -> Iterator[Any]:
    yield (draw(3, 8),)
    yield (draw(4, 7),)
    yield (draw(0, 6),)
    yield (draw(3, 1),)


@operator("trtpack::cuts", dtypes=("float32",), outputs=("below", "above"))
def cuts(x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """How far x lies below `low`, and how far above `high`: attributes of one type, and outputs of one shape."""
    return (x - low).clamp(max=0), (x - high).clamp(min=0)


@cuts.fake
def _(x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@cuts.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), -0.25, 0.5
    yield draw(0), -0.25, 0.5


@operator("trtpack::add_all", dtypes=HALVES)
def add_all(x: Tensor, bias: Tensor | None, xs: list[Tensor]) -> Tensor:
    """x + bias + Σ xs: an optional tensor before a list that may be empty."""
    return x + sum(t for t in (bias, *xs) if t is not None)


@add_all.fake
def _(x: Tensor, bias: Tensor | None, xs: list[Tensor]) -> Tensor:
    return torch.empty_like(x)


@add_all.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), draw(3, 5), []
    yield draw(4), draw(4), [draw(4), draw(4)]
    yield draw(4), None, [draw(4)]
    yield draw(0), draw(0), [draw(0)]


@operator("trtpack::shift_", dtypes=HALVES, mutates=("x",))
def shift_(x: Tensor, by: Tensor) -> None:
    """x += by: writes into its argument."""
    x += by


@shift_.fake
def _(x: Tensor, by: Tensor) -> None:
    return None


@shift_.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), draw(3, 5)
    yield draw(0), draw(0)


@operator("trtpack::plus", dtypes=HALVES)
def plus(x: Tensor, y: Tensor) -> Tensor:
    """x + y, broadcast."""
    return x + y


@plus.fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))


@plus.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), draw(3, 5)
    yield draw(2, 3, 5), draw(3, 1)
    yield draw(4, 1), draw(1, 5)
    yield draw(2, 3), draw.values(0.5).reshape(())
    yield draw(0, 3), draw(1, 3)


@operator("trtpack::positives", dtypes=HALVES)
def positives(x: Tensor) -> Tensor:
    """The positive numbers of x, in their order: the data decides how many."""
    return x[x > 0]


@positives.fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@positives.bound
def _(x: Tensor) -> int:
    return x.numel()


@positives.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5)
    yield draw(300)
    yield draw(0, 4)
    yield -draw(7).abs()
    yield draw.edges()


@operator("trtpack::above", dtypes={"x, limit": HALVES}, outputs=("rows", "values", "rest"))
def above(x: Tensor, limit: Tensor, most: int = 1000) -> tuple[Tensor, Tensor, Tensor]:
    """Where x (N, C) is above a limit (N): (2, K) row and column, (K,) what is there; and (M,) the rows without such."""
    wide = x.double() > limit.double()[:, None]
    at = wide.nonzero()
    rest = (~wide.any(1)).nonzero()[:, 0]
    return at.t().contiguous().int(), x[wide], rest.int()


@above.fake
def _(x: Tensor, limit: Tensor, most: int = 1000) -> tuple[Tensor, Tensor, Tensor]:
    context = torch.library.get_ctx()
    found, rest = context.new_dynamic_size(), context.new_dynamic_size()
    return (
        x.new_empty(2, found, dtype=torch.int32),
        x.new_empty(found),
        x.new_empty(rest, dtype=torch.int32),
    )


@above.bound
def _(x: Tensor, limit: Tensor, most: int = 1000) -> tuple[int, int]:
    return x.shape[0] * x.shape[1], x.shape[0]


@above.usual
def _(x: Tensor, limit: Tensor, most: int = 1000) -> tuple[int, int]:
    return x.shape[0] * x.shape[1] // 4, 1


@above.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), draw(3)
    yield draw(6, 4), draw(6, low=2, high=3)
    yield draw(1, 1), draw(1)
    yield draw(0, 4), draw(0)
    yield draw(2, 0), draw(2)


@operator("trtpack::tile_to", dtypes={"x": HALVES, "sizes": ("int64", "int32")}, shape_inputs=("sizes",))
def tile_to(x: Tensor, sizes: Tensor) -> Tensor:
    """The numbers of x over and over, in a tensor of the given sizes (R, C): a shape input."""
    rows, columns = sizes.tolist()
    return x.reshape(-1)[torch.arange(rows * columns) % x.numel()].reshape(rows, columns)


@tile_to.fake
def _(x: Tensor, sizes: Tensor) -> Tensor:
    return x.new_empty(sizes[0].item(), sizes[1].item())


@tile_to.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), torch.tensor([4, 6])
    yield draw(7), torch.tensor([2, 3])
    yield draw(4), torch.tensor([5, 2], dtype=torch.int32)
    yield draw(4), torch.tensor([0, 2])


@operator("trtpack::blend", dtypes={"x, bias": HALVES, "mask": ("bool",)}, outputs=("y",))
def blend(x: Tensor, bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """(x + bias) · mask: two optional inputs, either of which may be absent."""
    y = x if bias is None else x + bias
    return y.clone() if mask is None else y * mask


@blend.fake
def _(x: Tensor, bias: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    return torch.empty_like(x)


@blend.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), draw(3, 5), draw(3, 5, dtype="bool")
    yield draw(3, 5), None, draw(3, 5, dtype="bool")
    yield draw(4), draw(4), None
    yield (draw(4),)
    yield draw(0, 2), None, draw(0, 2, dtype="bool")


@operator("trtpack::row_sums", dtypes=HALVES, outputs=("y",))
def row_sums(x: Tensor) -> Tensor:
    """Σ of each row of x (R, N): sums of parts of a row lie in the kernel's workspace."""
    return x.sum(1)


@row_sums.fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0])


@row_sums.samples
def _(draw: Any) -> Iterator[Any]:
    yield (draw(2, 20),)
    yield (draw(3, 1000),)
    yield (draw(1, 20000),)
    yield (draw(0, 7),)
    yield (draw(5, 0),)
