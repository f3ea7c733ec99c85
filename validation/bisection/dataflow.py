"""An ONNX graph as nodes and the values between them: who makes a value, who reads it, where the graph can be cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...symbolic.nested_graphs import graphs_within

if TYPE_CHECKING:
    import onnx

__all__ = ["Dataflow", "Part", "reads_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that are run alone: `nodes` by position in the graph, from the values `given` to the values `wanted`."""

    nodes: tuple[int, ...]
    given: tuple[str, ...]
    wanted: tuple[str, ...]


class Dataflow:
    """The main graph of a model. Bodies of control flow belong to their node.

    Attributes:
        nodes: in the order of the file, which ONNX requires to be one of execution.
        made_by: position of the node that makes a value.
        inputs, outputs: names; initializers are no inputs here.
        stored: initializers by name.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.model = model
        self.nodes = list(graph.node)
        self.made_by = {name: k for k, node in enumerate(self.nodes) for name in node.output if name}
        self.stored: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = {
            t.name: t for t in graph.initializer
        } | {t.values.name: t for t in graph.sparse_initializer}
        self.inputs = [i.name for i in graph.input if i.name not in self.stored]
        self.outputs = [o.name for o in graph.output]
        self.reads = [tuple(dict.fromkeys(reads_of(node))) for node in self.nodes]

    @cached_property
    def constant(self) -> frozenset[str]:
        """Values that depend on no input of the model: initializers, and what is computed from them alone."""
        found = set(self.stored)
        for node, reads in zip(self.nodes, self.reads, strict=True):
            if all(name in found for name in reads) and not node.op_type.startswith("Random"):
                found.update(name for name in node.output if name)
        return frozenset(found)

    def needed(self, names: Iterable[str]) -> set[str]:
        """Every value that `names` depend on, themselves included."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            if name in self.made_by:
                todo += self.reads[self.made_by[name]]
        return found

    def part(self, wanted: Iterable[str], known: Mapping[str, object] | frozenset[str] | set[str]) -> Part:
        """What computes `wanted` from the values `known`, which are not computed again."""
        wanted = tuple(wanted)
        nodes: set[int] = set()
        given: dict[str, None] = {}
        todo = [self.made_by[name] for name in wanted if name in self.made_by]
        while todo:
            k = todo.pop()
            if k in nodes:
                continue
            nodes.add(k)
            for name in self.reads[k]:
                if name in self.stored:
                    continue
                if name in known or name not in self.made_by:
                    given[name] = None
                else:
                    todo.append(self.made_by[name])
        order = {name: i for i, name in enumerate(self.inputs)}
        names = sorted(given, key=lambda n: (self.made_by.get(n, -1), order.get(n, 0), n))
        return Part(tuple(sorted(nodes)), tuple(names), wanted)

    def whole(self, wanted: Iterable[str] = ()) -> Part:
        """All nodes, with further values as outputs."""
        more = [name for name in dict.fromkeys(wanted) if name not in self.outputs]
        return Part(tuple(range(len(self.nodes))), tuple(self.inputs), (*self.outputs, *more))

    def cuts(self, known: Mapping[str, object]) -> list[int]:
        """Positions at which the graph can be cut: every value made before and read at or after is known."""
        last: dict[str, int] = {}
        for k, reads in enumerate(self.reads):
            for name in reads:
                if name in self.made_by and name not in self.constant:
                    last[name] = k
        found, open_until = [0], -1
        for k, node in enumerate(self.nodes):
            for name in node.output:
                if name and name not in known:
                    open_until = max(open_until, last.get(name, -1))
            if open_until <= k:
                found.append(k + 1)
        if found[-1] != len(self.nodes):
            found.append(len(self.nodes))
        return found

    def frontier(self, cut: int, goal: set[str]) -> list[str]:
        """The values made before `cut` that are read at or after it, or are outputs; those that `goal` needs."""
        later = {name for reads in self.reads[cut:] for name in reads} | set(self.outputs)
        return [
            name
            for node in self.nodes[:cut]
            for name in node.output
            if name in later and name in goal and name not in self.constant
        ]


def reads_of(node: onnx.NodeProto) -> Iterator[str]:
    """The values a node reads, those that its subgraphs take from outside included."""
    yield from (name for name in node.input if name)
    for graph in graphs_within(node):
        own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output}
        for inner in graph.node:
            yield from (name for name in reads_of(inner) if name not in own)
        yield from (o.name for o in graph.output if o.name not in own)
