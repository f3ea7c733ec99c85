"""Graphs within nodes (the branches of If, the bodies of Loop and Scan), to any depth; local functions are not in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["graphs_within", "named_graphs_within", "nested_graphs", "nested_nodes"]


def named_graphs_within(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs that are attributes of the node, each with the attribute's name; not those within them."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for graph in attribute.graphs:
            yield attribute.name, graph


def graphs_within(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that are attributes of the node; not those within them."""
    return (graph for _, graph in named_graphs_within(node))


def nested_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph, and all within its nodes."""
    yield graph
    for node in nested_nodes(graph.node):
        yield from graphs_within(node)


def nested_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes in their order, each before those within it. Without recursion: files of strangers may be nested deeply."""
    waiting = [iter(nodes)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        yield node
        waiting += [iter(graph.node) for graph in reversed(list(graphs_within(node)))]
