"""The process of `shape_faults.py`: it reads a model without its weights and prints what shape inference refuses.

Each line begins with `@` and the operator that is next, or is a JSON object: `{"where", "what"}`, and `{"done"}` at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import onnx
from onnx import shape_inference

from .domains import STANDARD
from .expansion import FunctionKey
from .findings import where
from .node_uses import MOST_LEVELS, NodeUse, domain_key, opset_versions, placed_graphs
from .standard_types import as_text

__all__ = ["ShapeInference", "main"]

_MEMORY = 4 << 30
_MOST_NODES = 200_000  # functions as often as they are called
_LONGEST = 300  # characters of a text

Types = dict[str, onnx.TypeProto]
Data = dict[str, onnx.TensorProto]


def main() -> None:
    """Read the model from standard input, and infer."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    model = onnx.ModelProto()
    model.ParseFromString(sys.stdin.buffer.read())
    inference = ShapeInference(model)
    inference.run()
    _print(json.dumps({"done": True, "partly": inference.partly}))


def _print(line: str) -> None:
    """At once: what comes next may end the process."""
    os.write(1, f"{line}\n".encode(errors="replace"))


class ShapeInference:
    """Carries types and shapes forward, node by node."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.partly = ""
        self._model = model
        self._imports = opset_versions(model.opset_import)
        self._functions: dict[FunctionKey, onnx.FunctionProto] = {
            (domain_key(f.domain), as_text(f.name), as_text(f.overload)): f for f in model.functions
        }
        # for schemas of ONNX no other domains matter, and a file may list any number of them
        self._opsets = [onnx.helper.make_opsetid(d, v) for d, v in self._imports.items() if d in STANDARD]
        self._function_imports: dict[FunctionKey, dict[str, int]] = {}
        self._count = 0

    def run(self) -> None:
        self._graph(self._model.graph, [], [], self._imports, "", 0)

    def _graph(
        self,
        graph: onnx.GraphProto,
        outer: Sequence[Types],
        outer_data: Sequence[Data],
        imports: Mapping[str, int],
        place: str,
        level: int,
    ) -> None:
        given = {v.name for v in graph.input}
        types: Types = {
            t.name: onnx.helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer
        }
        types |= {v.name: v.type for v in graph.input if v.type.WhichOneof("value")}
        # an initializer that is an input too is not constant: the caller may give another
        data: Data = {t.name: t for t in graph.initializer if t.name not in given and _has_values(t)}
        declared = {v.name: v.type for values in (graph.value_info, graph.output) for v in values}
        self._nodes(graph.node, [types, *outer], [data, *outer_data], declared, imports, place, level)

    def _nodes(
        self,
        nodes: Iterable[onnx.NodeProto],
        scopes: Sequence[Types],
        data: Sequence[Data],
        declared: Mapping[str, onnx.TypeProto],
        imports: Mapping[str, int],
        place: str,
        level: int,
    ) -> None:
        for node in nodes:
            self._count += 1
            if self._count > _MOST_NODES:
                self.partly = f"with its functions the model has more than {_MOST_NODES:,}"
                return
            made = self._node(node, scopes, data, imports, place, level)
            for name in node.output:
                kind = _merged(made.get(name), declared.get(name))
                if name and kind is not None:
                    scopes[0][name] = kind
            if node.op_type == "Constant" and not node.domain and node.output:
                values = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
                if values is not None and _has_values(values):
                    data[0][node.output[0]] = values

    def _node(
        self,
        node: onnx.NodeProto,
        scopes: Sequence[Types],
        data: Sequence[Data],
        imports: Mapping[str, int],
        place: str,
        level: int,
    ) -> Mapping[str, onnx.TypeProto]:
        domain = domain_key(node.domain)
        function = self._functions.get((domain, as_text(node.op_type), as_text(node.overload)))
        if function is not None and domain:
            return self._call(node, function, scopes, data, level)
        inner = list(placed_graphs(node, place)) if node.attribute else []
        for graph, inside in inner:
            if level < MOST_LEVELS:
                self._graph(graph, scopes, data, imports, inside, level + 1)
        if inner:
            return {}
        types = {name: _found(name, scopes) for name in node.input if name}
        version = imports.get(domain)
        if version is None or None in types.values():
            return {}
        try:
            schema = onnx.defs.get_schema(node.op_type, version, domain)
        except (onnx.defs.SchemaError, TypeError, OverflowError):
            return {}
        known = {name: values for name in types if (values := _found(name, data)) is not None}
        _print(f"@{as_text(node.op_type)[:80]!r}")
        try:
            return shape_inference.infer_node_outputs(
                schema,
                node,
                types,
                known,
                opset_imports=self._opsets,
                ir_version=self._model.ir_version,
            )
        except shape_inference.InferenceError as error:
            self._report(node, place, str(error))
        except Exception:  # the node is wrong in another way, which the other checks tell
            pass
        return {}

    def _call(
        self,
        node: onnx.NodeProto,
        function: onnx.FunctionProto,
        scopes: Sequence[Types],
        data: Sequence[Data],
        level: int,
    ) -> Mapping[str, onnx.TypeProto]:
        if level >= MOST_LEVELS:
            return {}
        types: Types = {}
        values: Data = {}
        for own_name, name in zip(function.input, node.input, strict=False):
            kind, constant = _found(name, scopes), _found(name, data)
            if kind is not None:
                types[own_name] = kind
            if constant is not None:
                values[own_name] = constant
        attributes = {a.name: a for a in (*function.attribute_proto, *node.attribute)}
        body = [_bound(inner, attributes) for inner in function.node]
        key = (domain_key(node.domain), as_text(node.op_type), as_text(node.overload))
        if key not in self._function_imports:
            own = opset_versions(function.opset_import)
            self._function_imports[key] = {d: self._imports.get(d, version) for d, version in own.items()}
        imports = self._function_imports[key]
        self._count += len(function.value_info)
        declared = {v.name: v.type for v in function.value_info}
        title = f"function {domain_key(node.domain)}::{as_text(node.op_type)}"
        self._nodes(body, [types], [values], declared, imports, title, level + 1)
        pairs = zip_longest(node.output, function.output)
        return {name: types[inner] for name, inner in pairs if name and inner in types}

    def _report(self, node: onnx.NodeProto, place: str, text: str) -> None:
        text = " ".join(text.split())
        name = as_text(node.name)
        result = as_text(next(iter(node.output), ""))
        use = NodeUse("", "", None, name=name, place=place, result=result, node=node)
        what = f"{as_text(node.op_type)} does not fit its inputs: {text}"
        _print(json.dumps({"where": where(use), "what": what[:_LONGEST]}))


def _found(name: str, scopes: Sequence[Mapping[str, Any]]) -> Any:
    return next((scope[name] for scope in scopes if name in scope), None)


def _has_values(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location != onnx.TensorProto.EXTERNAL


def _bound(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function with the attributes that the call gives it."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    own = onnx.NodeProto()
    own.CopyFrom(node)
    del own.attribute[:]
    for a in node.attribute:
        given = attributes.get(a.ref_attr_name) if a.ref_attr_name else a
        if given is not None:
            own.attribute.add().CopyFrom(given)
            own.attribute[-1].name = a.name
    return own


def _merged(made: onnx.TypeProto | None, declared: onnx.TypeProto | None) -> onnx.TypeProto | None:
    """What is inferred, completed by what the file states."""
    if made is None or made.WhichOneof("value") is None:
        return declared if declared is not None and declared.WhichOneof("value") else None
    if declared is None or not made.HasField("tensor_type") or not declared.HasField("tensor_type"):
        return made
    stated, own = declared.tensor_type, made.tensor_type
    if not own.elem_type:
        own.elem_type = stated.elem_type
    if stated.HasField("shape") and not own.HasField("shape"):
        own.shape.CopyFrom(stated.shape)
    elif len(stated.shape.dim) == len(own.shape.dim):
        for dim, other in zip(own.shape.dim, stated.shape.dim, strict=True):
            if not dim.HasField("dim_value") and other.HasField("dim_value"):
                dim.dim_value = other.dim_value
    return made
