"""The nodes of an ONNX graph, those of inner graphs and of model-local functions included, and its constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...symbolic.nested_graphs import nested_nodes
from ...symbolic.node_source import source_words

if TYPE_CHECKING:
    import onnx

__all__ = ["attribute", "constants", "described_node", "nodes_of"]

Array = npt.NDArray[Any]

_SMALL = 64  # elements: flags and ratios, not weights


def nodes_of(
    graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto] = ()
) -> Iterator[onnx.NodeProto]:
    """Every node, in order; inner graphs after the node that holds them."""
    yield from nested_nodes(graph.node)
    for function in functions:
        yield from nested_nodes(function.node)


def constants(graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto] = ()) -> Mapping[str, Array]:
    """Small constants by name: initializers and Constant nodes. Names of inner graphs are taken as unique."""
    from onnx import TensorProto, numpy_helper

    found: dict[str, Array] = {}

    def keep(name: str, tensor: onnx.TensorProto) -> None:
        count = 1
        for dim in tensor.dims:
            count *= dim
        if count <= _SMALL and tensor.data_location != TensorProto.EXTERNAL:
            try:
                found[name] = numpy_helper.to_array(tensor)
            except Exception:  # damaged, or a type that numpy lacks: no flag that we look for
                return

    for tensor in graph.initializer:
        keep(tensor.name, tensor)
    for node in nodes_of(graph, functions):
        if node.op_type == "Constant" and node.output:
            for attr in node.attribute:
                if attr.name == "value":
                    keep(node.output[0], attr.t)
    return found


def attribute(node: onnx.NodeProto, name: str) -> Any:
    """The value of an attribute; None where it is not there."""
    from onnx.helper import get_attribute_value

    return next((get_attribute_value(a) for a in node.attribute if a.name == name), None)


def described_node(node: onnx.NodeProto) -> str:
    """`Dropout 'node_dropout_3' (encoder.drop, net.py:12)`, or by its output where it has no name."""
    name = node.name or (node.output[0] if node.output else "")
    domain = f"{node.domain}::" if node.domain else ""
    source = source_words(node)
    return f"{domain}{node.op_type} {name!r}" + (f" ({source})" if source else "")
