"""In which floating type a file computes, whatever types its inputs and outputs have.

`deployops engine build --precision fp16` and other converters cast a model inside and leave its inputs and outputs
float32. A single cast that slipped in makes no such file: most of its products and most of its weights must be narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..symbolic import dtypes
from ..symbolic.graph_inspection.expansion import expansion
from ..symbolic.nested_graphs import nested_graphs, nested_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["ComputedIn", "computed_in", "element_types", "has_narrow"]

_NAMES = {dtypes.onnx_number(name): name for name in ("float16", "bfloat16")}
_FLOATING = (*_NAMES, dtypes.onnx_number("float32"), dtypes.onnx_number("float64"))
# Where a model spends its arithmetic.
_PRODUCTS = frozenset(
    ("Attention", "Conv", "ConvTranspose", "DeformConv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN")
)
_SMALL = 1024  # elements of a constant whose values shape inference may want


@dataclass(frozen=True, slots=True)
class ComputedIn:
    """What a file holds of a narrow type.

    Attributes:
        dtype: "float16" or "bfloat16", whichever there is more of.
        most: the file computes in it.
        words: the counts, for the report.
    """

    dtype: str
    most: bool
    words: str


def computed_in(model: onnx.ModelProto) -> ComputedIn | None:
    """What the file has in float16 or bfloat16; None where it has no weight and no product in it.

    It computes in that type where more than half of its products (convolutions, matrix products, recurrent layers) take
    it and more than half of the elements of its floating weights are stored in it. Of the two, one may be absent. Bodies of
    custom nodes count as often as they are called.
    """
    if not has_narrow(model):
        return None
    whole = _expanded(model)
    weights: dict[int, int] = {}
    for tensor in [*model.graph.initializer, *_tensors(whole, initializers=False)]:
        if tensor.data_type in _FLOATING:
            weights[tensor.data_type] = weights.get(tensor.data_type, 0) + math.prod(tensor.dims)
    types = element_types(whole)
    products: dict[int, int] = {}
    for graph in nested_graphs(whole.graph):
        for node in graph.node:
            if node.op_type in _PRODUCTS and node.domain in ("", "ai.onnx"):
                kind = next((t for n in node.input if (t := types.get(n)) in _FLOATING), None)
                if kind is not None:
                    products[kind] = products.get(kind, 0) + 1
    narrow = max(_NAMES, key=lambda t: (products.get(t, 0), weights.get(t, 0)))
    if not products.get(narrow) and not weights.get(narrow):
        return None
    counts = [c for c in (products, weights) if sum(c.values())]
    return ComputedIn(
        _NAMES[narrow],
        all(2 * c.get(narrow, 0) > sum(c.values()) for c in counts),
        _words(_NAMES[narrow], products, weights, narrow),
    )


def _words(name: str, products: Mapping[int, int], weights: Mapping[int, int], narrow: int) -> str:
    parts = []
    if total := sum(products.values()):
        parts.append(f"{products.get(narrow, 0)} of its {total} products")
    if total := sum(weights.values()):
        parts.append(f"{weights.get(narrow, 0):,} of the {total:,} elements of its weights")
    return f"{' and '.join(parts)} are {name}"


def has_narrow(model: onnx.ModelProto) -> bool:
    """Whether any constant, cast or value of the file is float16 or bfloat16: looked up without inferring types."""
    if any(tensor.data_type in _NAMES for tensor in _tensors(model)):
        return True
    for graph in nested_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _NAMES:
                return True
    return any(
        a.name in ("to", "dtype") and a.i in _NAMES for node in _all_nodes(model) for a in node.attribute
    )


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """ONNX's numbers of the element types of the values, those of subgraphs too, as far as onnx can tell.

    A name with two types in different graphs is left out.
    """
    from onnx import shape_inference

    found: dict[str, set[int]] = {}
    whole = _without_weights(model)
    with suppress(Exception):  # it raises several kinds; what the file says of its values is left
        whole = shape_inference.infer_shapes(whole)
    for graph in nested_graphs(whole.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type:
                found.setdefault(value.name, set()).add(value.type.tensor_type.elem_type)
        for tensor in graph.initializer:
            found.setdefault(tensor.name, set()).add(tensor.data_type)
    return {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1}


def _expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of its functions in the place of their nodes, and without its large weights."""
    from onnx import inliner

    light = _without_weights(model)
    if not model.functions or expansion(light, lambda _: False).is_bomb:
        return light
    with suppress(Exception):  # onnx raises of every kind on files that are wrong
        return inliner.inline_local_functions(light)
    return light


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large constants are inputs: a type and a shape, and no bytes to be copied once more."""
    from onnx import helper

    light = type(model)()
    for field, value in model.ListFields():
        if field.name == "graph":
            continue
        if isinstance(value, int | str):
            setattr(light, field.name, value)
        else:
            getattr(light, field.name).extend(value)
    graph = light.graph
    graph.name = model.graph.name
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, name).extend(getattr(model.graph, name))
    given = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL and not tensor.external_data:
            graph.initializer.add().CopyFrom(tensor)
        elif tensor.name not in given:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return light


def _tensors(model: onnx.ModelProto, *, initializers: bool = True) -> Iterator[onnx.TensorProto]:
    """Initializers and constants of the graph, its subgraphs and its functions."""
    if initializers:
        for graph in nested_graphs(model.graph):
            yield from graph.initializer
    for node in _all_nodes(model):
        if node.op_type == "Constant":
            yield from (a.t for a in node.attribute if a.HasField("t"))


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    yield from nested_nodes(model.graph.node)
    for function in model.functions:
        yield from nested_nodes(function.node)
