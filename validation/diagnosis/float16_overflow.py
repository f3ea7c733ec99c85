"""Values beyond 65,504, the largest float16: the first operator that makes one.

The original is run in float64, where the true ranges show. What is no operator of the original (a layer norm that the
file spells out) shows in the file's own values, where the file can be run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..backends import Sample
from ..backends.torch import Widened, narrowest
from ..original import Expected, Original, cloned, is_float
from ..record import Finding
from .graph_nodes import described_node, nodes_of
from .operators_seen import operators_seen

if TYPE_CHECKING:
    import onnx

__all__ = ["LARGEST", "explain"]

Array = npt.NDArray[Any]
FileValues = Callable[[Sequence[str]], Mapping[str, Array]]

KIND = "float16 overflow"
LARGEST = 65504.0
_BEYOND = "beyond 65,504, the largest float16"
_NARROWER = (
    "keep this part in float32 or bfloat16, or scale its inputs down (divide before a square or a sum)"
)
_ZERO = "keep this part in float32 or bfloat16: what is added against a division by 0, or divided by, became 0 in float16"
# Where an input of 0 gives Inf or NaN whatever the range: the place of that input.
_OF_ZERO = {"Div": 1, "Reciprocal": 0, "Log": 0}


def explain(
    original: Original,
    sample: Sample,
    got: list[Array],
    expected: list[Expected],
    graph: onnx.GraphProto,
    names: Sequence[str],
    file_values: FileValues | None = None,
) -> Iterator[Finding]:
    """One finding where an output has Inf or NaN that the true one has not, in a file that computes in float16."""
    lost = [
        k
        for k, (g, e) in enumerate(zip(got, expected, strict=True))
        if is_float(g) and g.shape == e.array.shape and _lost(g, e).any()
    ]
    if not lost or not _computes_in_float16(graph):
        return
    outputs = ", ".join(names[k] for k in lost)
    found = _in_the_original(original, sample) or (
        _in_the_file(graph, file_values) if file_values is not None else None
    )
    if found is None:
        return
    where, text, advice = found
    yield Finding(
        KIND, "note", f"{text}: Inf or NaN follows from it in {outputs}", where=where, advice=advice
    )


def _lost(got: Array, expected: Expected) -> Array:
    """Where the candidate has NaN or Inf and the true value is none."""
    with np.errstate(all="ignore"):
        true = (
            expected.array.astype(np.float64) if expected.wide is None else expected.wide.astype(np.float64)
        )
        result: Array = ~np.isfinite(got.astype(np.float64)) & np.isfinite(true)
    return result


def _computes_in_float16(graph: onnx.GraphProto) -> bool:
    from onnx import TensorProto

    half = TensorProto.FLOAT16
    declared = (*graph.input, *graph.output, *graph.value_info)
    return (
        any(v.type.tensor_type.elem_type == half for v in declared)
        or any(t.data_type == half for t in graph.initializer)
        or any(
            a.name == "to" and a.i == half
            for n in nodes_of(graph)
            if n.op_type == "Cast"
            for a in n.attribute
        )
    )


def _in_the_original(original: Original, sample: Sample) -> tuple[str, str, str] | None:
    """(where, what, advice) of the first operator whose results leave the range, in float64."""
    import torch
    from torch.utils import _pytree

    model = original.source or original.model
    leaves = [
        v for v in _pytree.tree_leaves((sample.args, dict(sample.kwargs))) if isinstance(v, torch.Tensor)
    ]
    wide = Widened(model, torch.float64, narrowest(model, leaves) or torch.float32)
    if not wide.available:
        return None
    found: list[tuple[str, str, str]] = []

    def see(path: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if found:
            return
        high = _highest(_pytree.tree_leaves(result))
        if high > LARGEST and _highest(_pytree.tree_leaves((args, kwargs))) <= LARGEST:
            place = f"`{path}` ({func})" if path else str(func)
            text = f"{place} of the original reaches {high:,.6g} in float64, {_BEYOND}"
            found.append((path or str(func), text, _NARROWER))

    try:
        with operators_seen(see), torch.no_grad():
            wide.run(cloned(sample.args), cloned(dict(sample.kwargs)))
    except Exception:  # no float64 run: nothing is known
        return None
    return found[0] if found else None


def _highest(values: Iterable[Any]) -> float:
    """The largest finite magnitude of the floating tensors."""
    import torch

    highest = 0.0
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            size = value.detach().abs()
            finite = size[torch.isfinite(size)]
            if finite.numel():
                highest = max(highest, float(finite.max()))
    return highest


def _in_the_file(graph: onnx.GraphProto, file_values: FileValues) -> tuple[str, str, str] | None:
    """(where, what, advice) of the first node of the file that makes Inf or NaN out of finite numbers."""
    values = dict(file_values([o for node in graph.node for o in node.output if o]))

    def special(name: str) -> bool:
        array = values.get(name)
        return array is not None and is_float(array) and not bool(np.isfinite(array.astype(np.float64)).all())

    for node in graph.node:
        made = [o for o in node.output if o and special(o)]
        if not made or any(special(i) for i in node.input if i):
            continue
        ranges = [
            f"{i} up to {float(np.abs(values[i].astype(np.float64)).max()):,.6g}"
            for i in node.input
            if i in values and values[i].size and is_float(values[i])
        ]
        inputs = f" from {', '.join(ranges)}" if ranges else ""
        where = node.name or made[0]
        place = _OF_ZERO.get(node.op_type)
        zero = values.get(node.input[place]) if place is not None and place < len(node.input) else None
        if zero is not None and bool((zero == 0).any()):
            text = f"{described_node(node)} of the file makes Inf or NaN{inputs}: `{node.input[place or 0]}` is 0 there"
            return where, text, _ZERO
        return (
            where,
            f"{described_node(node)} of the file makes Inf or NaN{inputs}: its result is {_BEYOND}",
            _NARROWER,
        )
    return None
