"""What a node asks of a runtime is told as ONNX Runtime sees it: versions, types, bodies; and within bounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.ort_ops.inspection.opset_faults import standard_findings
from deployops.ort_ops.library_manifest import (
    KernelArgument,
    KernelOperator,
    KernelSignature,
    LibraryManifest,
)
from deployops.ort_ops.node_uses import model_uses, node_uses
from deployops.symbolic.graph_inspection.node_uses import NodeUse
from deployops.symbolic.graph_inspection.standard_types import dtype_name

from .twice_library import refusal

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def value(name: str, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [2])


def model(
    nodes: Sequence[onnx.NodeProto],
    *,
    imports: Sequence[tuple[str, int]] = (("", 20), ("f", 1), ("acme", 1)),
    functions: Sequence[onnx.FunctionProto] = (),
    dtype: int = FLOAT,
    extra: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", [value("x", dtype), *extra], [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, ir_version=9, functions=list(functions))
    del made.opset_import[:]
    made.opset_import.extend(helper.make_opsetid(*i) for i in imports)
    return made


def function(
    name: str, nodes: Sequence[onnx.NodeProto], imports: Sequence[tuple[str, int]] = (("", 20),)
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid(*i) for i in imports]
    return helper.make_function("f", name, ["a"], ["b"], list(nodes), opsets)


def node(op: str, *inputs: str, out: str = "y", domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [out], domain=domain, **attributes)


def only(uses: Sequence[NodeUse], op: str) -> NodeUse:
    (found,) = (u for u in uses if u.op_type == op)
    return found


def test_a_node_in_its_terms() -> None:
    made = node("Mix", "x", "", "x", domain="acme", eps=0.5, mode="a", ks=[1, 2])
    use = only(node_uses(model([made], dtype=HALF)), "Mix")
    assert (use.domain, use.domain_version, use.inputs, use.absent, use.outputs) == (
        "acme",
        1,
        ("float16", None, "float16"),
        (1,),
        1,
    )
    assert use.attributes == {"eps": "FLOAT", "mode": "STRING", "ks": "INTS"}
    assert (use.name, use.result, use.title, use.has_body) == ("", "y", "acme::Mix", False)


def test_types_come_from_what_the_file_states_and_from_what_the_standard_says() -> None:
    nodes = [
        node("Cast", "x", out="h", to=HALF),
        node("Shape", "h", out="s"),
        node("Unknown", "h", out="u", domain="acme"),
        node("Mix", "h", "s", "u", "k", domain="acme"),
    ]
    proto = model(nodes)
    proto.graph.initializer.append(helper.make_tensor("k", TensorProto.INT8, [1], [3]))
    assert only(node_uses(proto), "Mix").inputs == ("float16", "int64", None, "int8")
    proto.graph.value_info.append(value("u", TensorProto.BFLOAT16))
    assert only(node_uses(proto), "Mix").inputs[2] == "bfloat16"


def test_types_behind_a_kernel_come_from_its_manifest() -> None:
    to_bool = KernelOperator(
        "acme",
        "Test",
        1,
        "acme::test",
        inputs=(KernelArgument("x"),),
        outputs=(KernelArgument("y"),),
        signatures=tuple(KernelSignature({"x": d}, {"y": "bool"}) for d in ("float32", "float16")),
    )
    libraries = [LibraryManifest(__file__, "", "ort-cpu", "", (to_bool,))]  # type: ignore[arg-type]
    proto = model([node("Test", "x", out="t", domain="acme"), node("Mix", "t", domain="acme")])
    assert only(node_uses(proto, libraries), "Mix").inputs == ("bool",)
    assert only(node_uses(proto), "Mix").inputs == (None,)


def test_nodes_of_subgraphs_see_the_values_around_them() -> None:
    inner = helper.make_graph(
        [node("Mix", "h", out="b", domain="acme")], "inner", [], [onnx.ValueInfoProto(name="b")]
    )
    other = helper.make_graph([node("Neg", "h", out="b2")], "other", [], [onnx.ValueInfoProto(name="b2")])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    choice = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=other, else_branch=inner)
    proto = model(
        [node("Cast", "x", out="h", to=HALF), choice, node("Relu", "y", out="z")], extra=[condition]
    )
    uses = node_uses(proto)
    assert only(uses, "Mix").inputs == ("float16",)
    assert only(uses, "Mix").place == "else_branch of 'choice'"
    assert only(uses, "Relu").inputs == ("float16",)


def test_a_function_is_read_once_for_each_type_it_is_called_with() -> None:
    body = function(
        "F", [node("Neg", "a", out="n"), node("Mix", "n", out="b", domain="acme")], [("", 20), ("acme", 1)]
    )
    calls = [
        node("F", "x", out="p", domain="f"),
        node("F", "x", out="q", domain="f"),
        node("Cast", "x", out="h", to=HALF),
        node("F", "h", out="y", domain="f"),
    ]
    inside = [u for u in node_uses(model(calls, functions=[body])) if u.op_type == "Mix"]
    assert [(u.inputs, u.place) for u in inside] == [
        (("float32",), "function f::F"),
        (("float16",), "function f::F"),
    ]


def test_types_go_through_functions() -> None:
    body = function("F", [node("Cast", "a", out="b", to=HALF)])
    proto = model([node("F", "x", out="t", domain="f"), node("Mix", "t", domain="acme")], functions=[body])
    uses = node_uses(proto)
    assert only(uses, "Mix").inputs == ("float16",)
    assert only(uses, "F").has_body


def test_a_body_that_a_kernel_replaces_is_not_read() -> None:
    kernel = KernelOperator(
        "f",
        "F",
        1,
        "f::f",
        inputs=(KernelArgument("x"),),
        outputs=(KernelArgument("y"),),
        signatures=(KernelSignature({"x": "float32"}, {"y": "float32"}),),
    )
    libraries = [LibraryManifest(__file__, "", "ort-cpu", "", (kernel,))]  # type: ignore[arg-type]
    proto = model([node("F", "x", domain="f")], functions=[function("F", [node("Neg", "a", out="b")])])
    assert [u.op_type for u in node_uses(proto, libraries)] == ["F"]
    assert sorted(u.op_type for u in node_uses(proto)) == ["F", "Neg"]


# What ONNX Runtime makes of versions, seen by whether it opens: Gelu exists since opset 20.


@pytest.mark.parametrize(
    ("imports", "function_opset", "version"),
    [
        ([("", 18), ("f", 1)], 20, 18),
        ([("", 20), ("f", 1)], 18, 20),
        ([("f", 1)], 20, 20),
        ([("", 20), ("", 18), ("f", 1)], 20, 18),
        ([("", 18), ("", 20), ("f", 1)], 18, 20),
        ([("ai.onnx", 20), ("f", 1)], 18, 20),
    ],
)
def test_versions_inside_of_functions_are_the_models(imports: Any, function_opset: int, version: int) -> None:
    body = function("F", [node("Gelu", "a", out="b")], [("", function_opset)])
    proto = model([node("F", "x", domain="f")], imports=imports, functions=[body])
    proto.graph.output[0].CopyFrom(value("y"))
    assert only(node_uses(proto), "Gelu").domain_version == version
    assert (refusal(proto) is None) == (version >= 20)


def test_a_function_must_import_what_it_uses() -> None:
    body = function("F", [node("Neg", "a", out="n"), node("G", "n", out="b", domain="f")])
    other = function("G", [node("Neg", "a", out="b")])
    proto = model([node("F", "x", domain="f")], functions=[body, other])
    assert only(node_uses(proto), "G").domain_version is None
    assert refusal(proto) is not None


def test_a_function_of_another_overload_is_no_body() -> None:
    body = function("F", [node("Neg", "a", out="b")])
    body.overload = "v2"
    proto = model([node("F", "x", domain="f")], functions=[body])
    assert not only(node_uses(proto), "F").has_body
    assert refusal(proto) is not None
    proto.graph.node[0].overload = "v2"
    assert only(node_uses(proto), "F").has_body
    assert refusal(proto) is None


# Bounds.


def test_functions_that_call_themselves_end() -> None:
    round_trip = [
        function("F", [node("G", "a", out="b", domain="f")], [("", 20), ("f", 1)]),
        function("G", [node("F", "a", out="b", domain="f")], [("", 20), ("f", 1)]),
    ]
    found = model_uses(model([node("F", "x", domain="f")], functions=round_trip))
    assert found.recursive == ("f::F",)


def test_functions_that_double_at_each_step_are_read_once() -> None:
    imports = [("", 20), ("f", 1)]
    chain = [
        function(f"F{k}", [node(f"F{k + 1}", "a", out="t", domain="f"), node(f"F{k + 1}", "t", out="b", domain="f")], imports)
        for k in range(30)
    ]  # fmt: skip
    last = function("F30", [node("Neg", "a", out="b")], imports)
    started = time.process_time()
    found = model_uses(model([node("F0", "x", domain="f")], functions=[*chain, last]))
    assert time.process_time() - started < 1
    assert only(found.uses, "Neg").inputs == ("float32",)
    assert not found.incomplete


def test_more_variants_than_any_model_has_are_said_to_be_unread() -> None:
    """A function of 13 inputs, called with each combination of two types."""
    names = [f"i{k}" for k in range(13)]
    body = helper.make_function(
        "f", "F", names, ["b"], [node("Neg", "i0", out="b")], [helper.make_opsetid("", 20)]
    )
    calls = [node("Cast", "x", out="h", to=HALF)]
    for k in range(2**12):
        inputs = [("h" if k >> bit & 1 else "x") for bit in range(13)]
        calls.append(helper.make_node("F", inputs, [f"o{k}"], domain="f"))
    started = time.process_time()
    found = model_uses(model(calls, functions=[body]))
    assert time.process_time() - started < 3
    assert "very many combinations" in found.incomplete[0]


def test_graphs_in_graphs_as_deep_as_a_file_can_have_them() -> None:
    graph = helper.make_graph(
        [node("Mix", "x", out="r", domain="acme")], "g", [], [onnx.ValueInfoProto(name="r")]
    )
    for _ in range(30):
        outer = helper.make_node("If", ["c"], ["r"], then_branch=graph, else_branch=graph.__class__(name="e"))
        graph = helper.make_graph([outer], "g", [], [onnx.ValueInfoProto(name="r")])
    proto = model(
        [helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=type(graph)(name="e"))]
    )
    read = onnx.ModelProto.FromString(proto.SerializeToString())
    use = only(node_uses(read), "Mix")
    assert use.inputs == ("float32",)
    assert len(use.place) < 200


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_types_and_schemas_agree_with_every_example_of_the_standard() -> None:
    """Of 1,900 models that ONNX tests itself with no node is refused, and no output's type is told wrongly."""
    from onnx.backend.test.case.node import collect_testcases

    wrong, told, refused = [], 0, []
    for case in collect_testcases(None):
        if case.model is None:
            continue
        bare = onnx.ModelProto.FromString(case.model.SerializeToString())
        for output in bare.graph.output:
            output.ClearField("type")
        found = model_uses(bare)
        refused += [(case.name, f.what) for f in standard_findings(found.uses) if f.severity == "would fail"]
        for output in case.model.graph.output:
            if not output.type.HasField("tensor_type"):
                continue
            dtype = found.graphs[0].types.get(output.name)
            told += dtype is not None
            if dtype not in (None, dtype_name(output.type.tensor_type.elem_type)):
                wrong.append((case.name, output.name, dtype))
    assert not wrong
    assert not refused
    assert told > 1500
