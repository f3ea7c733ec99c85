"""A graph as the search for cuts needs it: who makes a value, who reads it, what is constant, which sizes are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..nested_graphs import graphs_within, nested_graphs
from .node_uses import GraphUses, domain_key
from .standard_types import dtype_name

if TYPE_CHECKING:
    import onnx

__all__ = ["GraphView", "GraphViews", "attribute"]

# Standard operators that give other results each time, or hold graphs: never folded.
_NEVER_FOLDED = frozenset(
    {
        "Bernoulli", "If", "Loop", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike", "Scan", "SequenceMap",
    }
)  # fmt: skip


class GraphView:
    """One graph, without the graphs inside of its nodes.

    A value that a subgraph reads counts as read by the node that holds the subgraph.
    """

    def __init__(self, graph: onnx.GraphProto, types: Mapping[str, str | None]) -> None:
        self.nodes: Sequence[onnx.NodeProto] = list(graph.node)
        self.types = types
        self.op_types = {node.op_type for node in self.nodes}
        self._made = {name: k for k, node in enumerate(self.nodes) for name in node.output if name}
        self._readers: dict[str, list[int]] = {}
        for k, node in enumerate(self.nodes):
            for name in node.input:
                if name:
                    self._readers.setdefault(name, []).append(k)
            for name in _read_inside(node):
                self._readers.setdefault(name, []).append(k)
        self.results = {o.name for o in graph.output}
        given = {i.name for i in graph.input}
        # an initializer that is an input too can be replaced by the caller: the runtime folds nothing with it
        self._tensors = {t.name: t for t in graph.initializer if t.name not in given}
        self.shapes: dict[str, tuple[int | str, ...]] = {t.name: tuple(t.dims) for t in graph.initializer}
        for values in (graph.input, graph.value_info, graph.output):
            self.shapes |= {v.name: s for v in values if (s := _shape(v)) is not None}
        self.constants = set(self._tensors)
        self._fold()

    def _fold(self) -> None:
        """What ONNX Runtime computes once, when it opens the model."""
        for node in self.nodes:
            if domain_key(node.domain) or node.op_type in _NEVER_FOLDED:
                continue
            if node.op_type == "Constant":
                for a in node.attribute:
                    if a.HasField("t") and node.output:
                        self._tensors[node.output[0]] = a.t
            elif not node.input:
                continue
            if all(not name or name in self.constants for name in node.input):
                self.constants.update(node.output)

    def maker(self, value: str) -> onnx.NodeProto | None:
        """The node that makes a value; None for inputs and initializers."""
        k = self._made.get(value)
        return None if k is None else self.nodes[k]

    def readers(self, value: str) -> Iterator[onnx.NodeProto]:
        return (self.nodes[k] for k in self._readers.get(value, ()))

    def only_reader(self, value: str) -> onnx.NodeProto | None:
        """The one node that reads a value; None where there are several, or it is a result of the graph."""
        readers = self._readers.get(value, ())
        if len(readers) != 1 or value in self.results:
            return None
        return self.nodes[readers[0]]

    def size(self, value: str) -> tuple[int | str, ...] | None:
        """The dims of a constant, or those that the file states; None where they are unknown."""
        tensor = self._tensors.get(value)
        return self.shapes.get(value) if tensor is None else tuple(tensor.dims)

    def rank(self, value: str) -> int | None:
        size = self.size(value)
        return None if size is None else len(size)

    def dtype(self, value: str) -> str | None:
        tensor = self._tensors.get(value)
        return self.types.get(value) if tensor is None else dtype_name(tensor.data_type)

    def is_single_number(self, value: str) -> bool:
        """A constant of one element."""
        tensor = self._tensors.get(value)
        return tensor is not None and all(d == 1 for d in tensor.dims)

    def data_inputs(self, node: onnx.NodeProto) -> list[str]:
        """The inputs that are neither absent nor constant."""
        return [name for name in node.input if name and name not in self.constants]


class GraphViews:
    """The views of a model's graphs, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[GraphUses, GraphView]] = {}

    def of(self, graph: GraphUses) -> GraphView:
        if id(graph) not in self._made:
            self._made[id(graph)] = (graph, GraphView(graph.graph, graph.types))
        return self._made[id(graph)][1]


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """The value of a number, text or list of numbers."""
    for a in node.attribute:
        if a.name == name:
            if a.type == a.INT:
                return a.i
            if a.type == a.INTS:
                return list(a.ints)
            if a.type == a.STRING:
                return a.s.decode(errors="replace")
            return a.f if a.type == a.FLOAT else default
    return default


def _read_inside(node: onnx.NodeProto) -> Iterator[str]:
    """Values that the graphs of a node read, their own included: no harm is done by a name too many."""
    for graph in (each for body in graphs_within(node) for each in nested_graphs(body)):
        for inner in graph.node:
            yield from (name for name in inner.input if name)
        yield from (o.name for o in graph.output)


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)
