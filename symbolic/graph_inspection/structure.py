"""Graphs that do not hang together: what nothing makes, what is made twice, cycles. ONNX Runtime opens none of them.

The rules are ONNX Runtime's; TensorRT's are milder in the order of subgraphs and the names of nodes. Nodes of the main graph
may stand in any order, those of a subgraph must be in the order in which they run. Values of enclosing graphs can be read,
and not made again where they are inputs or initializers there.
Model-local functions are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from .findings import FAILS, Finding, where
from .node_uses import MOST_LEVELS, NodeUse, domain_key, placed_graphs
from .standard_types import as_text

if TYPE_CHECKING:
    import onnx

__all__ = ["structure_findings"]

_SHOWN = 4  # nodes of a cycle in a message


def structure_findings(model: onnx.ModelProto) -> list[Finding]:
    """Of the main graph and its subgraphs, in time linear in their size."""
    walk = _Walk()
    walk.graph(model.graph, "", [], checked=False)
    return walk.findings


class _Scope:
    """The names of one graph: `given`, its inputs and initializers, and `made`, name -> index of the node."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.given = {value.name for value in graph.input}
        self.given.update(t.name for t in graph.initializer)
        self.given.update(t.values.name for t in graph.sparse_initializer)
        self.made: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.made or name in self.given


class _Walk:
    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def graph(
        self, graph: onnx.GraphProto, place: str, enclosing: Sequence[_Scope], *, checked: bool
    ) -> set[str]:
        """Note a graph's faults; the names that it reads from the graphs around it.

        `checked`: it belongs to a standard node, whose graphs ONNX Runtime holds against stricter rules.
        """
        scope = _Scope(graph)
        self._definitions(graph, scope, place, enclosing if checked else ())
        scopes = [scope, *enclosing]
        outside: set[str] = set()
        needs: list[list[int]] = []  # of each node, the nodes whose values it reads
        unordered = []
        for k, node in enumerate(graph.node):
            for name in node.input:
                if name and not any(name in s for s in scopes):
                    what = f"nothing makes {as_text(name)!r}, which {as_text(node.op_type)} reads here"
                    self._fault(
                        "input-not-made", _where(node, place), what, "Export again, or correct the name"
                    )
            read = {name for name in node.input if name}
            for inner, inner_place in placed_graphs(node, place) if len(scopes) <= MOST_LEVELS else ():
                strict = checked or not domain_key(node.domain)
                read |= self.graph(inner, inner_place, scopes, checked=strict)
            needs.append([scope.made[name] for name in read if name in scope.made])
            outside.update(name for name in read if name not in scope)
            if any(need >= k for need in needs[k]):
                unordered.append(k)
        cycle = _cycle(needs) if unordered else []
        if cycle:
            names = [_where(graph.node[k]) for k in cycle[:_SHOWN]]
            more = f" and {len(cycle) - _SHOWN} more" if len(cycle) > _SHOWN else ""
            what = f"the graph has a cycle: each of these nodes needs the result of another: {', '.join(names)}{more}"
            self._fault("cycle", place, what, "Export again: a graph must have no cycle")
        elif unordered and checked:
            node = graph.node[unordered[0]]
            what = f"{as_text(node.op_type)} stands before the node whose result it reads; in a subgraph it must stand after"
            self._fault("subgraph-order", _where(node, place), what, "Sort the nodes of the subgraph")
        for value in graph.output:
            if value.name not in scope:
                what = f"nothing makes the output {as_text(value.name)!r} of the graph"
                if any(value.name in s for s in enclosing):
                    what += ": it is of a graph around it, and an Identity is needed"
                self._fault("output-not-made", place, what, "Export again, or correct the name")
        return outside

    def _definitions(
        self, graph: onnx.GraphProto, scope: _Scope, place: str, enclosing: Sequence[_Scope]
    ) -> None:
        own_name = "Give each value a name of its own"
        inputs: set[str] = set()
        for value in graph.input:
            if value.name in inputs:
                self._fault("value-twice", place, f"two inputs are named {as_text(value.name)!r}", own_name)
            inputs.add(value.name)
        names: set[str] = set()
        for k, node in enumerate(graph.node):
            if not node.op_type:
                what = "the node does not say which operator it is"
                self._fault("no-operator", _where(node, place), what, "Export again: the file is damaged")
            if node.name and node.name in names:
                what = "another node of the same graph has the same name"
                self._fault(
                    "node-name-twice", _where(node, place), what, "Give each node its own name, or none"
                )
            names.add(node.name)
            for name in node.output:
                if not name:
                    continue
                if name in scope.made:
                    other = "itself" if scope.made[name] == k else _where(graph.node[scope.made[name]])
                    what = f"{as_text(name)!r} is defined twice: it is made here, and by {other}"
                    self._fault("value-twice", _where(node, place), what, own_name)
                elif name in scope.given or any(name in s.given for s in enclosing):
                    what = (
                        f"{as_text(name)!r} is defined twice: it is made here, and is an input or initializer"
                    )
                    self._fault("value-twice", _where(node, place), what, own_name)
                scope.made.setdefault(name, k)

    def _fault(self, kind: str, place: str, what: str, advice: str) -> None:
        self.findings.append(Finding(FAILS, kind, place, what, advice))


def _cycle(needs: Sequence[Sequence[int]]) -> list[int]:
    """The nodes of one cycle; none where the nodes can be put in an order."""
    waits = [len(need) for need in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for k, need in enumerate(needs):
        for maker in need:
            readers[maker].append(k)
    ready = [k for k, count in enumerate(waits) if not count]
    while ready:
        for reader in readers[ready.pop()]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    left = {k for k, count in enumerate(waits) if count}
    return _walk_back(needs, left) if left else []


def _walk_back(needs: Sequence[Sequence[int]], left: Set[int]) -> list[int]:
    """Each node that is left needs another one that is, so that going back comes round."""
    at, seen = min(left), dict[int, int]()
    while at not in seen:
        seen[at] = len(seen)
        at = next(need for need in needs[at] if need in left)
    return list(seen)[seen[at] :]


def _where(node: onnx.NodeProto, place: str = "") -> str:
    result = as_text(next((name for name in node.output if name), ""))
    return where(NodeUse("", "", None, name=as_text(node.name), place=place, result=result, node=node))
