"""Walking graphs within nodes: all of them, in order, however deep."""

from __future__ import annotations

import onnx
from onnx import helper

from deployops.symbolic.nested_graphs import graphs_within, nested_graphs, nested_nodes


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


def test_depth_is_no_limit() -> None:
    whole = current = graph("0")
    for depth in range(1, 3000):
        made = current.node.add(op_type="If", name=str(depth))
        attribute = made.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        current = attribute.g
        current.name = str(depth)
    assert sum(1 for _ in nested_nodes(whole.node)) == 2999
    assert sum(1 for _ in nested_graphs(whole)) == 3000
