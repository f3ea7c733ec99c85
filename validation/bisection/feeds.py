"""A sample as arrays under the names of the file's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ort_ops.arrays import to_array
from .dataflow import Dataflow

__all__ = ["feeds_of"]

Array = npt.NDArray[Any]


def feeds_of(flow: Dataflow, named: Sequence[tuple[str, Any]]) -> dict[str, Array]:
    """By name where all names are there, else by position; {} where neither fits (the backend said so before)."""
    by_name = dict(named)
    if not all(name in by_name for name in flow.inputs):
        tensors = [(n, v) for n, v in named if hasattr(v, "shape")]
        fitting = next((v for v in (tensors, list(named)) if len(v) == len(flow.inputs)), None)
        if fitting is None:
            return {}
        by_name = {name: value for name, (_, value) in zip(flow.inputs, fitting, strict=True)}
    declared = {i.name: i.type.tensor_type.elem_type for i in flow.model.graph.input}
    return {name: _array(by_name[name], declared[name]) for name in flow.inputs}


def _array(value: Any, number: int) -> Array:
    if hasattr(value, "detach"):
        return to_array(value)
    if hasattr(value, "shape"):
        return np.asarray(value, order="C")
    import onnx.helper

    return np.asarray(value, dtype=onnx.helper.tensor_dtype_to_np_dtype(number))
