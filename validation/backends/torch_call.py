"""A call of a torch model as a message: the structure as JSON, the tensors as arrays, layouts kept.

The layout is part of a sample: an operator that ignores strides is wrong on a transposed input only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import NotCheckedError
from ...ort_ops.arrays import to_array
from ...symbolic.memory_layouts import with_strides

if TYPE_CHECKING:
    import torch

__all__ = ["pack", "to_tensor", "unpack"]

Array = npt.NDArray[Any]


def pack(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Array]]:
    """(structure, arrays). Raises NotCheckedError for a value that is no tensor, number, text or plain container."""
    arrays: dict[str, Array] = {}
    return _packed([args, dict(kwargs)], arrays), arrays


def unpack(structure: Any, arrays: Mapping[str, Array]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs), the tensors on the arrays' memory where the layout allows."""
    args, kwargs = _unpacked(structure, arrays)
    return args, kwargs


def to_tensor(array: Array) -> torch.Tensor:
    """The inverse of `to_array`: the types that numpy lacks come as those of ml_dtypes."""
    import torch

    if array.dtype.isbuiltin == 1:
        tensor = torch.from_numpy(array)
        # of nothing, numpy's strides are any, and some operators of torch look at them
        return tensor if array.size else torch.empty(array.shape, dtype=tensor.dtype)
    bits = np.dtype(np.int16 if array.itemsize == 2 else np.uint8)
    flat = torch.from_numpy(array.reshape(-1).view(bits)).view(getattr(torch, array.dtype.name))
    return flat.reshape(array.shape)


def _packed(value: Any, arrays: dict[str, Array]) -> Any:
    import torch

    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized:
        name = str(len(arrays))
        arrays[name] = to_array(value)
        return {
            "tensor": name,
            "complex": value.is_complex(),
            "strides": None if value.is_contiguous() else list(value.stride()),
        }
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if type(value) is list:
        return {"list": [_packed(v, arrays) for v in value]}
    if type(value) is tuple:
        return {"tuple": [_packed(v, arrays) for v in value]}
    if type(value) is dict and all(type(k) is str for k in value):
        return {"dict": {k: _packed(v, arrays) for k, v in value.items()}}
    raise NotCheckedError(
        f"the sample holds a {type(value).__name__}, which cannot be given to another process: run with isolate=False"
    )


def _unpacked(node: Any, arrays: Mapping[str, Array]) -> Any:
    if "value" in node:
        return node["value"]
    if "tensor" in node:
        return _laid_out(to_tensor(arrays[node["tensor"]]), node["complex"], node["strides"])
    if "dtype" in node:
        import torch

        return getattr(torch, node["dtype"])
    if "dict" in node:
        return {k: _unpacked(v, arrays) for k, v in node["dict"].items()}
    kind = list if "list" in node else tuple
    return kind(_unpacked(v, arrays) for v in node[kind.__name__])


def _laid_out(tensor: torch.Tensor, is_complex: bool, strides: list[int] | None) -> torch.Tensor:
    import torch

    if is_complex:
        tensor = torch.view_as_complex(tensor)
    return tensor if strides is None else with_strides(tensor, strides)
