"""sigmoid: the logistic function, with relative accuracy on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import activations
from ..accumulation import wide
from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


@operator("deployops::sigmoid", onnx="deployops::StableSigmoid")
def sigmoid(x: Tensor) -> Tensor:
    """1/(1 + exp(−x)), elementwise, for x of any shape.

    With e = exp(−|x|) it is 1/(1 + e) for x ≥ 0 and e/(1 + e) for x < 0: nothing overflows, and a negative x
    keeps the relative accuracy of exp until the result underflows (sigmoid(−100) is 3.8e-44 in float32, not
    0). Halves are computed in float32 and rounded once. −inf gives 0, inf gives 1, NaN gives NaN.
    """
    return activations.sigmoid(wide(x)).to(x.dtype)


@sigmoid.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@sigmoid.backward
def _(grad: Tensor, x: Tensor) -> Tensor:
    return activations.ACTIVATIONS["sigmoid"].gradient(wide(grad), wide(x), 0.0)


@sigmoid.body
def _(op: functions.BodyBuilder, x: functions.Tensor) -> Any:
    return op.cast(activations.sigmoid_in_body(op, op.widen(x)), x.dtype)


@sigmoid.samples
def _(draw: Draw) -> Iterator[Any]:
    yield draw(3, 5)
    yield draw(2, 3, 4, 5)
    yield draw(1)
    yield draw()
    yield draw(0, 4)
    yield draw.strided(3, 5)
    yield draw(257, low=-30, high=30)
    yield draw(16, low=-104, high=-80)
    yield draw.edges()
