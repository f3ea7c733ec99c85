"""The outputs of one call as a library sees them that allocates before it computes: sizes that the data decides at their
declared bounds, shape inputs read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import dtypes
from .fake_run import TensorInfo, run_fake

if TYPE_CHECKING:
    import torch

    from .interface import BoundCall
    from .operator import Operator

__all__ = ["bounded_outputs"]


def bounded_outputs(op: Operator, call: BoundCall) -> Sequence[TensorInfo]:
    """Dtypes and sizes, in the order of the node's outputs.

    Raises ShapeError where the fake kernel refuses the call, DeclarationError where bounds are missing or wrong.
    """

    def info(name: str, t: torch.Tensor) -> TensorInfo:
        dims = t.reshape(-1).tolist() if name in op.shape_inputs else t.shape
        return TensorInfo(dtypes.name_of(t.dtype), tuple(dims))

    tensors = {
        name: None
        if value is None
        else [info(name, t) for t in value]
        if isinstance(value, (list, tuple))
        else info(name, value)
        for name, value in call.tensors.items()
    }
    return run_fake(op, tensors, call.attributes, {}, "bound").outputs
