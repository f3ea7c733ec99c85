"""Which floating type a file computes in, by what it holds: one stray cast makes no float16 file."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.validation.computed_types import computed_in, element_types, has_narrow

F16, F32, BF16 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.BFLOAT16
N = helper.make_node


def product(k: int, kind: int, weights: int | None = None) -> tuple[list[Any], list[Any]]:
    """x{k} · w{k} = x{k+1}, computed in `kind`, between float32 values; the weight is stored in `weights`."""
    stored = kind if weights is None else weights
    nodes = [
        N("Cast", [f"x{k}"], [f"a{k}"], to=kind),
        N("Cast", [f"w{k}"], [f"v{k}"], to=kind),
        N("MatMul", [f"a{k}", f"v{k}"], [f"p{k}"]),
        N("Cast", [f"p{k}"], [f"x{k + 1}"], to=F32),
    ]
    return nodes, [helper.make_tensor(f"w{k}", stored, [8, 8], np.zeros(64))]


def model(*products: tuple[int, int | None], more: Any = ()) -> onnx.ModelProto:
    nodes, weights = [], []
    for k, (kind, stored) in enumerate(products):
        n, w = product(k, kind, stored)
        nodes, weights = nodes + n, weights + w
    value = helper.make_tensor_value_info
    end = f"x{len(products)}"
    graph = helper.make_graph(
        [*nodes, *more, N("Identity", [end], ["y"])], "g", [value("x0", F32, ["n", 8])], [value("y", F32, ["n", 8])],
        [*weights],
    )  # fmt: skip
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    onnx.checker.check_model(found, full_check=True)
    return found


@pytest.mark.parametrize(
    ("products", "most"),
    [
        ([(F16, None)] * 3, True),
        ([(F16, None), (F16, None), (F32, None)], True),
        ([(F16, None), (F32, None)], False),  # half is not most
        ([(F16, None), (F32, None), (F32, None)], False),
        ([(F16, F32)] * 3, False),  # a tool, or a slip, that casts at run time: the weights are float32
        ([(F32, F16)] * 3, False),  # weights stored small, products in float32
    ],
)
def test_most_of_the_products_and_of_the_weights(products: Any, most: bool) -> None:
    found = computed_in(model(*products))
    assert found is not None
    assert (found.dtype, found.most) == ("float16", most)


def test_the_words_have_the_counts() -> None:
    found = computed_in(model((BF16, None), (BF16, None), (F32, None)))
    assert found is not None
    assert found.words == "2 of its 3 products and 128 of the 192 elements of its weights are bfloat16"


def test_a_stray_cast_between_layers_is_nothing() -> None:
    stray = [N("Cast", ["x1"], ["s"], to=F16), N("Cast", ["s"], ["back"], to=F32)]
    stray.append(N("Relu", ["back"], ["relu"]))
    made = model((F32, None), more=stray)
    assert has_narrow(made)
    assert computed_in(made) is None
    assert not has_narrow(model((F32, None)))


def test_types_of_values_inside_a_branch_and_of_large_weights() -> None:
    value = helper.make_tensor_value_info
    inner = helper.make_graph(
        [N("Cast", ["x"], ["a"], to=F16), N("MatMul", ["a", "w"], ["p"]), N("Cast", ["p"], ["r"], to=F32)],
        "then", [], [value("r", F32, None)],
    )  # fmt: skip
    other = helper.make_graph([N("Identity", ["x"], ["o"])], "else", [], [value("o", F32, None)])
    graph = helper.make_graph(
        [N("If", ["c"], ["y"], then_branch=inner, else_branch=other)], "g",
        [value("c", TensorProto.BOOL, []), value("x", F32, [64, 64])], [value("y", F32, None)],
        [numpy_helper.from_array(np.zeros((64, 64), np.float16), "w")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    found = computed_in(made)
    assert found is not None
    assert found.words == "1 of its 1 products and 4,096 of the 4,096 elements of its weights are float16"
    assert element_types(made)["w"] == F16


def test_a_file_that_onnx_cannot_infer_is_known_by_its_weights() -> None:
    made = model((F16, None))
    made.graph.node[2].op_type = "NoSuchOperator"
    found = computed_in(made)
    assert found is not None
    assert found.words == "64 of the 64 elements of its weights are float16"


@pytest.mark.parametrize(("inside", "most"), [(F16, True), (F32, False)])
def test_products_in_bodies_of_custom_nodes_count(inside: int, most: bool) -> None:
    """The weights are float16; what the body does with them decides."""
    nodes = [
        N("Cast", ["v"], ["a"], to=inside),
        N("Cast", ["w"], ["b"], to=inside),
        N("MatMul", ["a", "b"], ["p"]),
    ]
    nodes.append(N("Cast", ["p"], ["r"], to=F32))
    body = helper.make_function("acme", "Dense", ["v", "w"], ["r"], nodes, [helper.make_opsetid("", 22)])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [N("Dense", ["x", "w0"], ["y"], domain="acme")], "g", [value("x", F32, ["n", 8])], [value("y", F32, ["n", 8])],
        [helper.make_tensor("w0", F16, [8, 8], np.zeros(64))],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("acme", 1)]
    made = helper.make_model(graph, opset_imports=opsets, functions=[body])
    onnx.checker.check_model(made, full_check=True)
    found = computed_in(made)
    assert found is not None
    assert (found.dtype, found.most) == ("float16", most)


def test_a_cast_in_a_body_is_seen() -> None:
    nodes = [N("Cast", ["v"], ["a"], to=F16), N("Cast", ["a"], ["r"], to=F32)]
    body = helper.make_function("acme", "Slip", ["v"], ["r"], nodes, [helper.make_opsetid("", 22)])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [N("Slip", ["x"], ["y"], domain="acme")], "g", [value("x", F32, [2])], [value("y", F32, [2])]
    )
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("acme", 1)]
    assert has_narrow(helper.make_model(graph, opset_imports=opsets, functions=[body]))
