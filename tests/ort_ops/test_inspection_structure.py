"""Graphs that do not hang together are told, and what ONNX Runtime opens is not: asked of the installed one each time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import onnx
import pytest
from onnx import TensorProto, helper

from deployops.ort_ops.inspection.check import check_model
from deployops.ort_ops.inspection.runtime_limits import limits_for
from deployops.symbolic.graph_inspection.structure import structure_findings

from .twice_library import refusal


def value(name: str, dtype: int = TensorProto.FLOAT, shape: Sequence[int] = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str) -> onnx.TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT, [2], [1.0, 2.0])


def relu(source: str, result: str, name: str = "") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], name=name)


def add(a: str, b: str, result: str) -> onnx.NodeProto:
    return helper.make_node("Add", [a, b], [result])


def model(
    *nodes: onnx.NodeProto,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    init: Sequence[str] = (),
) -> onnx.ModelProto:
    """`c` is a bool input, for If and Loop."""
    given = [value("c", TensorProto.BOOL, ()), *map(value, inputs)]
    graph = helper.make_graph(
        list(nodes), "g", given, [value(o) for o in outputs], [constant(i) for i in init]
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def inner(*nodes: onnx.NodeProto, output: str = "r", init: Sequence[str] = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "s", [], [value(output)], [constant(i) for i in init])


def branch(graph: onnx.GraphProto, result: str = "y") -> onnx.NodeProto:
    other = inner(relu("x", "q"), output="q")
    return helper.make_node("If", ["c"], [result], then_branch=graph, else_branch=other)


def loop(state: str, *nodes: onnx.NodeProto, output: str) -> onnx.NodeProto:
    given = [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value(state)]
    body = helper.make_graph(list(nodes), "b", given, [value("go", TensorProto.BOOL, ()), value(output)])
    return helper.make_node("Loop", ["", "c", "x"], ["y"], body=body)


def sparse() -> onnx.ModelProto:
    proto = model(add("x", "w", "y"))
    tensor = proto.graph.sparse_initializer.add(dims=[2])
    tensor.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]))
    tensor.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [1], [0]))
    return proto


SOUND = {
    "in order": model(relu("x", "a"), relu("a", "y")),
    "out of order": model(relu("a", "y"), relu("x", "a")),
    "an absent input": model(helper.make_node("Clip", ["x", "", "w"], ["y"]), init=["w"]),
    "unused results without a name": model(
        helper.make_node("Dropout", ["x"], ["a", ""]), helper.make_node("Dropout", ["a"], ["y", ""])
    ),
    "an input that is an initializer": model(add("x", "w", "y"), inputs=["x", "w"], init=["w"]),
    "an initializer twice": model(add("x", "w", "y"), init=["w", "w"]),
    "a sparse initializer": sparse(),
    "an output that is an input": model(relu("x", "y"), outputs=["y", "x"]),
    "an output that is an initializer": model(relu("x", "y"), outputs=["y", "w"], init=["w"]),
    "an output twice": model(relu("x", "y"), outputs=["y", "y"]),
    "a subgraph that reads a later node": model(branch(inner(relu("a", "r"))), relu("x", "a")),
    "a graph in a graph": model(
        branch(inner(relu("x", "k"), branch(inner(relu("k", "t"), output="t"), "r")))
    ),
    "a subgraph with the name of its node": model(branch(inner(relu("x", "y"), output="y"))),
    "an initializer with an outer name": model(branch(inner(relu("x", "r"), init=["x"]))),
    "an output that is the subgraph's initializer": model(branch(inner(output="w", init=["w"]))),
    "a loop's input with an outer name": model(loop("x", relu("x", "t"), output="t")),
    "a loop that hands on": model(loop("s", output="s")),
    "one node name in two graphs": model(branch(inner(relu("x", "r", "n")), "a"), relu("a", "y", "n")),
}
BROKEN = {
    "two in a cycle": ("cycle", model(add("x", "b", "a"), relu("a", "b"), relu("x", "y"))),
    "one in a cycle": ("cycle", model(add("x", "y", "y"))),
    "a cycle that nobody reads": ("cycle", model(relu("x", "y"), relu("a", "b"), relu("b", "a"))),
    "a cycle through a subgraph": ("cycle", model(branch(inner(relu("a", "r"))), relu("y", "a"))),
    "a cycle in a subgraph": ("cycle", model(branch(inner(relu("x", "r"), relu("a", "b"), relu("b", "a"))))),
    "made twice": ("value-twice", model(relu("x", "y"), relu("x", "y"))),
    "made twice by one": ("value-twice", model(helper.make_node("Split", ["x"], ["y", "y"], num_outputs=2))),
    "an input made": ("value-twice", model(relu("c2", "x"), relu("x", "y"), inputs=["x", "c2"])),
    "an initializer made": ("value-twice", model(relu("x", "w"), relu("w", "y"), init=["w"])),
    "an input twice": ("value-twice", model(relu("x", "y"), inputs=["x", "x"])),
    "made twice in a subgraph": ("value-twice", model(branch(inner(relu("x", "r"), relu("x", "r"))))),
    "an outer initializer made": (
        "value-twice",
        model(branch(inner(relu("x", "w"), output="w")), init=["w"]),
    ),
    "an initializer made two graphs further in": (
        "value-twice",
        model(branch(inner(branch(inner(relu("x", "w"), output="w"), "r"))), init=["w"]),
    ),
    "a loop's input made": ("value-twice", model(loop("s", relu("x", "s"), output="s"))),
    "an output that nothing makes": ("output-not-made", model(relu("x", "y"), outputs=["y", "z"])),
    "a subgraph's output that nothing makes": (
        "output-not-made",
        model(branch(inner(relu("x", "k")))),
    ),
    "a subgraph's output from outside": ("output-not-made", model(relu("x", "a"), branch(inner(output="a")))),
    "an input that nothing makes": ("input-not-made", model(add("x", "z", "y"))),
    "an optional input that nothing makes": (
        "input-not-made",
        model(helper.make_node("Clip", ["x", "z"], ["y"])),
    ),
    "nothing makes it for a subgraph": ("input-not-made", model(branch(inner(relu("z", "r"))))),
    "a value of a subgraph read outside": (
        "input-not-made",
        model(branch(inner(relu("x", "r")), "a"), relu("r", "y")),
    ),
    "a subgraph out of order": ("subgraph-order", model(branch(inner(relu("a", "r"), relu("x", "a"))))),
    "out of order two graphs further in": (
        "subgraph-order",
        model(branch(inner(branch(inner(relu("k", "t"), output="t"), "r"), relu("x", "k")))),
    ),
    "one node name twice": ("node-name-twice", model(relu("x", "a", "n"), relu("a", "y", "n"))),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_graphs(name: str) -> None:
    assert refusal(SOUND[name]) is None
    assert structure_findings(SOUND[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graphs(name: str) -> None:
    kind, proto = BROKEN[name]
    assert refusal(proto) is not None
    assert [(f.severity, f.kind) for f in structure_findings(proto)] == [("would fail", kind)]
    assert check_model(proto, limits_for("onnxruntime==1.32.0")).verdict == "would fail"


def test_findings_say_where() -> None:
    (cycle,) = structure_findings(model(add("x", "b", "a"), relu("a", "b", "second"), relu("x", "y")))
    assert "the node that makes 'a'" in cycle.what
    assert "'second'" in cycle.what
    assert "'y'" not in cycle.what
    (missing,) = structure_findings(model(branch(inner(relu("z", "r", "deep")))))
    assert missing.where == "'deep' in then_branch of 'If'"
    assert "'z'" in missing.what


@pytest.mark.parametrize("shape", ["chain", "reversed", "ring", "all read one"])
def test_a_hundred_thousand_nodes_take_seconds(shape: str) -> None:
    count = 100_000
    nodes = [relu(f"v{k}", f"v{k + 1}") for k in range(count)]
    if shape == "all read one":
        nodes = [relu("v0", f"v{k + 1}") for k in range(count)]
    if shape == "reversed":
        nodes.reverse()
    if shape == "ring":
        nodes[0].input[0] = f"v{count}"
    proto = model(*nodes, inputs=["v0"], outputs=[f"v{count}"])
    started = time.process_time()
    found = structure_findings(proto)
    assert time.process_time() - started < 60  # not the speed, but that it does not grow with the square
    assert [f.kind for f in found] == ["cycle"] * (shape == "ring")
