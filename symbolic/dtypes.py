"""The names of element types: torch's, ONNX's number, and the text in ONNX type constraints.

One table, because every mistake in it is a silently wrong model. No torch import: `deployops inspect`
reads it too. Source: onnx.proto3 (TensorProto.DataType), c10/core/ScalarType.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["ALL", "FLOATS", "from_scalar_type", "name_of", "onnx_number", "onnx_text", "torch_dtype"]

# torch name -> (TensorProto.DataType, text in `tensor(...)`)
_TABLE = {
    "float32": (1, "float"),
    "uint8": (2, "uint8"),
    "int8": (3, "int8"),
    "uint16": (4, "uint16"),
    "int16": (5, "int16"),
    "int32": (6, "int32"),
    "int64": (7, "int64"),
    "bool": (9, "bool"),
    "float16": (10, "float16"),
    "float64": (11, "double"),
    "uint32": (12, "uint32"),
    "uint64": (13, "uint64"),
    "complex64": (14, "complex64"),
    "complex128": (15, "complex128"),
    "bfloat16": (16, "bfloat16"),
    "float8_e4m3fn": (17, "float8e4m3fn"),
    "float8_e4m3fnuz": (18, "float8e4m3fnuz"),
    "float8_e5m2": (19, "float8e5m2"),
    "float8_e5m2fnuz": (20, "float8e5m2fnuz"),
}
_BY_NUMBER = {number: name for name, (number, _) in _TABLE.items()}
# c10::ScalarType, which a torch schema stores as the default of a dtype argument
_SCALAR_TYPES = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
    "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16",
)  # fmt: skip

FLOATS = ("float32", "float64", "float16", "bfloat16")
ALL = tuple(_TABLE)


def name_of(dtype: torch.dtype | str | int) -> str:
    """The torch name of a dtype, of its name, or of its ONNX number. Raises KeyError for others."""
    name = _BY_NUMBER[dtype] if isinstance(dtype, int) else str(dtype).removeprefix("torch.")
    if name not in _TABLE:
        raise KeyError(f"{name} has no ONNX tensor type")
    return name


def onnx_number(dtype: torch.dtype | str | int) -> int:
    """`TensorProto.DataType` of a torch dtype."""
    return _TABLE[name_of(dtype)][0]


def onnx_text(dtype: torch.dtype | str | int) -> str:
    """The type as ONNX schemas write it, `tensor(float)` for float32."""
    return f"tensor({_TABLE[name_of(dtype)][1]})"


def torch_dtype(dtype: torch.dtype | str | int) -> torch.dtype:
    """The torch dtype of a name or an ONNX number."""
    import torch

    found: torch.dtype = getattr(torch, name_of(dtype))
    return found


def from_scalar_type(number: Any) -> torch.dtype:
    """A torch schema's default dtype, which is stored as its c10 number."""
    import torch

    if isinstance(number, torch.dtype):
        return number
    found: torch.dtype = getattr(torch, _SCALAR_TYPES[number])
    return found
