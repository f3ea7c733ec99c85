"""mean_pool: the global average of each channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...errors import DeclarationError
from ..accumulation import wide
from ..operator import operator

if TYPE_CHECKING:
    from .. import functions
    from ..samples import Draw


def _check(x: Tensor) -> None:
    if x.dim() not in (2, 4):
        raise ValueError(
            f"mean_pool: x has {x.dim()} dimensions; expected 4, (N, C, H, W) to average over H and W, "
            "or 2, (N, L) to average over L"
        )


def _pooled(x: Tensor) -> list[int]:
    return [2, 3] if x.dim() == 4 else [1]


@operator("deployops::mean_pool", onnx="deployops::MeanPool")
def mean_pool(x: Tensor) -> Tensor:
    """The mean over H and W of x (N, C, H, W), shape (N, C); or over L of x (N, L), shape (N,).

    The pooled dims are dropped. Halves are summed in float32 and rounded once. The mean of nothing (H, W or L
    is 0) is NaN. NaN in a window makes its mean NaN.

    Raises ValueError for any other number of dimensions.
    """
    _check(x)
    return wide(x).mean(_pooled(x)).to(x.dtype).contiguous()


@mean_pool.fake
def _(x: Tensor) -> Tensor:
    _check(x)
    return x.new_empty(x.shape[: x.dim() // 2])


@mean_pool.backward
def _(grad: Tensor, x: Tensor) -> Tensor:
    pooled = _pooled(x)
    count = 1
    for d in pooled:
        count *= x.shape[d]
    return (wide(grad) / count).reshape(*grad.shape, *[1] * len(pooled)).expand(x.shape)


@mean_pool.body
def _(op: functions.BodyBuilder, x: functions.Tensor) -> Any:
    if x.rank not in (2, 4):
        raise DeclarationError(f"x has {x.rank or 'an unknown number of'} dimensions; expected 2 or 4")
    axes = op.tensor([2, 3] if x.rank == 4 else [1], "int64")
    total = op.ReduceSum(op.widen(x), axes, keepdims=0)
    # Not ReduceMean: of nothing, ONNX Runtime makes 0.
    count = op.ReduceProd(op.Shape(x, start=x.rank // 2), keepdims=0)
    return op.cast(op.Div(total, op.cast(count, total.dtype)), x.dtype)


@mean_pool.samples
def _(draw: Draw) -> Iterator[Any]:
    inf, nan = float("inf"), float("nan")
    yield draw(2, 3, 4, 5)
    yield draw(3, 5)
    yield draw(1, 1, 1, 1)
    yield draw(2, 5, 7, 1)
    yield draw(0, 3, 4, 5)
    yield draw(2, 0, 4, 5)
    yield draw(2, 3, 0, 5)
    yield draw(3, 0)
    yield draw(2, 4099)
    yield draw.strided(2, 3, 4, 5)
    yield draw.strided(3, 5)
    # 4096 times 3e4 is no float16.
    yield draw.call(draw(1, 1, 64, 64, low=2e4, high=4e4), smooth=False)
    yield draw.values(1, nan, inf, 1, -inf, inf, -inf, 2).reshape(4, 2)
    yield draw.edges().reshape(-1, 1)
