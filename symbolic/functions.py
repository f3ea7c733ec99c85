"""Fallback bodies: an operator as standard ONNX operators, attached to the model as a local function.

A body is a Python function that is run once per kind of node, with a builder::

    @swish.body
    def _(op, x, beta):
        return op.Mul(x, op.Sigmoid(op.Mul(x, beta)))

`op.Mul(...)` adds a standard node. Tensors know their `dtype` and `rank`; an absent optional input is None.
Attributes arrive as their Python values: handed on as they are they stay references to the node's attribute;
used in Python (`if causal:`, `1 / n`) they become constants of the body. Nodes that differ in what the body
looked at get separate functions, told apart by ONNX's `overload` name, so none is ever run with another's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from . import dtypes
from .attributes import decode_attribute
from .body_builder import BodyBuilder, Tensor, named
from .declared_functions import call_with, checked_result

if TYPE_CHECKING:
    import onnx_ir as ir

    from .operator import Operator

# Standard operators whose results differ from run to run.
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

__all__ = ["BodyBuilder", "Tensor", "attach", "build"]


def attach(model: ir.Model, operators: Mapping[tuple[str, str], Operator]) -> None:
    """Give every custom node of the model that has a body its function; equal bodies are shared.

    The body's opset is the model's. Raises DeclarationError where a body fails, with the operator's name.
    """
    import onnx_ir as ir

    opset = model.opset_imports[""]
    seen: dict[tuple[str, str], list[tuple[str, bytes]]] = {}
    for node in model.graph.all_nodes():
        op = operators.get((node.domain, node.op_type))
        if op is None or op.body_function is None:
            continue
        function = build(op, node, opset)
        text = ir.to_proto(function).SerializeToString(deterministic=True)
        known = seen.setdefault((op.domain, op.op_type), [])
        overload = next((o for o, t in known if t == text), None)
        if overload is None:
            overload = "" if not known else f"v{len(known) + 1}"
            known.append((overload, text))
            function.overload = overload
            model.functions[function.identifier()] = function
        node.overload = overload
        model.opset_imports[op.domain] = op.version


def build(op: Operator, node: ir.Node, opset: int) -> ir.Function:
    """The local function for one node of an operator."""
    import onnx_ir as ir

    builder = BodyBuilder(opset)
    attributes = {a.name: a.value for a in node.attributes.values()}
    formal: list[ir.Value] = []

    def enter(value: ir.Value | None, k: int) -> Tensor | None:
        made = ir.Value(name=f"x{k}")
        formal.append(made)
        if value is None:
            return None
        dtype = None if value.dtype is None else dtypes.name_of(int(value.dtype))
        return Tensor(made, dtype, None if value.shape is None else len(value.shape))

    flat = [enter(v, k) for k, v in enumerate(node.inputs)]
    tensors = op.interface.unflatten(flat, attributes)
    arguments = dict(tensors)
    for a in op.interface.attributes:
        value = attributes.get(a.name)
        arguments[a.name] = (
            named(a, list(value) if isinstance(value, tuple) else value)
            if a.kind != "ScalarType"
            else decode_attribute(a, value)
        )
    assert op.body_function is not None
    ordered = {n: arguments[n] for n in op.interface.arguments}
    try:
        result = call_with(op.body_function, (builder,), ordered, op.interface.keyword_only)
    except DeclarationError as e:
        raise DeclarationError(f"{op.name}: body: {e}") from None
    except Exception as e:
        raise DeclarationError(f"{op.name}: body: {type(e).__name__}: {e}") from e
    _refuse_random(op, builder)
    results = _results(op, result, len(node.outputs))
    _refuse_other_dtypes(op, results, node)
    outputs = []
    for r in results:  # an input or a value returned twice needs a name of its own
        if r.value in formal or r.value in outputs:
            r = builder.Identity(r)
        outputs.append(r.value)
    graph = ir.Graph(formal, outputs, nodes=builder.nodes, opset_imports={"": opset}, name=op.op_type)
    return ir.Function(
        op.domain,
        op.op_type,
        graph=graph,
        attributes=[
            ir.Attr(a.name, a.type, None)
            for a in sorted(node.attributes.values(), key=lambda a: a.name)
            if a.name in attributes
        ],
    )


def _refuse_random(op: Operator, builder: BodyBuilder) -> None:
    random = [n.op_type for n in builder.nodes if n.op_type in _RANDOM]
    if random and not op.stateful:
        raise DeclarationError(
            f"{op.name}: body: op.{random[0]} is random: declare the operator with `stateful=True`, or equal nodes "
            "would be merged and constants folded"
        )


def _results(op: Operator, result: Any, count: int) -> list[Tensor]:
    """What the body returned, one tensor for each output of the node."""
    outputs = op.interface.outputs
    returns = [(o.name, o.form == "variadic") for o in outputs]
    if len(returns) == 1 and isinstance(result, (tuple, list)) and len(result) == 1 and not returns[0][1]:
        result = result[0]
    try:
        result = checked_result(op.name, "body", result, returns, Tensor)
    except DeclarationError as e:
        written = any(o.mutates for o in outputs) and any(not o.mutates for o in outputs)
        order = ": first what it returns, then what it writes into its arguments" if written else ""
        raise DeclarationError(f"{e}{order}") from None
    results = [result] if isinstance(result, Tensor) else list(result)
    flat = [t for r in results for t in (r if isinstance(r, (list, tuple)) else [r])]
    if len(flat) != count:
        raise DeclarationError(
            f"{op.name}: the body returned {len(flat)} tensors; this node has {count} outputs"
        )
    return flat


def _refuse_other_dtypes(op: Operator, results: Sequence[Tensor], node: ir.Node) -> None:
    """A result in another dtype than the operator's own: a runtime would refuse the model, or worse, not."""
    for k, (r, value) in enumerate(zip(results, node.outputs, strict=True)):
        if r.dtype is None or value.dtype is None:
            continue
        expected = dtypes.name_of(int(value.dtype))
        if r.dtype != expected:
            outputs = op.interface.outputs
            name = outputs[k].name if k < len(outputs) else f"output {k}"
            raise DeclarationError(
                f"{op.name}: the body returned `{name}` in {r.dtype}, where the operator's is {expected}: "
                f"convert it back, `op.cast({name}, x.dtype)`"
            )
