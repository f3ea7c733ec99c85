"""An operator of one's own: the snake activation, x + sin²(αx) / α (Ziyin et al. 2020), in 20 lines."""

import torch
from torch import Tensor

from deployops import operator


@operator("acme::snake", onnx="acme::Snake")
def snake(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x + sin²(alpha · x) / alpha, elementwise."""
    return x + torch.sin(alpha * x) ** 2 / alpha


@snake.fake  # the one shape rule
def _(x, alpha=1.0):
    return torch.empty_like(x)


@snake.body  # standard ONNX operators, for runtimes without a kernel
def _(op, x, alpha):
    wide = op.widen(x)  # float16 and bfloat16 are computed in float32
    sine = op.Sin(op.Mul(wide, alpha))
    return op.cast(op.Add(wide, op.Div(op.Mul(sine, sine), alpha)), x.dtype)


@snake.samples
def _(draw):
    yield draw(3, 5), 0.5
    yield draw.strided(4, 7), 2.0
    yield draw(0, 3), 1.0
    yield draw.edges(), 1.0
