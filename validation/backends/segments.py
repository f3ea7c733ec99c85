"""A graph cut at some of its nodes: those one by one, and between them models of their own, in an order that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["Segment", "cut", "referenced"]


@dataclass(frozen=True, slots=True)
class Segment:
    """Nodes that run together. `inputs`: values from outside, initializers apart. `outputs`: values that others need.

    `alone`: the one node that the graph was cut at.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: tuple[str, ...]
    alone: onnx.NodeProto | None = None


def cut(graph: onnx.GraphProto, alone: Callable[[onnx.NodeProto], bool]) -> list[Segment]:
    """Segments in the order of the graph, which ONNX promises to be one that runs."""
    groups: list[tuple[list[Any], bool]] = []
    for node in graph.node:
        if alone(node):
            groups.append(([node], True))
        elif groups and not groups[-1][1]:
            groups[-1][0].append(node)
        else:
            groups.append(([node], False))
    stored = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    needs = [{n for node in nodes for n in referenced(node)} for nodes, _ in groups]
    results = {o.name for o in graph.output}
    known = {i.name for i in graph.input} - stored
    found = []
    for index, (nodes, single) in enumerate(groups):
        made = {o for node in nodes for o in node.output if o}
        wanted = results.union(*needs[index + 1 :])
        found.append(
            Segment(
                tuple(nodes),
                tuple(sorted((needs[index] & known) - made)),
                tuple(sorted(made & wanted)),
                tuple(sorted(needs[index] & stored)),
                nodes[0] if single else None,
            )
        )
        known |= made
    return found


def referenced(node: onnx.NodeProto) -> Iterable[str]:
    """Every name that a node reads, subgraphs included; names of values inside of those are among them."""
    yield from (n for n in node.input if n)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (o.name for o in graph.output)
            for inner in graph.node:
                yield from referenced(inner)
