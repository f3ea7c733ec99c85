"""cube_root: the real cube root."""

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


@operator("deployops::cube_root", onnx="deployops::CubeRoot")
def cube_root(x: Tensor) -> Tensor:
    """The real cube root, elementwise, for x of any shape: cube_root(−8) is −2.

    Computed in float64 for every dtype and rounded once: at most 1 ULP off in float64, correctly rounded
    otherwise. |x|^(1/3) alone is up to 60 ULP off (1/3 is not a float64, and large |x| shows it); one Newton
    step on y³ = |x| puts that right. ±0 and ±inf give themselves, NaN gives NaN, subnormals are exact too.

    The gradient is 1/(3·y²). At 0 the derivative is infinite; the gradient there is defined as 0, so that one
    zero among the activations does not turn the weights into NaN.
    """
    a = x.double().abs()
    y = a ** (1 / 3)
    y = y - (y - a / (y * y)) / 3
    y = torch.where(x < 0, -y, y)
    return torch.where((x == 0) | torch.isinf(x), x, y.to(x.dtype))


@cube_root.fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@cube_root.backward
def _(grad: Tensor, x: Tensor) -> Tensor:
    z = wide(x)
    zero = z == 0
    # 1 in place of 0, so that the branch not taken does not bring NaN into the second derivative.
    y = cube_root(torch.where(zero, torch.ones_like(z), z))
    return torch.where(zero, torch.zeros_like(z), wide(grad) / (3 * y * y))


@cube_root.body
def _(op: functions.BodyBuilder, x: functions.Tensor) -> Any:
    z = op.widen(x)
    a = op.Abs(z)
    y = op.Pow(a, 1 / 3)
    y = op.Sub(y, op.Div(op.Sub(y, op.Div(a, op.Mul(y, y))), 3))
    # 0, -0 and ±inf are their own cube roots, and just those numbers equal their double: the largest finite
    # ones overflow, and x + x of a NaN equals nothing. They enter as a factor, where the others have ±1,
    # because ONNX Runtime's Where turns -0 into 0.
    own, one = op.Equal(op.Add(z, z), z), op.tensor(1, z.dtype or "float32")
    return op.cast(op.Mul(op.Where(own, one, y), op.Div(z, op.Where(own, one, a))), x.dtype)


@cube_root.samples
def _(draw: Draw) -> Iterator[Any]:
    tiny = torch.finfo(draw.dtype)
    yield draw(3, 5)
    yield draw(2, 3, 4, 5)
    yield draw(1)
    yield draw()
    yield draw(0, 4)
    yield draw.strided(3, 5)
    yield draw(301, low=-6e4, high=6e4)
    yield draw.values(-27, -8, -1, 1, 8, 27, 1e-4, -1e-4, 6e4)
    yield draw.call(draw.values(0.0, -0.0, 1.0), smooth=False)
    # Numerical differentiation steps across zero here.
    yield draw.call(draw(16) * tiny.smallest_normal, smooth=False)
    yield draw.call(draw(16) * (tiny.max / 4), smooth=False)
    yield draw.edges()
