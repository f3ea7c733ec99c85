"""Walking graphs within nodes: all of them, in order, however deep."""

from __future__ import annotations

import onnx
from onnx import helper

from deployops.symbolic.nested_graphs import graphs_within, named_graphs_within, nested_graphs, nested_nodes


def graph(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [])


def node(name: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node("Identity", ["x"], ["y"], name=name, **attributes)


def test_nodes_come_in_order_and_before_those_within_them() -> None:
    inner = node(
        "b", then=graph("then", node("c", body=graph("body", node("d")))), other=graph("else", node("e"))
    )
    several = node("f", graphs=[graph("one", node("g")), graph("two", node("h"))])
    whole = graph("whole", node("a"), inner, several, node("i"))
    assert [n.name for n in nested_nodes(whole.node)] == list("abecdfghi")  # onnx sorts attributes by name
    assert sorted(g.name for g in nested_graphs(whole)) == sorted(
        ["whole", "then", "else", "body", "one", "two"]
    )
    assert {g.name for g in graphs_within(inner)} == {"then", "else"}
    assert [g.name for g in graphs_within(several)] == ["one", "two"]
    assert [(name, g.name) for name, g in named_graphs_within(several)] == [
        ("graphs", "one"),
        ("graphs", "two"),
    ]
    assert {(name, g.name) for name, g in named_graphs_within(inner)} == {("then", "then"), ("other", "else")}


def test_all_who_look_into_graphs_name_a_place_alike() -> None:
    """A value that nothing makes, and a node whose operator nobody has, in a graph within one."""
    from deployops.symbolic.graph_inspection.node_uses import model_uses
    from deployops.symbolic.graph_inspection.structure import structure_findings

    value = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    inside = helper.make_graph([helper.make_node("Neg", ["none"], ["y"], name="n")], "g", [], [value])
    outer = helper.make_node("If", ["c"], ["y"], name="if\n1", then_branch=inside, else_branch=inside)
    model = helper.make_model(helper.make_graph([outer], "g", [], [value]))
    uses = {use.place for use in model_uses(model).uses if use.name == "n"}
    assert uses == {"then_branch of 'if\\n1'", "else_branch of 'if\\n1'"}
    places = {f.where for f in structure_findings(model) if f.kind == "input-not-made" and "none" in f.what}
    assert places == {f"'n' in {place}" for place in uses}


def test_depth_is_no_limit() -> None:
    whole = current = graph("0")
    for depth in range(1, 3000):
        made = current.node.add(op_type="If", name=str(depth))
        attribute = made.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        current = attribute.g
        current.name = str(depth)
    assert sum(1 for _ in nested_nodes(whole.node)) == 2999
    assert sum(1 for _ in nested_graphs(whole)) == 3000
