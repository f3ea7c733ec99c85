"""layer_norm over the last dimension."""

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


def _check(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    if x.dim() == 0:
        raise ValueError("layer_norm: x has no dimension to normalise over")
    for name, v in (("weight", weight), ("bias", bias)):
        if v is None:
            continue
        if v.dim() != 1:
            raise ValueError(f"layer_norm: {name} has {v.dim()} dimensions; expected 1")
        torch._check_value(
            v.shape[0] == x.shape[-1],
            lambda name=name, v=v: (
                f"layer_norm: {name} holds {v.shape[0]} numbers; the last dimension of x has {x.shape[-1]}"
            ),
        )


def _normalise(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x − mean)/σ and 1/σ along the last dimension, also where |mean| ≫ σ.

    Not from E[x²] − E[x]², which cancels there. And the rounding of a large mean is large beside σ: it is what
    the deviations have left as their mean.
    """
    d = x - x.mean(-1, keepdim=True)
    d = d - d.mean(-1, keepdim=True)
    r = torch.rsqrt((d * d).mean(-1, keepdim=True) + eps)
    return d * r, r


@operator("deployops::layer_norm", onnx="deployops::LayerNorm")
def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """(x − mean)/√(var + eps) · weight + bias over the last dimension (Ba et al. 2016, arXiv:1607.06450).

    x: (…, C). weight, bias: (C,), either may be absent. y: shape of x. var is the biased variance, Σ(x − mean)²/C.

    Accurate to a few ULP of the row's largest result, also where the mean is large beside the deviations
    (torch's own is not: its mean is rounded). Halves are computed in float32 throughout and rounded once: eps,
    however small, does not become 0, and a large float16 does not overflow. A constant row gives the bias. A
    row with NaN or ±inf is NaN. float32 and bfloat16 can leave the range of float32: deviations from the mean
    beyond 1.8e19 give the bias, and a row whose sum is no float32 is NaN (from the CPU kernel, which can hold that
    sum, the bias).

    Raises ValueError where weight or bias is not of shape (C,).
    """
    _check(x, weight, bias)
    y, _ = _normalise(wide(x), eps)
    y = y if weight is None else y * wide(weight)
    y = y if bias is None else y + wide(bias)
    return y.to(x.dtype).contiguous()


@layer_norm.fake
def _(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    _check(x, weight, bias)
    return x.new_empty(x.shape)


@layer_norm.backward
def _(
    grad: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    g = wide(grad)
    n, r = _normalise(wide(x), eps)
    d_weight = None if weight is None else (g * n).reshape(-1, x.shape[-1]).sum(0)
    d_bias = None if bias is None else g.reshape(-1, x.shape[-1]).sum(0)
    g = g if weight is None else g * wide(weight)
    d_x = r * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
    return d_x, d_weight, d_bias


@layer_norm.body
def _(
    op: functions.BodyBuilder,
    x: functions.Tensor,
    weight: functions.Tensor | None,
    bias: functions.Tensor | None,
    eps: float,
) -> Any:
    last = op.tensor([-1], "int64")
    z = op.widen(x)
    d = op.Sub(z, op.ReduceMean(z, last))
    d = op.Sub(d, op.ReduceMean(d, last))
    y = op.Div(d, op.Sqrt(op.Add(op.ReduceMean(op.Mul(d, d), last), eps)))
    y = y if weight is None else op.Mul(y, op.widen(weight))
    y = y if bias is None else op.Add(y, op.widen(bias))
    return op.cast(y, x.dtype)


@layer_norm.samples
def _(draw: Draw) -> Iterator[Any]:
    inf, nan = float("inf"), float("nan")
    yield draw(2, 3, 8), draw(8), draw(8)
    yield draw(4, 7), draw(7)
    yield draw.call(draw(4, 7), bias=draw(7))
    yield draw(4, 7)
    yield draw(7), draw(7), draw(7)
    yield draw(2, 1031), draw(1031), draw(1031)
    yield draw(0, 7), draw(7), draw(7)
    yield draw.strided(3, 5), draw.strided(5), draw.strided(5)
    yield draw.call(draw(3, 5), draw(5), draw(5), eps=0.5)
    # A mean far from 0.
    yield draw(3, 64, low=1000, high=1016), draw(64), draw(64)
    # float16 squares overflow; and one feature stands out (case 21).
    yield draw.call(draw(2, 16, low=-6e4, high=6e4), draw(16), draw(16), smooth=False)
    yield draw.call(draw(2, 16) + draw.values(*[0.0] * 15, 2000.0), draw(16), draw(16))
    # Constant rows, and an eps that is 0 in float16 (case 42).
    yield draw.call(draw.values(3.0, 3.0, 3.0, 3.0).expand(2, 4), draw(4), draw(4), eps=1e-12, smooth=False)
    yield draw(3, 1), draw(1), draw(1)
    yield draw.values(1, nan, 2, inf, 1, 2, -inf, inf, 0, 0.0, -0.0, 0.0).reshape(4, 3), draw(3), draw(3)
    yield draw.edges()
