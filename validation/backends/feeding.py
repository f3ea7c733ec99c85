"""Which of a call's values goes to which input of the ONNX model, and in what form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from .torch import to_array

__all__ = ["FeedError", "Slot", "element_dtype", "feed"]

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


class FeedError(Exception):
    """The ONNX model takes another input than the original does: a fault of the model, not of the call."""


def element_dtype(slot: Slot) -> np.dtype[Any]:
    """The dtype of an input or output. Raises FeedError for what is no tensor of numbers."""
    name, kind = slot
    element = kind[len("tensor(") : -1] if kind.startswith("tensor(") else ""
    if element in ("", "string"):
        raise FeedError(f"{name} has type {kind}: only tensors of numbers can be fed and compared")
    dtype: np.dtype[Any]
    if element in _FOREIGN:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, _FOREIGN[element]))
    else:
        dtype = np.dtype(_NUMPY.get(element, element))
    return dtype


def feed(
    slots: Sequence[Slot], inputs: Sequence[tuple[str, Any]], notes: dict[str, None]
) -> dict[str, Array]:
    """Contiguous arrays by input name, from the (name, value) pairs of a call.

    By name where the model's input names are all there, else by position where the counts agree. Values the
    model does not take (pruned inputs, constants of the trace) are left out, with a note.

    Raises:
        UsageError: an input is missing.
        FeedError: an input has another dtype.
    """
    chosen = _match([name for name, _ in slots], inputs, notes)
    return {slot[0]: _array(slot, chosen[slot[0]]) for slot in slots}


def _match(wanted: list[str], inputs: Sequence[tuple[str, Any]], notes: dict[str, None]) -> dict[str, Any]:
    by_name = dict(inputs)
    if all(name in by_name for name in wanted):
        unused = [n for n, v in inputs if n not in wanted and hasattr(v, "shape")]
        if unused:
            notes[f"not inputs of the ONNX model, so not fed: {', '.join(unused)}"] = None
        return {name: by_name[name] for name in wanted}
    tensors = [(n, v) for n, v in inputs if hasattr(v, "shape")]
    for given in (tensors, list(inputs)):
        if len(given) == len(wanted):
            pairs = ", ".join(f"{n} -> {w}" for (n, _), w in zip(given, wanted, strict=True) if n != w)
            notes[f"inputs matched by position: {pairs}"] = None
            return {w: v for w, (_, v) in zip(wanted, given, strict=True)}
    missing = [name for name in wanted if name not in by_name]
    raise UsageError(
        f"the ONNX model takes {len(wanted)} inputs ({', '.join(wanted)}); the sample has {len(tensors)} "
        f"tensors ({', '.join(n for n, _ in tensors) or 'none'}). Missing: {', '.join(missing)}"
    )


def _array(slot: Slot, value: Any) -> Array:
    dtype = element_dtype(slot)
    if hasattr(value, "detach"):
        array = to_array(value)
    elif hasattr(value, "shape"):
        array = np.asarray(value, order="C")
    else:
        return np.asarray(value, dtype=dtype)
    if array.dtype != dtype:
        raise FeedError(
            f"input {slot[0]}: the original takes {array.dtype.name}, the ONNX model takes {dtype.name}"
        )
    return array
