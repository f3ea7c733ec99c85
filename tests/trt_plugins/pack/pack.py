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
    """x·count + scale: every kind of attribute."""
    return x * count


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
    yield draw(4), 3, 0.5, False, "max", [7], [0.5], 2.0


@operator("trtpack::parts", dtypes=HALVES, outputs=("left", "right"))
def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first half of the columns, and the rest of them transposed: two outputs, shapes by formulas."""
    half = x.shape[1] // 2
    return x[:, :half].clone(), x[:, half:].t().contiguous()


@parts.fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = x.shape
    return x.new_empty(rows, columns // 2), x.new_empty(columns - columns // 2, rows)


@parts.samples
def _(draw: Any) -> Iterator[Any]:
    yield (draw(3, 8),)
    yield (draw(4, 7),)


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
