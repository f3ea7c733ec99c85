"""add_relu: the end of a residual block in one pass."""

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


@operator("deployops::add_relu", onnx="deployops::AddRelu")
def add_relu(x: Tensor, y: Tensor) -> Tensor:
    """max(x + y, 0), elementwise; x and y broadcast as in torch (dims aligned from the last, size 1 repeats).

    The sum is rounded once, to the dtype of x and y, which is the same. NaN stays NaN, also that of inf − inf.
    The gradient is 0 where x + y ≤ 0, and is summed over the dims that an argument was repeated along.

    Raises RuntimeError where the shapes do not broadcast.
    """
    torch.broadcast_shapes(x.shape, y.shape)
    return torch.relu(wide(x) + wide(y)).to(x.dtype).contiguous()


@add_relu.fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))


@add_relu.backward
def _(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    total = wide(x) + wide(y)
    g = wide(grad)
    g = torch.where(total <= 0, torch.zeros_like(g), g)
    return g.sum_to_size(x.shape), g.sum_to_size(y.shape)


@add_relu.body
def _(op: functions.BodyBuilder, x: functions.Tensor, y: functions.Tensor) -> Any:
    return op.cast(op.Relu(op.Add(op.widen(x), op.widen(y))), x.dtype)


@add_relu.samples
def _(draw: Draw) -> Iterator[Any]:
    yield draw(2, 3, 4, 5), draw(2, 3, 4, 5)
    yield draw(3, 5), draw(3, 5)
    yield draw(3, 5), draw(5)
    yield draw(5), draw(3, 5)
    yield draw(3, 1), draw(1, 5)
    yield draw(3, 5), draw()
    yield draw(), draw()
    yield draw(0, 5), draw(1, 5)
    yield draw.strided(3, 5), draw.strided(3, 5)
    yield draw.call(draw.edges().reshape(-1, 1), draw.edges(), smooth=False)
    yield draw.call(draw.values(1.0, -1.0, 0.0), draw.values(-1.0, 1.0, -0.0), smooth=False)
