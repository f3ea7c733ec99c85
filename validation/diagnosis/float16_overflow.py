"""An overflow of float16 behind a difference: the first operator that makes a value beyond 65,504.

What is no operator of the original (a layer norm that the file spells out) shows in the file's own values, where the
file can be run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..backends import Sample
from ..backends.torch import described
from ..float16_range import BEYOND, NARROWER, first_beyond
from ..narrow_original import NarrowOriginal
from ..original import Expected, Original
from ..parity.float_types import is_float
from ..record import Finding
from .graph_nodes import described_node, nodes_of
from .residual import Wrong, failing

if TYPE_CHECKING:
    import onnx

__all__ = ["explain", "of_the_reference"]

Array = npt.NDArray[Any]
FileValues = Callable[[Sequence[str]], Mapping[str, Array]]

KIND = "float16 overflow"
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
    wrong: Sequence[Wrong] = (),
    file_values: FileValues | None = None,
) -> Iterator[Finding]:
    """One finding where an output has Inf or NaN that the true one has not, in a file that computes in float16.

    `wrong`: outputs that differ. One of finite numbers may come from an Inf, too: x / norm(x) is 0 where the norm is.
    """
    lost = [
        k
        for k, (g, e) in enumerate(zip(got, expected, strict=True))
        if is_float(g) and g.shape == e.array.shape and _lost(g, e).any()
    ]
    if not (lost or wrong) or not _computes_in_float16(graph):
        return
    there = None if lost else _in_the_file(graph, file_values)
    if not lost and there is None:
        return  # numbers that are wrong without an Inf have another cause
    beyond = first_beyond(original.source or original.model, sample)
    if beyond is not None:
        where, text, advice = beyond.where, beyond.text, NARROWER
    elif lost and (there := _in_the_file(graph, file_values)):
        where, text, advice = there
    else:
        return
    outputs = ", ".join(names[k] for k in lost or [k for k, _, _ in wrong])
    follows = (
        "Inf or NaN follows from it" if lost else "Inf inside the file, and wrong numbers follow from it"
    )
    yield Finding(KIND, "note", f"{text}: {follows} in {outputs}", where=where, advice=advice)


def of_the_reference(
    original: Original,
    sample: Sample,
    expected: Sequence[Expected],
    graph: onnx.GraphProto,
    file_values: FileValues,
    outputs_given: Callable[[Mapping[str, Array]], list[Array]],
) -> Iterator[Finding]:
    """Where the original in float16, or a copy of it cast to that (`NarrowOriginal`), overflows, and whether the file does.

    ONNX Runtime's CPU computes much of float16 in float32, so that a file passes there that is wrong on a GPU. So the file is run
    again (`outputs_given`) with what its nodes make in float16.
    """
    import torch

    told = next((e.overflows for e in expected if e.overflows), "")
    if not (isinstance(original.model, NarrowOriginal) and original.model.keeps_range):
        if told:
            yield Finding(KIND, "note", told, where=sample.label, advice=NARROWER)
        return
    beyond = first_beyond(original.source, sample) if original.deployed == torch.float16 else None
    if beyond is None:
        return
    text = f"{beyond.text}: cast to float16 as a whole it overflows there"
    try:
        values = _values(graph, file_values)
        makers = [*_makers(graph, values)]
        shown = {o.name for o in graph.output}
        inside = {o: values[o] for _, made in makers for o in made if o not in shown}
        wrong = bool(inside) and any(True for _ in failing(outputs_given(inside), list(expected)))
    except Exception as error:  # no runtime runs it so, or its outputs are no counterparts
        yield Finding(
            KIND,
            "not checked",
            f"{text}; whether the file does could not be looked up ({described(error)})",
            where=beyond.where,
            advice=NARROWER,
        )
        return
    if not wrong:
        what = "the file makes Inf as well, and nothing depends on it" if inside else "the file does not"
        yield Finding(KIND, "note", f"{text}; {what}", where=beyond.where, advice=NARROWER)
        return
    where, words, advice = _told(values, *makers[0])
    yield Finding(
        KIND,
        "failed",
        f"{text}, and so does the file: {words}. With that Inf its outputs are wrong. A runtime that computes float16 in float32, "
        "as ONNX Runtime's CPU does, does not show it; one that computes in float16 will",
        where=where,
        advice=advice,
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


def _in_the_file(graph: onnx.GraphProto, file_values: FileValues | None) -> tuple[str, str, str] | None:
    """(where, what, advice) of the first node of the file that makes Inf or NaN out of finite numbers."""
    if file_values is None:
        return None
    values = _values(graph, file_values)
    first = next(_makers(graph, values), None)
    return None if first is None else _told(values, *first)


def _values(graph: onnx.GraphProto, file_values: FileValues) -> Mapping[str, Array]:
    return file_values([o for node in graph.node for o in node.output if o])


def _makers(
    graph: onnx.GraphProto, values: Mapping[str, Array]
) -> Iterator[tuple[onnx.NodeProto, list[str]]]:
    """The nodes that make Inf or NaN out of finite numbers, and which outputs of theirs have them."""
    masks = {t.name for t in graph.initializer if _has_infinities(t)}

    def special(name: str) -> bool:
        if name in masks:
            return True
        array = values.get(name)
        return array is not None and is_float(array) and not bool(np.isfinite(array.astype(np.float64)).all())

    for node in graph.node:
        made = [o for o in node.output if o and special(o)]
        if made and node.op_type != "Constant" and not any(special(i) for i in node.input if i):
            yield node, made


def _told(values: Mapping[str, Array], node: onnx.NodeProto, made: Sequence[str]) -> tuple[str, str, str]:
    """(where, what, advice)."""
    ranges = [
        f"{i} up to {float(np.abs(values[i].astype(np.float64)).max()):,.6g}"
        for i in node.input
        if i in values and values[i].size and is_float(values[i])
    ]
    inputs = f" from {', '.join(ranges)}" if ranges else ""
    where = node.name or made[0]
    place = _OF_ZERO.get(node.op_type)
    zero = values.get(node.input[place]) if place is not None and place < len(node.input) else None
    makes = f"{described_node(node)} of the file makes Inf or NaN{inputs}"
    if zero is not None and bool((zero == 0).any()):
        return where, f"{makes}: `{node.input[place or 0]}` is 0 there", _ZERO
    return where, f"{makes}: its result is {BEYOND}", NARROWER


def _has_infinities(tensor: onnx.TensorProto) -> bool:
    """Of a constant that lies in the file itself; weights beside it are no masks."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        return False
    array = numpy_helper.to_array(tensor)
    return is_float(array) and not bool(np.isfinite(array.astype(np.float64)).all())
