"""relu: the positive part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


@operator("deployops::relu", onnx="deployops::RectifiedLinear")
def relu(x: Tensor) -> Tensor:
    """max(x, 0), elementwise, for x of any shape. Exact in every dtype.

    NaN stays NaN (unlike ``x > 0 ? x : 0``). The sign of a zero result is not specified. The gradient at 0 is
    0, as in torch.
    """
    return torch.relu(x)


@relu.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@relu.backward
def _(grad: Tensor, x: Tensor) -> Tensor:
    return torch.where(x <= 0, torch.zeros_like(grad), grad)


@relu.body
def _(op: functions.BodyBuilder, x: functions.Tensor) -> Any:
    # Nothing is rounded; the detour is for runtimes without a bfloat16 kernel (ONNX Runtime on the CPU).
    return op.cast(op.Relu(op.widen(x)), x.dtype)


@relu.samples
def _(draw: Draw) -> Iterator[Any]:
    yield draw(3, 5)
    yield draw(2, 3, 4, 5)
    yield draw(1)
    yield draw()
    yield draw(0, 4)
    yield draw(17, 33)
    yield draw.strided(3, 5)
    yield draw.call(draw.edges(), smooth=False)
    yield draw.call(draw.values(0.0, -0.0, 1.0), smooth=False)
