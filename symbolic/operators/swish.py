"""swish with a learnable beta."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import sym_or

from ..accumulation import wide
from ..activations import sigmoid, sigmoid_in_body
from ..channels import align, align_in_body, check_axis, sum_to
from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


def _check(x: Tensor, beta: Tensor, axis: int) -> None:
    if beta.dim() > 1 or beta.dim() > x.dim():
        raise ValueError(
            f"swish: beta has {beta.dim()} dimensions and x has {x.dim()}; expected one number (shape () or (1,)) "
            "or one for each channel (shape (C,))"
        )
    if beta.dim() == 1 and x.dim() > 1:
        check_axis("swish", x, axis)
    if beta.dim() == 1:
        channels = x.shape[axis if x.dim() > 1 else 0]
        torch._check_value(
            sym_or(beta.shape[0] == 1, beta.shape[0] == channels),
            lambda: (
                f"swish: beta holds {beta.shape[0]} numbers; x has {channels} channels (dimension {axis})"
            ),
        )


def _align(beta: Tensor, x: Tensor, axis: int) -> Tensor:
    return align(beta, x, axis) if beta.dim() == 1 and x.dim() > 1 else beta


@operator("deployops::swish", onnx="deployops::SwishBeta")
def swish(x: Tensor, beta: Tensor, axis: int = 1) -> Tensor:
    """x · sigmoid(beta·x), elementwise (Ramachandran et al. 2017, arXiv:1710.05941).

    x: any shape. beta: one number, shape () or (1,), or one for each channel, shape (C,) with C the size of
    dimension `axis` of x (a 1-D x has only that one dimension, whatever `axis` says). y: shape of x.

    Halves are computed in float32 and rounded once; so is the sum in beta's gradient. What IEEE arithmetic
    makes of the formula holds at the edges, as in torch's SiLU: x = −inf gives −inf · 0 = NaN.

    Raises ValueError where beta has another shape.
    """
    _check(x, beta, axis)
    z = wide(x)
    return (z * sigmoid(_align(wide(beta), x, axis) * z)).to(x.dtype).contiguous()


@swish.fake
def _(x: Tensor, beta: Tensor, axis: int = 1) -> Tensor:
    _check(x, beta, axis)
    return x.new_empty(x.shape)


@swish.backward
def _(grad: Tensor, x: Tensor, beta: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    g, z = wide(grad), wide(x)
    b = _align(wide(beta), x, axis)
    s = torch.sigmoid(b * z)
    slope = s * torch.sigmoid(-b * z)
    d_beta = g * (z * (z * slope))  # in this order z² does not overflow
    shared = beta.numel() == 1
    return g * (s + b * z * slope), d_beta.sum().reshape(beta.shape) if shared else sum_to(
        beta, d_beta, axis if x.dim() > 1 else 0
    )


@swish.body
def _(op: functions.BodyBuilder, x: functions.Tensor, beta: functions.Tensor, axis: int) -> Any:
    z, b = op.widen(x), op.widen(beta)
    if beta.rank != 0 and x.rank != 1:
        b = align_in_body(op, b, x, axis)
    return op.cast(op.Mul(z, sigmoid_in_body(op, op.Mul(b, z))), x.dtype)


@swish.samples
def _(draw: Draw) -> Iterator[Any]:
    one = draw.values(1.0)
    yield draw(2, 3, 4, 5), draw(3)
    yield draw(3, 5), draw()
    yield draw(3, 5), one
    yield draw(2, 5, 3), draw(3), -1
    yield draw(4, 3), draw(3)
    yield draw(5), draw(5)
    yield draw(5), one
    yield draw(), draw()
    yield draw(0, 3, 2), draw(3)
    yield draw(2, 0), draw(0)
    yield draw(1, 1, 1), draw(1)
    yield draw.strided(3, 5), draw.strided(5)
    yield draw(3, 33, low=-40, high=40), draw.values(2.0)
    yield draw(3, 5), draw.values(0.0)
    yield draw.edges(), one[0]
    yield draw.edges(), -2 * one
    # as many as the emulation gives long indices to
    yield draw(2, 8, 6, 4), draw(8)
