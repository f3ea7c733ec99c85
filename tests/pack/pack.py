"""Operators of a user, one for each thing that a declaration can have; their kernels are in `kernels/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from deployops import operator

FLOATS = ("float32", "float64", "float16", "bfloat16")


@operator("pack::limit", dtypes=(*FLOATS, "int64"))
def limit(x: Tensor, low: float = -1.0, high: float | None = None) -> Tensor:
    """x between low and high; an optional attribute."""
    return torch.clamp(x.double(), low, high).to(x.dtype)


@limit.fake
def _(x: Tensor, low: float = -1.0, high: float | None = None) -> Tensor:
    return torch.empty_like(x)


@limit.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5)
    yield draw(7), -0.5, 0.5


@operator("pack::weighted_sum", dtypes=FLOATS)
def weighted_sum(xs: list[Tensor], weights: list[float]) -> Tensor:
    """Σ weights[k]·xs[k]: a list of tensors and a list of numbers."""
    return torch.stack([x * w for x, w in zip(xs, weights, strict=True)]).sum(0)


@weighted_sum.fake
def _(xs: list[Tensor], weights: list[float]) -> Tensor:
    return torch.empty_like(xs[0])


@weighted_sum.samples
def _(draw: Any) -> Iterator[Any]:
    yield [draw(3, 5), draw(3, 5)], [0.5, 2.0]
    yield [draw(4)], [3.0]


@operator("pack::add_all", dtypes=FLOATS)
def add_all(x: Tensor, bias: Tensor | None, xs: list[Tensor]) -> Tensor:
    """x + bias + Σ xs: an optional tensor before a list that may be empty."""
    total = x.double()
    for t in (bias, *xs):
        total = total if t is None else total + t.double()
    return total.to(x.dtype, copy=True)


@add_all.fake
def _(x: Tensor, bias: Tensor | None, xs: list[Tensor]) -> Tensor:
    return torch.empty_like(x)


@add_all.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), None, []
    yield draw(3, 5), draw(3, 5), []
    yield draw(4), None, [draw(4), draw(4)]


@operator("pack::join_rows", dtypes=("float32", "int32"))
def join_rows(xs: list[Tensor], ys: list[Tensor]) -> Tensor:
    """The rows of the xs, then of the ys: two lists, and an output whose size depends on all of them."""
    return torch.cat([*xs, *ys])


@join_rows.fake
def _(xs: list[Tensor], ys: list[Tensor]) -> Tensor:
    return (xs or ys)[0].new_empty(sum(t.shape[0] for t in (*xs, *ys)), (xs or ys)[0].shape[1])


@join_rows.samples
def _(draw: Any) -> Iterator[Any]:
    yield [draw(2, 3), draw(1, 3)], [draw(4, 3)]
    yield [], [draw(4, 3)]


@operator("pack::shift_", dtypes=FLOATS, mutates=("x",))
def shift_(x: Tensor, by: Tensor, times: int = 1) -> Tensor:
    """Adds `times·by` to x in place and returns the sum of each row: it writes into an argument."""
    x.add_(by * times)
    return x.sum(-1)


@shift_.fake
def _(x: Tensor, by: Tensor, times: int = 1) -> Tensor:
    return x.new_empty(x.shape[:-1])


@shift_.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), draw(3, 5)
    yield draw(2, 3, 4), draw(2, 3, 4), 2


@operator("pack::gather_rows", dtypes={"x": FLOATS, "index": ("int64", "int32")}, outputs=("rows", "found"))
def gather_rows(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of x (N, C) by index (K,), zeros for −1; and whether each was found: two outputs, two type variables."""
    found = index >= 0
    return x[index.long().clamp(min=0)] * found[:, None], found


@gather_rows.fake
def _(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(index.shape[0], x.shape[1]), torch.empty_like(index, dtype=torch.bool)


@gather_rows.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(4, 3), torch.tensor([2, -1, 0])
    yield draw(2, 5), torch.tensor([1, 1])


@operator("pack::repeat_last", dtypes=("float32",))
def repeat_last(x: Tensor, times: int = 2) -> Tensor:
    """Each number of x `times` times in the last dimension: an attribute decides the shape."""
    return x.repeat_interleave(times, -1)


@repeat_last.fake
def _(x: Tensor, times: int = 2) -> Tensor:
    return x.new_empty(*x.shape[:-1], x.shape[-1] * times)


@repeat_last.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(2, 3)
    yield draw(4), 3


@operator("pack::strided_pairs", dtypes=("float32",))
def strided_pairs(x: Tensor) -> Tensor:
    """x (N, C) -> (N, (C − 2)//2 + 1): sums of pairs; a formula in the shape."""
    return x[:, 0 : x.shape[1] - 1 : 2] + x[:, 1::2][:, : (x.shape[1] - 2) // 2 + 1]


@strided_pairs.fake
def _(x: Tensor) -> Tensor:
    if x.dim() != 2:
        raise ValueError(f"strided_pairs: x has {x.dim()} dimensions; expected 2")
    return x.new_empty(x.shape[0], (x.shape[1] - 2) // 2 + 1)


@strided_pairs.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(2, 6)
    yield draw(3, 7)


@operator("pack::picky", dtypes=("float32",))
def picky(x: Tensor, message: str = "no negative numbers", fail_on: int = -1) -> Tensor:
    """x, unless a number is negative: the kernel throws, on whatever thread finds it. A text as attribute."""
    return x.clone()


@picky.fake
def _(x: Tensor, message: str = "no negative numbers", fail_on: int = -1) -> Tensor:
    return torch.empty_like(x)


@picky.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5).abs()
