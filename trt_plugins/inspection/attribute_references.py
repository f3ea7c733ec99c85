"""Attributes inside of functions that refer to attributes of the function, by what each call gives.

The parser looks one function up. It reads the value by the type that the attribute in the function has, from what the call
gives, or else from the function's defaults. Where there is nothing, nothing of that type, or another reference, it takes zero
or an empty list without a word (asked of the parser of TensorRT-RTX 1.7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.findings import FAILS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse, domain_key
from ...symbolic.graph_inspection.standard_types import as_text
from ...symbolic.nested_graphs import nested_nodes
from .node_attributes import referred_findings, type_name
from .plugin_nodes import PluginNodes

if TYPE_CHECKING:
    import onnx

__all__ = ["reference_findings"]

_MOST_CALLS = 2_000  # of functions, with different attributes
_LONG = 160  # characters of a path of calls
_NOTHING = {"INT": "0", "FLOAT": "0.0", "STRING": "an empty text", "TENSOR": "an empty tensor"}
_ADVICE = "Write the value into the function's node, or export without functions (onnx.inliner puts them where they are called)"


def reference_findings(model: onnx.ModelProto, nodes: PluginNodes) -> Iterator[Finding]:
    """What the parser makes of such attributes, for each call of a function whose attributes differ, by its path."""
    functions = {as_text(f.name): f for f in reversed(model.functions)}  # the parser keeps the first
    yield from _Walk(functions, nodes).findings(model.graph.node)


@dataclass(slots=True)
class _Walk:
    """`named`: by function, the attributes that its nodes refer to. `seen`: functions with the attributes of a call."""

    functions: Mapping[str, onnx.FunctionProto]
    nodes: PluginNodes
    named: dict[str, frozenset[str]] = field(default_factory=dict)
    seen: set[tuple[str, tuple[bytes, ...]]] = field(default_factory=set)

    def findings(self, graph: Iterable[onnx.NodeProto]) -> Iterator[Finding]:
        waiting: deque[tuple[Iterable[onnx.NodeProto], Mapping[str, onnx.AttributeProto] | None, str]]
        waiting = deque([(graph, None, "")])
        while waiting:
            inside, given, place = waiting.popleft()
            for node in nested_nodes(inside):
                for attribute in node.attribute:
                    if attribute.ref_attr_name:
                        yield from self._judge(node, attribute, given, place)
                if not self.nodes.runs_body(node, domain_key(node.domain)):
                    continue
                name = as_text(node.op_type)
                call = self._given(node, self.functions[name])
                key = (
                    name,
                    tuple(call[k].SerializeToString() for k in sorted(self._referred(name) & call.keys())),
                )
                if key in self.seen:
                    continue
                if len(self.seen) >= _MOST_CALLS:
                    what = f"attributes in functions: of more than {_MOST_CALLS:,} different calls they were not looked at"
                    yield Finding(NOTE, "attribute-reference", "", what)
                    return
                self.seen.add(key)
                waiting.append((self.functions[name].node, call, _path(node, place)))

    def _given(self, node: onnx.NodeProto, function: onnx.FunctionProto) -> dict[str, onnx.AttributeProto]:
        defaults = {as_text(a.name): a for a in function.attribute_proto}
        return defaults | {as_text(a.name): a for a in node.attribute}

    def _referred(self, name: str) -> frozenset[str]:
        if name not in self.named:
            self.named[name] = frozenset(
                as_text(a.ref_attr_name)
                for node in nested_nodes(self.functions[name].node)
                for a in node.attribute
                if a.ref_attr_name
            )
        return self.named[name]

    def _judge(
        self,
        node: onnx.NodeProto,
        attribute: onnx.AttributeProto,
        call: Mapping[str, onnx.AttributeProto] | None,
        place: str,
    ) -> Iterator[Finding]:
        domain, operator = domain_key(node.domain), as_text(node.op_type)
        result = as_text(next(iter(node.output), ""))
        use = NodeUse(domain, operator, None, name=as_text(node.name), place=place, result=result, node=node)
        if self.nodes.runs_body(node, domain):
            return  # told at the nodes inside that refer to it
        name, target, kind = as_text(attribute.name), as_text(attribute.ref_attr_name), type_name(attribute)
        of = f"the attribute {name!r} of {use.title} ({kind}) refers to {target!r}"
        taken = _NOTHING.get(kind, "an empty list")
        given = None if call is None else call.get(target)
        if call is None:
            what = f"{of} of a function, and stands in none: TensorRT takes {taken} without a word"
            yield Finding(FAILS, "attribute-reference", where(use), what, "Write the value itself")
        elif given is None:
            what = f"{of}, which the call does not give and the function has no default for: TensorRT takes {taken} without a word"
            yield Finding(FAILS, "attribute-missing", where(use), what, _ADVICE)
        elif given.ref_attr_name:
            what = (
                f"{of}, which is at the call a reference itself, to {as_text(given.ref_attr_name)!r}: TensorRT looks one function "
                f"up, and takes {taken} without a word"
            )
            yield Finding(FAILS, "attribute-reference", where(use), what, _ADVICE)
        elif given.type != attribute.type:
            what = f"{of}, which is {type_name(given)} at the call: TensorRT takes {taken} without a word"
            yield Finding(FAILS, "attribute-type", where(use), what, f"Give {target!r} as {kind}")
        elif not self.nodes.is_standard(use):
            yield from referred_findings(use, self.nodes.runs(node, domain), name, given)


def _path(node: onnx.NodeProto, place: str) -> str:
    """`function f::Inner, called by 'b' in function f::Outer, called by 'a'`."""
    domain = domain_key(node.domain)
    title = f"{domain}::{as_text(node.op_type)}" if domain else as_text(node.op_type)
    caller = as_text(node.name) or as_text(next(iter(node.output), ""))
    own = f"function {title}, called by {caller!r}"
    return f"{own} in {place if len(place) < _LONG else '…'}" if place else own
