"""scale_bias_act: what is left of a batch norm at inference, and its activation, in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..accumulation import wide
from ..activations import ACTIVATIONS, check_activation
from ..channels import align, align_in_body, check_axis, sum_to
from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


def _check(x: Tensor, scale: Tensor, bias: Tensor | None, activation: str, axis: int) -> None:
    check_activation("scale_bias_act", activation)
    check_axis("scale_bias_act", x, axis)
    for name, v in (("scale", scale), ("bias", bias)):
        if v is None:
            continue
        if v.dim() != 1:
            raise ValueError(
                f"scale_bias_act: {name} has {v.dim()} dimensions; expected 1, one number per channel"
            )
        torch._check_value(
            v.shape[0] == x.shape[axis],
            lambda name=name, v=v: (
                f"scale_bias_act: {name} holds {v.shape[0]} numbers; "
                f"x has {x.shape[axis]} channels (dimension {axis})"
            ),
        )


def _affine(x: Tensor, scale: Tensor, bias: Tensor | None, axis: int) -> Tensor:
    z = wide(x) * align(wide(scale), x, axis)
    return z if bias is None else z + align(wide(bias), x, axis)


@operator("deployops::scale_bias_act", onnx="deployops::ScaleBiasAct")
def scale_bias_act(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    activation: str = "relu",
    axis: int = 1,
    slope: float = 0.01,
) -> Tensor:
    """activation(scale·x + bias), scale and bias one number per channel.

    x: any shape with a dimension `axis`, of size C. scale, bias: shape (C,). y: shape of x. Halves are
    computed in float32 and rounded once.

    ===========  =======================================================================
    activation   of z = scale·x + bias
    ===========  =======================================================================
    none         z
    relu         max(z, 0); gradient 0 at 0
    leaky_relu   z where z > 0, else slope·z; gradient `slope` at 0
    sigmoid      1/(1 + exp(−z)), as the operator `sigmoid`
    tanh         tanh(z)
    silu         z·sigmoid(z)
    gelu         z·(1 + erf(z/√2))/2, the exact form
    gelu_tanh    z·(1 + tanh(√(2/π)·(z + 0.044715·z³)))/2, another function: up to 4.7e-4 away
    ===========  =======================================================================

    NaN stays NaN. silu and both GELUs of −inf are −inf · 0 = NaN, as in torch. `slope` matters to leaky_relu
    only.

    Raises ValueError for an unknown activation, a missing dimension, or the wrong number of channels.
    """
    _check(x, scale, bias, activation, axis)
    y = ACTIVATIONS[activation].reference(_affine(x, scale, bias, axis), slope)
    return y.to(x.dtype).contiguous()


@scale_bias_act.fake
def _(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    activation: str = "relu",
    axis: int = 1,
    slope: float = 0.01,
) -> Tensor:
    _check(x, scale, bias, activation, axis)
    return x.new_empty(x.shape)


@scale_bias_act.backward
def _(
    grad: Tensor, x: Tensor, scale: Tensor, bias: Tensor | None, activation: str, axis: int, slope: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    d_z = ACTIVATIONS[activation].gradient(wide(grad), _affine(x, scale, bias, axis), slope)
    d_bias = None if bias is None else sum_to(bias, d_z, axis)
    return d_z * align(wide(scale), x, axis), sum_to(scale, d_z * wide(x), axis), d_bias


@scale_bias_act.body
def _(
    op: functions.BodyBuilder,
    x: functions.Tensor,
    scale: functions.Tensor,
    bias: functions.Tensor | None,
    activation: str,
    axis: int,
    slope: float,
) -> Any:
    z = op.Mul(op.widen(x), align_in_body(op, op.widen(scale), x, axis))
    if bias is not None:
        z = op.Add(z, align_in_body(op, op.widen(bias), x, axis))
    return op.cast(check_activation("scale_bias_act", activation).body(op, z, slope), x.dtype)


@scale_bias_act.samples
def _(draw: Draw) -> Iterator[Any]:
    for activation in ACTIVATIONS:
        yield draw(2, 3, 2, 3), draw(3), draw(3), activation
        yield draw.call(
            draw.edges().reshape(1, -1, 1), draw(19, low=0.25, high=1), activation=activation, smooth=False
        )
        yield draw(1, 33, low=-12, high=12), draw(33, low=0.5, high=1.0), draw(33), activation
    yield draw(4, 5), draw(5)
    yield draw(4, 5), draw(4), draw(4), "silu", 0
    yield draw(2, 5, 3), draw(3), draw(3), "gelu", -1
    yield draw(7), draw(7), None, "none", 0
    yield draw(1, 1), draw(1), draw(1), "tanh"
    yield draw(0, 3, 2), draw(3), draw(3)
    yield draw(2, 0), draw(0), draw(0)
    yield draw.strided(2, 3, 4), draw.strided(3), draw.strided(3), "sigmoid"
    yield draw.call(draw(3, 5), draw(5), draw(5), activation="leaky_relu", slope=0.3)
    yield draw.call(draw(3, 5), draw(5), activation="leaky_relu", slope=-2.0)
    # as many as the emulation gives long indices to
    yield draw(2, 8, 6, 4), draw(8), draw(8), "silu"
