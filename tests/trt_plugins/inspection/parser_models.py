"""Small models that TensorRT's parser reads, refuses, or reads as something else; by name.

A plugin `acme::Blur` of version "2" is there, with the fields radius and sizes (INT32); it takes one input of any type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

__all__ = ["MODELS", "PLUGINS", "model", "node"]

PLUGINS = [
    {
        "name": "Blur",
        "version": "2",
        "namespace": "acme",
        "fields": {"radius": "int32", "sizes": {"type": "int32", "default": [1]}},
    }
]
FLOAT, DOUBLE, UINT8, INT16 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.UINT8, TensorProto.INT16
STATED = {"radius": 3, "sizes": [1], "plugin_version": "2", "plugin_namespace": "acme"}
DOMAIN_ONLY = {"radius": 3, "sizes": [1], "plugin_version": "2"}


def value(name: str, dtype: int = FLOAT, shape: Sequence[int | str] | None = (2, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def node(
    op: str = "Blur",
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    *,
    domain: str = "acme",
    overload: str = "",
    **attributes: Any,
) -> onnx.NodeProto:
    made = helper.make_node(op, list(inputs), list(outputs), domain=domain, name="the_node", **attributes)
    if overload:
        made.overload = overload
    return made


def model(
    *nodes: onnx.NodeProto,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    imports: Sequence[tuple[str, int]] = (("", 18), ("acme", 1)),
    weights: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", list(inputs or [value("x")]), list(outputs or [value("y")]), list(weights)
    )
    opsets = [helper.make_opsetid(*i) for i in imports]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def body(
    name: str,
    op: str,
    *,
    inputs: Sequence[str] = ("a",),
    domain: str = "acme",
    overload: str = "",
    attributes: Sequence[str] = (),
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    inner = [helper.make_node(op, ["a"], ["b"])]
    made = helper.make_function(domain, name, list(inputs), ["b"], inner, opsets, list(attributes))
    made.overload = overload
    return made


def cast(source: str, target: str, dtype: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=dtype)


def typed(dtype: int, *nodes: onnx.NodeProto) -> onnx.ModelProto:
    return model(*nodes, inputs=[value("x", dtype)], outputs=[value("y", dtype)])


def branches() -> onnx.ModelProto:
    then, other = (
        helper.make_graph([node(outputs=(name,), **STATED)], name, [], [value(name)]) for name in ("t", "e")
    )
    both = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return model(both, inputs=[value("x"), value("c", TensorProto.BOOL, ())])


# name -> model, the layers that TensorRT-RTX 1.7 makes of it (None: it refuses it), the kinds that inspect finds
MODELS: dict[str, tuple[onnx.ModelProto, list[str] | None, set[str]]] = {
    "found": (model(node(**STATED)), ["PLUGIN_V3"], set()),
    "found by the domain": (model(node(**DOMAIN_ONLY)), ["PLUGIN_V3"], set()),
    "another namespace, the right domain": (
        model(node(**{**STATED, "plugin_namespace": "other"})), ["PLUGIN_V3"], set(),
    ),
    "without a domain": (model(node(domain="", **STATED)), ["PLUGIN_V3"], set()),
    "version as a number": (model(node(**{**STATED, "plugin_version": 2})), None, {"plugin-version"}),
    "no version": (model(node(radius=3, sizes=[1], plugin_namespace="acme")), None, {"plugin-version"}),
    "another name": (model(node("Blurr", **STATED)), None, {"plugin-name"}),
    "no namespace, another domain": (
        model(node(domain="", **DOMAIN_ONLY)), None, {"plugin-namespace"},
    ),
    "a default is taken": (
        model(node(radius=3, plugin_version="2", plugin_namespace="acme")), ["PLUGIN_V3"], {"attribute-missing"},
    ),
    "float for integer": (model(node(**{**STATED, "radius": 3.0})), ["PLUGIN_V3"], {"attribute-type"}),
    "beyond 32 bits": (model(node(**{**STATED, "radius": 2**40})), ["PLUGIN_V3"], {"attribute-range"}),
    "undeclared attribute": (model(node(foo=1, **STATED)), ["PLUGIN_V3"], {"attribute-unknown"}),
    "the standard's name": (model(node("Relu", **STATED)), ["ACTIVATION"], {"standard-name"}),
    "plugin and body": (
        model(node(**STATED), functions=[body("Blur", "Neg", attributes=list(STATED))]), ["PLUGIN_V3"], set(),
    ),
    "plugin by the domain, and a body": (
        model(node(**DOMAIN_ONLY), functions=[body("Blur", "Neg", attributes=list(DOMAIN_ONLY))]),
        ["UNARY"],
        {"body-instead-of-plugin"},
    ),
    "body": (model(node("Nope"), functions=[body("Nope", "Neg")]), ["UNARY"], set()),
    "body of another domain": (
        model(
            node("Nope"),
            functions=[body("Nope", "Neg", domain="zzz")],
            imports=(("", 18), ("acme", 1), ("zzz", 1)),
        ),
        ["UNARY"],
        {"body-of-another"},
    ),
    "second of two bodies": (
        model(
            node("Nope", overload="v2"),
            functions=[body("Nope", "Neg"), body("Nope", "Relu", overload="v2")],
        ),
        ["UNARY"],  # Neg: the wrong one
        {"body-overloads"},
    ),
    "first of two bodies": (
        model(node("Nope"), functions=[body("Nope", "Neg"), body("Nope", "Relu", overload="v2")]),
        ["UNARY"],
        set(),
    ),
    "body with fewer inputs": (
        model(node("Nope"), functions=[body("Nope", "Neg", inputs=("a", "c"))]), None, {"body-inputs"},
    ),
    "body with an absent input": (
        model(node("Nope", ("x", "", "x")), functions=[body("Nope", "Neg", inputs=("a", "c", "d"))]),
        None,
        {"absent-input"},
    ),
    "absent input at the end": (model(node(inputs=("x", ""), **STATED)), None, {"absent-input"}),
    "absent input in the middle": (model(node(inputs=("x", "", "x"), **STATED)), None, {"absent-input"}),
    "float64": (typed(DOUBLE, node(**STATED)), ["PLUGIN_V3"], {"float64-as-float32"}),
    "int64": (typed(TensorProto.INT64, node(**STATED)), ["PLUGIN_V3"], {"int64"}),
    "uint8 inside": (model(cast("x", "c", UINT8), cast("c", "y", FLOAT)), None, {"uint8-inside"}),
    "int16 as input": (model(cast("x", "y", FLOAT), inputs=[value("x", INT16)]), None, {"unknown-type"}),
    "int16 inside": (model(cast("x", "c", INT16), cast("c", "y", FLOAT)), None, {"unknown-type"}),
    "int16 as weight": (
        model(
            cast("w", "c", FLOAT),
            helper.make_node("Add", ["x", "c"], ["y"]),
            weights=[helper.make_tensor("w", INT16, [4], [1, 2, 3, 4])],
        ),
        None,
        {"unknown-type"},
    ),
    "complex": (typed(TensorProto.COMPLEX64, helper.make_node("Identity", ["x"], ["y"])), None, {"unknown-type"}),
    "no domain imported": (model(node(**STATED), imports=(("", 18),)), ["PLUGIN_V3"], set()),
    "an old opset": (model(helper.make_node("Relu", ["x"], ["y"]), imports=(("", 5),)), ["ACTIVATION"], {"opset"}),
    "an operator that it lacks": (
        model(
            helper.make_node("Det", ["x"], ["y"]),
            inputs=[value("x", shape=(2, 2))],
            outputs=[value("y", shape=())],
        ),
        None,
        {"operator-missing"},
    ),
    "in a branch": (
        branches(), ["CONDITION", "PLUGIN_V3", "PLUGIN_V3", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT"], set(),
    ),
    "rank unknown": (
        model(node(**STATED), inputs=[value("x", shape=None)], outputs=[value("y", shape=None)]),
        ["PLUGIN_V3"],
        {"rank-unknown"},
    ),
    "two nodes of one name": (
        model(node(outputs=("t",), **STATED), node(inputs=("t",), **STATED)), ["PLUGIN_V3", "PLUGIN_V3"], set(),
    ),
    "a value made twice": (
        model(helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])), None, {"value-twice"},
    ),
    "a value that nothing makes": (model(helper.make_node("Relu", ["z"], ["y"])), None, {"input-not-made"}),
    "an output that nothing makes": (model(helper.make_node("Relu", ["x"], ["t"])), None, {"output-not-made"}),
    "a cycle": (
        model(helper.make_node("Add", ["x", "y"], ["t"]), helper.make_node("Relu", ["t"], ["y"])), None, {"cycle"},
    ),
    "nodes in another order": (
        model(helper.make_node("Relu", ["t"], ["y"]), helper.make_node("Neg", ["x"], ["t"])),
        ["UNARY", "ACTIVATION"],
        set(),
    ),
    "varying sizes": (
        model(node(**STATED), inputs=[value("x", shape=("n", 4))], outputs=[value("y", shape=("n", 4))]),
        ["PLUGIN_V3"],
        {"profile"},
    ),
}  # fmt: skip
