"""rms_norm over the last dimension."""

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


def check_weight(name: str, x: Tensor, weight: Tensor | None) -> None:
    """Raise ValueError where `weight` is not one number for each place in the last dimension of x."""
    if x.dim() == 0:
        raise ValueError(f"{name}: x has no dimension to normalise over")
    if weight is None:
        return
    if weight.dim() != 1:
        raise ValueError(f"{name}: weight has {weight.dim()} dimensions; expected 1")
    torch._check_value(
        weight.shape[0] == x.shape[-1],
        lambda: f"{name}: weight holds {weight.shape[0]} numbers; the last dimension of x has {x.shape[-1]}",
    )


def normalise(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """The formula, in the dtype of x."""
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def gradients(grad: Tensor, x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor | None]:
    """With respect to x and weight, in the dtype of x."""
    r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    n = x * r
    d_weight = None if weight is None else (grad * n).reshape(-1, x.shape[-1]).sum(0)
    g = grad if weight is None else grad * weight
    return r * (g - n * (g * n).mean(-1, keepdim=True)), d_weight


def normalise_in_body(
    op: functions.BodyBuilder, x: functions.Tensor, weight: functions.Tensor | None, eps: float
) -> Any:
    """`normalise`, in ONNX nodes."""
    mean = op.ReduceMean(op.Mul(x, x), op.tensor([-1], "int64"))
    y = op.Div(x, op.Sqrt(op.Add(mean, eps)))
    return y if weight is None else op.Mul(y, weight)


@operator("deployops::rms_norm", onnx="deployops::RMSNorm")
def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x/√(mean(x²) + eps) · weight over the last dimension (Zhang and Sennrich 2019, arXiv:1910.07467).

    x: (…, C). weight: (C,) or absent. y: shape of x.

    Halves are computed in float32 throughout and rounded once, after the weight (some models round before it
    too). eps, however small, does not become 0, and a large float16 does not overflow. A row of zeros gives
    zeros. A row with NaN or ±inf holds NaN where that number is, and NaN or 0 elsewhere, as the formula says.
    Numbers beyond 1.8e19 (bfloat16, float32), whose square is no float32, give 0.

    Raises ValueError where weight is not of shape (C,).
    """
    check_weight("rms_norm", x, weight)
    y = normalise(wide(x), None if weight is None else wide(weight), eps)
    return y.to(x.dtype).contiguous()


@rms_norm.fake
def _(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    check_weight("rms_norm", x, weight)
    return x.new_empty(x.shape)


@rms_norm.backward
def _(grad: Tensor, x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor | None]:
    return gradients(wide(grad), wide(x), None if weight is None else wide(weight), eps)


@rms_norm.body
def _(op: functions.BodyBuilder, x: functions.Tensor, weight: functions.Tensor | None, eps: float) -> Any:
    w = None if weight is None else op.widen(weight)
    return op.cast(normalise_in_body(op, op.widen(x), w, eps), x.dtype)


@rms_norm.samples
def _(draw: Draw) -> Iterator[Any]:
    inf, nan = float("inf"), float("nan")
    yield draw(2, 3, 8), draw(8)
    yield draw(4, 7)
    yield draw(7), draw(7)
    yield draw(2, 1031), draw(1031)
    yield draw(0, 7), draw(7)
    yield draw.strided(3, 5), draw.strided(5)
    yield draw.call(draw(3, 5), draw(5), eps=0.5)
    yield draw.call(draw(2, 16, low=-6e4, high=6e4), draw(16), smooth=False)
    yield draw.call(draw.values(0.0, 0.0, 0.0).expand(2, 3), draw(3), eps=1e-12, smooth=False)
    yield draw(3, 1), draw(1)
    yield draw.values(1, nan, 2, inf, 1, 2, -inf, inf, 0).reshape(3, 3), draw(3)
