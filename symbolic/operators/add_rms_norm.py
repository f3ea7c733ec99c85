"""add_rms_norm: a residual sum and its rms_norm in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..accumulation import wide
from ..operator import operator
from .rms_norm import check_weight, gradients, normalise, normalise_in_body

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


def _check(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    check_weight("add_rms_norm", x, weight)
    if x.dim() != residual.dim():
        raise ValueError(
            f"add_rms_norm: x has {x.dim()} dimensions, residual {residual.dim()}; expected one shape"
        )
    for a, b in zip(x.shape, residual.shape, strict=True):
        torch._check_value(
            a == b,
            lambda: (
                f"add_rms_norm: x is {tuple(x.shape)}, residual {tuple(residual.shape)}; expected one shape"
            ),
        )


@operator("deployops::add_rms_norm", onnx="deployops::AddRMSNorm", outputs=("y", "residual_out"))
def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """residual_out = x + residual, y = rms_norm(residual_out, weight, eps).

    x, residual: (…, C), one shape. weight: (C,). Both outputs have the shape of x.

    The sum is rounded to the dtype first and y is computed from the rounded sum, as the fused kernels of LLM
    runtimes do (vLLM's fused_add_rms_norm): the pair equals an addition followed by `rms_norm`, bit for bit.
    Otherwise as `rms_norm`.

    Raises ValueError where x and residual differ in shape, or weight is not of shape (C,).
    """
    _check(x, residual, weight)
    total = (wide(x) + wide(residual)).to(x.dtype).contiguous()
    return normalise(wide(total), wide(weight), eps).to(x.dtype), total


@add_rms_norm.fake
def _(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    _check(x, residual, weight)
    return x.new_empty(x.shape), x.new_empty(x.shape)


@add_rms_norm.backward
def _(
    grad: Tensor, grad_residual: Tensor, x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    total = wide((wide(x) + wide(residual)).to(x.dtype))
    through, d_weight = gradients(wide(grad), total, wide(weight), eps)
    d_total = through + wide(grad_residual)
    return d_total, d_total, d_weight


@add_rms_norm.body
def _(
    op: functions.BodyBuilder,
    x: functions.Tensor,
    residual: functions.Tensor,
    weight: functions.Tensor,
    eps: float,
) -> Any:
    total = op.cast(op.Add(op.widen(x), op.widen(residual)), x.dtype)
    return op.cast(normalise_in_body(op, op.widen(total), op.widen(weight), eps), x.dtype), total


@add_rms_norm.samples
def _(draw: Draw) -> Iterator[Any]:
    inf, nan = float("inf"), float("nan")
    yield draw(2, 3, 8), draw(2, 3, 8), draw(8)
    yield draw(7), draw(7), draw(7)
    yield draw(2, 1031), draw(2, 1031), draw(1031)
    yield draw(0, 7), draw(0, 7), draw(7)
    yield draw.strided(3, 5), draw.strided(3, 5), draw.strided(5)
    yield draw.call(draw(3, 5), draw(3, 5), draw(5), eps=0.5)
    # The sum of a large and a small number: the rounding of the sum shows in y.
    yield draw(2, 16, low=1000, high=2000), draw(2, 16), draw(16)
    yield draw.call(draw(2, 16, low=-6e4, high=6e4), draw(2, 16), draw(16), smooth=False)
    yield draw(3, 1), draw(3, 1), draw(1)
    yield draw.values(1, nan, 2, inf, 1, 2, -inf, inf, 0).reshape(3, 3), draw(3, 3), draw(3)
    yield draw.values(inf, 1.0), draw.values(-inf, 1.0), draw(2)
