"""What an ONNX file says of its inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...export.result import TensorSpec
from ...symbolic import dtypes

if TYPE_CHECKING:
    import onnx

__all__ = ["UNNAMED", "file_inputs", "file_outputs"]

UNNAMED = "?"


def file_inputs(graph: onnx.GraphProto) -> list[TensorSpec]:
    """Name, dtype and dims of every input that no initializer fills; an open dim without a name is "?"."""
    stored = {t.name for t in graph.initializer}
    return [_spec(value) for value in graph.input if value.name not in stored]


def file_outputs(graph: onnx.GraphProto) -> list[str]:
    return [value.name for value in graph.output]


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    try:
        dtype = dtypes.name_of(tensor.elem_type)
    except KeyError:  # a sequence, or strings
        dtype = ""
    dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or UNNAMED for d in tensor.shape.dim)
    return TensorSpec(value.name, dtype, dims)
