"""What each node of a model asks of a runtime: operator, version, element types, attributes; read without torch.

Versions follow ONNX Runtime. The last of several imports of a domain holds. Inside a model-local function the model's
imports hold, and the function's own only for domains that the model does not import. A body is used where the runtime
has nothing of its own for the node (`Native`).

A file may be hostile: levels of subgraphs, variants of functions and nodes inside of functions are bounded. What was left
out because of it is said in `ModelUses.incomplete`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..nested_graphs import named_graphs_within
from .standard_types import as_text, dtype_name, output_dtypes, schema_at

if TYPE_CHECKING:
    import onnx

__all__ = [
    "Call",
    "DeclaredOtherwise",
    "GraphUses",
    "ModelUses",
    "Native",
    "NodeUse",
    "domain_key",
    "model_uses",
    "opset_versions",
    "placed_graphs",
]

FunctionKey = tuple[str, str, str]  # domain, name, overload
MOST_LEVELS = 40  # protobuf itself reads about 33 levels of graphs in graphs
MOST_VARIANTS = 2_000  # a function read once for each combination of input types
MOST_FUNCTION_NODES = 300_000


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node, in the terms in which kernels are looked up.

    Attributes:
        domain_version: what the opset imports that hold there say; None where they do not list the domain.
        inputs: element types, by torch's names; None where one is unknown, or the input absent.
        absent: places of inputs that are absent (`''`) before the last one.
        outputs: how many.
        attributes: name -> FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, ...
        produces: element types of the outputs, as far as they are known.
        has_body: a model-local function of that name stands in the file.
        name, result: the node's name and that of its first result; a node need not have a name.
        place: where it stands: "" in the main graph, "function f::F", "then_branch of 'if1'", ...
        node: itself, for those that look at values of attributes.
    """

    domain: str
    op_type: str
    domain_version: int | None
    inputs: tuple[str | None, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    outputs: int = 1
    absent: tuple[int, ...] = ()
    produces: tuple[str | None, ...] = ()
    has_body: bool = False
    name: str = ""
    place: str = ""
    result: str = ""
    node: onnx.NodeProto | None = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """`domain::Type`, or the bare type of a standard operator."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, slots=True)
class GraphUses:
    """A graph of the model, functions apart: where it stands, its values' types, and its nodes of other domains.

    `custom`: index in `graph.node` -> node. `opset`: of the standard operators.
    """

    place: str
    opset: int | None
    graph: onnx.GraphProto
    types: Mapping[str, str | None]
    custom: Mapping[int, NodeUse]


@dataclass(frozen=True, slots=True)
class DeclaredOtherwise:
    """A result that the file says is of the element type `declared`, and that its node makes as `made`."""

    use: NodeUse
    name: str
    declared: str
    made: str


@dataclass(frozen=True, slots=True)
class ModelUses:
    """Every node of a model that a runtime would look up.

    `graphs`: the main graph, then its subgraphs. `called`: functions that were read. `incomplete`: what was not read, and
    why. `recursive`: functions that call themselves. `declared_otherwise`: results of nodes of graphs for which the file states
    another element type than the node makes.
    """

    uses: Sequence[NodeUse]
    graphs: Sequence[GraphUses]
    called: frozenset[FunctionKey] = frozenset()
    incomplete: Sequence[str] = ()
    recursive: Sequence[str] = ()
    declared_otherwise: Sequence[DeclaredOtherwise] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A node of a domain that is not the standard's, as it is looked up. `body`: its model-local function."""

    domain: str
    op_type: str
    version: int | None
    inputs: tuple[str | None, ...]
    node: onnx.NodeProto
    body: onnx.FunctionProto | None


# The element types of a node's outputs where the runtime has a kernel or plugin for it; None where it has none, or takes
# the body all the same.
Native = Callable[[Call], "Sequence[str | None] | None"]


def model_uses(model: onnx.ModelProto, native: Native = lambda call: None) -> ModelUses:
    """The nodes of the graph, its subgraphs, and the functions that they call, with the types and what was not read.

    A function is read with the element types of each call; one in whose place something native runs is not read.
    """
    walk = _Walk(model, native)
    walk.graph(model.graph, [], opset_versions(model.opset_import), "", 0)
    return ModelUses(
        walk.uses,
        walk.graphs,
        walk.called(),
        tuple(dict.fromkeys(walk.incomplete)),
        tuple(dict.fromkeys(walk.recursive)),
        walk.declared_otherwise,
    )


def opset_versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Domain -> version; of several entries for one domain the last, as ONNX Runtime takes it."""
    return {domain_key(o.domain): o.version for o in imports}


def domain_key(domain: str) -> str:
    """The default domain has two spellings."""
    return "" if domain == "ai.onnx" else as_text(domain)


def placed_graphs(node: onnx.NodeProto, place: str) -> Iterator[tuple[onnx.GraphProto, str]]:
    """The graphs of a node that stands in `place`, each with its own: "then_branch of 'if1', body of 'loop'"."""
    for name, graph in named_graphs_within(node):
        inner = f"{as_text(name)} of {as_text(node.name or node.op_type)!r}"
        yield graph, f"{inner}, {place if len(place) < 80 else '…'}" if place else inner


class _Walk:
    def __init__(self, model: onnx.ModelProto, native: Native) -> None:
        self.uses: list[NodeUse] = []
        self.graphs: list[GraphUses] = []
        self.incomplete: list[str] = []
        self.recursive: list[str] = []
        self.declared_otherwise: list[DeclaredOtherwise] = []
        self._imports = opset_versions(model.opset_import)
        self._functions: dict[FunctionKey, onnx.FunctionProto] = {
            (domain_key(f.domain), as_text(f.name), as_text(f.overload)): f for f in model.functions
        }
        self._native = native
        self._variants: dict[
            tuple[FunctionKey, tuple[str | None, ...], frozenset[str]], list[str | None] | None
        ] = {}
        self._function_nodes = 0
        self._function_imports: dict[FunctionKey, dict[str, int]] = {}
        self._names = _attribute_types()

    def called(self) -> frozenset[FunctionKey]:
        return frozenset(function for function, *_ in self._variants)

    def graph(
        self,
        graph: onnx.GraphProto,
        outer: Sequence[dict[str, str | None]],
        imports: Mapping[str, int],
        place: str,
        level: int,
    ) -> dict[str, str | None]:
        """Note the nodes of a graph; its values' types."""
        types: dict[str, str | None] = {t.name: dtype_name(t.data_type) for t in graph.initializer}
        for values in (graph.input, graph.value_info, graph.output):
            for value in values:
                if dtype := dtype_name(value.type.tensor_type.elem_type):
                    types[value.name] = dtype
        custom: dict[int, NodeUse] = {}
        self.graphs.append(GraphUses(place, imports.get(""), graph, types, custom))
        self._nodes(graph.node, [types, *outer], imports, place, level, custom)
        return types

    def _nodes(
        self,
        nodes: Iterable[onnx.NodeProto],
        scopes: Sequence[dict[str, str | None]],
        imports: Mapping[str, int],
        place: str,
        level: int,
        custom: dict[int, NodeUse],
        absent: frozenset[str] = frozenset(),
    ) -> None:
        """`absent`: names that stand for nothing, as inputs of a function that a call leaves out do."""
        types = scopes[0]
        for index, node in enumerate(nodes):
            inputs = tuple([_find(name, scopes) if name else None for name in node.input])
            domain = domain_key(node.domain)
            version = imports.get(domain)
            op_type = as_text(node.op_type)
            key = (domain, op_type, as_text(node.overload)) if domain else ("", "", "")
            body = self._functions.get(key) if domain else None
            inner = self._subgraphs(node, scopes, imports, place, level) if node.attribute else ()
            if domain:
                outputs = self._custom_outputs(Call(domain, op_type, version, inputs, node, body), level)
            else:
                outputs = self._standard_outputs(node, version, inputs, inner)
            produces, otherwise = [], []
            for name, dtype in zip_longest(node.output, outputs[: len(node.output)]):
                known = types.get(name) or dtype
                if name and known and dtype and known != dtype and "function " not in place:
                    otherwise.append((as_text(name), known, dtype))
                produces.append(known)
                types[name] = known
            use = NodeUse(
                domain,
                op_type,
                version,
                inputs,
                {as_text(a.name): self._names.get(a.type, "UNDEFINED") for a in node.attribute},
                len(node.output),
                tuple([k for k, name in enumerate(node.input) if not name or name in absent]),
                tuple(produces),
                body is not None,
                as_text(node.name),
                place,
                as_text(next(iter(node.output), "")),
                node,
            )
            self.uses.append(use)
            self.declared_otherwise += [DeclaredOtherwise(use, *each) for each in otherwise]
            if domain:
                custom[index] = use

    def _subgraphs(
        self,
        node: onnx.NodeProto,
        scopes: Sequence[dict[str, str | None]],
        imports: Mapping[str, int],
        place: str,
        level: int,
    ) -> list[list[str | None]]:
        """Read a node's graphs; the types of their outputs."""
        found: list[list[str | None]] = []
        for graph, where in placed_graphs(node, place):
            if level >= MOST_LEVELS:
                self.incomplete.append(f"graphs inside of more than {MOST_LEVELS} others")
                continue
            types = self.graph(graph, scopes, imports, where, level + 1)
            found.append([types.get(o.name) or _find(o.name, scopes) for o in graph.output])
        return found

    def _standard_outputs(
        self,
        node: onnx.NodeProto,
        version: int | None,
        inputs: Sequence[str | None],
        inner: Sequence[Sequence[str | None]],
    ) -> Sequence[str | None]:
        if inner and node.op_type == "If":  # of two branches one may tell what the other does not
            return [next((d for d in same if d), None) for same in zip_longest(*inner)]
        if inner:
            return inner[0][1:] if node.op_type == "Loop" else inner[0]
        schema = schema_at(node.op_type, version) if version else None
        return output_dtypes(node, schema, inputs) if schema else ()

    def _custom_outputs(self, call: Call, level: int) -> Sequence[str | None]:
        native = self._native(call)
        if native is not None:
            return native
        return () if call.body is None else self._function_outputs(call, call.body, level)

    def _function_outputs(self, call: Call, function: onnx.FunctionProto, level: int) -> Sequence[str | None]:
        """Read a function with the types of this call, once; the types of its outputs."""
        given = [name for name, _ in zip(call.node.input, function.input, strict=False)]
        absent = frozenset(
            own for name, own in zip_longest(given, function.input) if own is not None and not name
        )
        key = ((call.domain, call.op_type, as_text(function.overload)), call.inputs, absent)
        title = f"{call.domain}::{call.op_type}"
        if key in self._variants:
            known = self._variants[key]
            if known is None:
                self.recursive.append(title)
            return known or ()
        self._function_nodes += len(function.node) + len(function.value_info)
        if len(self._variants) >= MOST_VARIANTS or self._function_nodes > MOST_FUNCTION_NODES:
            self.incomplete.append("functions that are called with very many combinations of types")
            return ()
        if level >= MOST_LEVELS:
            self.incomplete.append(f"functions inside of more than {MOST_LEVELS} others")
            return ()
        self._variants[key] = None
        if key[0] not in self._function_imports:
            own = opset_versions(function.opset_import)
            self._function_imports[key[0]] = {d: self._imports.get(d, version) for d, version in own.items()}
        imports = self._function_imports[key[0]]
        types = dict(zip_longest(function.input, call.inputs[: len(function.input)]))
        for value in function.value_info:
            types.setdefault(value.name, dtype_name(value.type.tensor_type.elem_type))
        self._nodes(function.node, [types], imports, f"function {title}", level + 1, {}, absent)
        outputs = [types.get(name) for name in function.output]
        self._variants[key] = outputs
        return outputs


def _find(name: str, scopes: Sequence[Mapping[str, str | None]]) -> str | None:
    for types in scopes:
        if name in types:
            return types[name]
    return None


@lru_cache(maxsize=1)
def _attribute_types() -> dict[int, str]:
    import onnx

    return {number: name for name, number in onnx.AttributeProto.AttributeType.items()}
