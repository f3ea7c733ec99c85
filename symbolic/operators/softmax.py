"""softmax along one dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..accumulation import wide
from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


def _check(x: Tensor, dim: int) -> None:
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"softmax: dim = {dim}, but x has {x.dim()} dimensions")


@operator("deployops::softmax", onnx="deployops::StableSoftmax")
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x − m) / Σ exp(x − m) with m = max(x), along `dim`. x has one dimension or more; y has its shape.

    The maximum is subtracted first, so nothing overflows. Halves are computed in float32 and rounded once.
    As in torch, a row that holds NaN or +inf, or nothing but −inf, is NaN; −inf beside finite numbers gives 0.

    Raises ValueError where x has no dimension `dim`.
    """
    _check(x, dim)
    return torch.softmax(wide(x), dim).to(x.dtype).contiguous()


@softmax.fake
def _(x: Tensor, dim: int = -1) -> Tensor:
    _check(x, dim)
    return x.new_empty(x.shape)


@softmax.backward
def _(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    g, y = wide(grad), torch.softmax(wide(x), dim)
    return y * (g - (g * y).sum(dim, keepdim=True))


@softmax.body
def _(op: functions.BodyBuilder, x: functions.Tensor, dim: int) -> Any:
    return op.cast(op.Softmax(op.widen(x), axis=dim), x.dtype)


@softmax.samples
def _(draw: Draw) -> Iterator[Any]:
    inf, nan = float("inf"), float("nan")
    yield draw(3, 5)
    yield draw(2, 3, 4), 1
    yield draw(2, 3, 4), -3
    yield draw(1)
    yield draw(4, 1)
    yield draw(0, 4)
    yield draw(4, 0)
    yield draw(2, 1031, low=-20, high=20)
    yield draw.strided(3, 5), 0
    yield draw.values(1e4, 9.9e3, -6e4, 0.0)
    yield draw.values(0, inf, 1, nan, -inf, -inf, -inf, 2, 3, inf, inf, inf).reshape(4, 3), 1
    yield draw.values(0, nan, -inf, 2, 1, inf, -inf, 3, 2, 1, -inf, 4).reshape(3, 4), 0
    yield draw.edges()
    yield draw.edges().reshape(1, -1), 0
    yield draw(3, 16)  # whole packs of halves
