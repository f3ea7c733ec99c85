"""Which of a call's values goes to which input of the ONNX model, and in what form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from ...ort_ops.arrays import Slot, UnfitTypeError, element_dtype, to_array

__all__ = ["FeedError", "feed"]

Array = npt.NDArray[Any]


class FeedError(Exception):
    """The ONNX model takes another input than the original does: a fault of the model, not of the call."""


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
    try:
        dtype = element_dtype(slot)
    except UnfitTypeError as e:
        raise FeedError(str(e)) from None
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
