"""How large a model becomes when its functions are put where they are called: counted, and never done."""

from __future__ import annotations

import random
import time

import onnx
import pytest
from onnx import TensorProto, helper, inliner

from deployops.ort_ops.inspection.check import check_model
from deployops.ort_ops.inspection.runtime_limits import limits_for
from deployops.symbolic.graph_inspection.expansion import counted_in_words, expansion
from deployops.trt_plugins.inspection import check_model as check_for_tensorrt
from deployops.trt_plugins.inspection import limits_for as tensorrt_limits

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]


def model(calls: dict[str, list[str]], main: list[str]) -> onnx.ModelProto:
    """Functions as chains of nodes; a name without an entry is an operator of ONNX."""

    def chain(names: list[str]) -> list[onnx.NodeProto]:
        values = ["x", *(f"t{k}" for k in range(len(names) - 1)), "y"]
        return [
            helper.make_node(n, [values[k]], [values[k + 1]], domain="f" if n in calls else "")
            for k, n in enumerate(names)
        ]

    functions = [helper.make_function("f", n, ["x"], ["y"], chain(c), OPSETS) for n, c in calls.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    graph = helper.make_graph(chain(main), "g", ends[:1], ends[1:])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=9)


def doubling(levels: int) -> onnx.ModelProto:
    calls = {f"F{k}": [f"F{k + 1}"] * 2 for k in range(levels - 1)}
    return model({**calls, f"F{levels - 1}": ["Relu", "Relu"]}, ["F0"])


@pytest.mark.parametrize("seed", range(20))
def test_the_count_is_that_of_onnxs_own_inliner(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"F{k}" for k in range(draw.randint(1, 7))]
    calls = {
        name: [draw.choice([*names[k + 1 :], "Relu", "Neg"]) for _ in range(draw.randint(1, 4))]
        for k, name in enumerate(names)
    }
    made = model(calls, [draw.choice([*names, "Abs"]) for _ in range(3)])
    assert expansion(made).nodes == len(inliner.inline_local_functions(made).graph.node)


def test_what_stays_a_node_counts_as_one() -> None:
    made = model({"A": ["Relu"] * 5, "B": ["A", "A"]}, ["A", "B", "Neg"])
    assert expansion(made).nodes == 5 + 10 + 1
    assert expansion(made, lambda node: node.op_type == "A").nodes == 1 + 2 + 1


def test_a_bomb_is_told_with_the_largest_function() -> None:
    found = expansion(doubling(40))
    assert (found.nodes, found.largest, found.is_bomb) == (2**40, "f::F0", True)
    assert not expansion(doubling(19)).is_bomb


def test_functions_that_call_themselves_end_the_count() -> None:
    found = expansion(model({"A": ["B", "B"], "B": ["A"]}, ["A"]))
    assert found.recursive == ("f::A",)


@pytest.mark.parametrize("shape", ["chain", "wide", "doubling"])
def test_the_time_is_linear_in_the_file(shape: str) -> None:
    count = 20_000
    if shape == "doubling":  # a number of 20,000 bits at each function
        made = doubling(count)
    elif shape == "chain":
        made = model({f"F{k}": [f"F{k + 1}" if k + 1 < count else "Relu"] for k in range(count)}, ["F0"])
    else:
        names = [f"F{k}" for k in range(count)]
        made = model({"A": names, **{n: ["Relu"] for n in names}}, ["A"])
    start = time.monotonic()
    expansion(made)
    assert time.monotonic() - start < 10


def test_large_numbers_in_words() -> None:
    assert [counted_in_words(n) for n in (12_345, 2**60, 10**40)] == [
        "12,345",
        "more than 1e+18",
        "more than 1e+18",
    ]
    assert counted_in_words(2**52) == "4.5e+15"


def test_inspect_refuses_a_bomb_for_both_runtimes() -> None:
    made = doubling(40)
    for found in (
        check_model(made, limits_for("onnxruntime==1.32.0")).findings,
        check_for_tensorrt(made, tensorrt_limits("tensorrt", "10.8")).findings,
    ):
        [what] = [f.what for f in found if f.kind == "functions-expand"]
        assert "1,099,511,627,776 nodes" in what
    assert not [
        f
        for f in check_model(doubling(5), limits_for("onnxruntime==1.32.0")).findings
        if f.kind == "functions-expand"
    ]
