"""One number per channel: aligning a vector of shape (C,) with dimension `axis` of a tensor, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError

if TYPE_CHECKING:
    from torch import Tensor

    from . import functions

__all__ = ["align", "align_in_body", "check_axis", "sum_to"]


def check_axis(name: str, x: Tensor, axis: int) -> None:
    """Raise ValueError where `x` has no dimension `axis`."""
    if not -x.dim() <= axis < x.dim():
        raise ValueError(f"{name}: axis = {axis}, but x has {x.dim()} dimensions")


def align(v: Tensor, x: Tensor, axis: int) -> Tensor:
    """(C,) as (C, 1, …, 1), so that it broadcasts along dimension `axis` of x."""
    return v.reshape(-1, *[1] * (x.dim() - 1 - axis % x.dim()))


def align_in_body(op: functions.BodyBuilder, v: functions.Tensor, x: functions.Tensor, axis: int) -> Any:
    """`align`, in ONNX nodes."""
    if x.rank is None:
        raise DeclarationError("the rank of x is not known, so its channels cannot be found")
    after = x.rank - 1 - axis % x.rank
    return v if after == 0 else op.Unsqueeze(v, op.tensor(list(range(1, after + 1)), "int64"))


def sum_to(v: Tensor, gradient: Tensor, axis: int) -> Tensor:
    """The gradient of an aligned vector `v`: summed over every dimension but `axis`."""
    kept = axis % gradient.dim()
    others = [d for d in range(gradient.dim()) if d != kept]
    # An empty list of dims would mean all of them.
    return (gradient.sum(others) if others else gradient).reshape(v.shape)
