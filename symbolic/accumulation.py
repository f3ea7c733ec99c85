"""In which dtype an operator computes: float16 and bfloat16 in float32, float32 and float64 in themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["wide"]


def wide(x: Tensor) -> Tensor:
    """`x` in the dtype to accumulate in; `op.widen` is the same inside a body."""
    import torch

    return x.to(torch.promote_types(x.dtype, torch.float32))
