"""Tensors as numpy arrays and as ONNX Runtime's values, the types that numpy lacks included (bfloat16, float8)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

__all__ = ["Slot", "UnfitTypeError", "element_dtype", "from_ort_value", "to_array", "to_ort_value"]

Array = npt.NDArray[Any]

Slot = tuple[str, str]  # name and type of an input or output: ("x", "tensor(float)")

_NUMPY = {"float": "float32", "double": "float64"}
# ONNX's names of the types that numpy lacks, and those of ml_dtypes
_FOREIGN = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}


class UnfitTypeError(Exception):
    """An input or output of the ONNX model that is no tensor of numbers."""


def element_dtype(slot: Slot) -> np.dtype[Any]:
    """The dtype of an input or output. Raises UnfitTypeError for what is no tensor of numbers."""
    name, kind = slot
    element = kind[len("tensor(") : -1] if kind.startswith("tensor(") else ""
    if element in ("", "string"):
        raise UnfitTypeError(f"{name} has type {kind}: only tensors of numbers can be fed and compared")
    dtype: np.dtype[Any]
    if element in _FOREIGN:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, _FOREIGN[element]))
    else:
        dtype = np.dtype(_NUMPY.get(element, element))
    return dtype


def to_array(tensor: torch.Tensor) -> Array:
    """The tensor's values as a contiguous numpy array; complex as real pairs in a last axis of 2."""
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    tensor = tensor.contiguous()
    try:
        array: Array = tensor.numpy()
        return array
    except TypeError:  # bfloat16 and float8: numpy has no such type of its own
        import ml_dtypes

        name = str(tensor.dtype).removeprefix("torch.")
        bits = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        # a 0-d tensor cannot be viewed as another dtype by numpy, hence the detour over one axis
        flat: Array = tensor.reshape(-1).view(bits).numpy().view(np.dtype(getattr(ml_dtypes, name)))
        return flat.reshape(tuple(tensor.shape))


def to_ort_value(array: Array) -> Any:
    """An `OrtValue` on the array's own memory."""
    import onnxruntime as ort

    if array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(array)
    from onnx.helper import np_dtype_to_tensor_dtype

    bits = array.view(np.uint16 if array.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, np_dtype_to_tensor_dtype(array.dtype))


def from_ort_value(value: Any, slot: Slot) -> Array:
    """The array of a result, with memory of its own."""
    dtype = element_dtype(slot)
    if dtype.isbuiltin == 1:
        return np.array(value.numpy())
    # the runtime has no numpy type for it, but the bytes are there
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
