"""Bytes and operations of nodes and models, against torch's own counter and formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch.utils.flop_counter import FlopCounterMode

from deployops.validation.latency.analysis import values_of
from deployops.validation.latency.cost import cost
from deployops.validation.latency.graph_cost import model_cost
from deployops.validation.latency.graph_shapes import value_shapes
from deployops.validation.latency.values import Value

F = "float32"


def counted(call: Callable[[], object]) -> int:
    """Operations as torch counts them: those of products and convolutions, biases left out."""
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def flops(
    op_type: str, inputs: list[tuple[int, ...] | None], output: tuple[int, ...], **attributes: Any
) -> int:
    given = [None if s is None else Value(F, s) for s in inputs]
    found = cost(op_type, given, [Value(F, output)], attributes)
    assert found is not None
    assert found.counted
    return found.flops


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7, 3)),
        ((2, 4, 5, 7), (2, 4, 7, 3)),
        ((2, 4, 5, 7), (7, 3)),
        ((7,), (7, 3)),
        ((5, 7), (7,)),
        ((1, 1), (1, 1)),
    ],
)
def test_matrix_products(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = torch.ones(a), torch.ones(b)
    inner = a[-1]
    out = tuple((x @ y).shape)
    assert flops("MatMul", [a, b], out) == 2 * math.prod(out) * inner
    if len(a) == len(b) and len(a) > 1:
        assert flops("MatMul", [a, b], out) == counted(lambda: x @ y)


@pytest.mark.parametrize(("a", "b"), [((5, 7), (7, 3)), ((7, 5), (7, 3)), ((5, 7), (3, 7)), ((7, 5), (3, 7))])
def test_gemm_whichever_is_transposed(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert flops("Gemm", [a, b], (5, 3)) == counted(lambda: torch.ones(5, 7) @ torch.ones(7, 3))
    assert flops("Gemm", [a, b, (3,)], (5, 3)) == 2 * 5 * 7 * 3 + 15


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int, groups: int) -> None:
    kind = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)[rank - 1]
    layer = kind(4, 8, 3, stride=2, padding=1, groups=groups, bias=False)
    x = torch.ones(2, 4, *([9] * rank))
    out = layer(x)
    expected = counted(lambda: layer(x))
    assert flops("Conv", [tuple(x.shape), tuple(layer.weight.shape)], tuple(out.shape)) == expected
    biased = flops("Conv", [tuple(x.shape), tuple(layer.weight.shape), (8,)], tuple(out.shape))
    assert biased == expected + out.numel()


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(groups: int) -> None:
    layer = torch.nn.ConvTranspose2d(4, 8, 3, stride=2, groups=groups, bias=False)
    x = torch.ones(2, 4, 9, 5)
    shapes: list[tuple[int, ...] | None] = [tuple(x.shape), tuple(layer.weight.shape)]
    assert flops("ConvTranspose", shapes, tuple(layer(x).shape)) == counted(lambda: layer(x))


def test_attention() -> None:
    q, k, v = torch.ones(2, 3, 10, 8), torch.ones(2, 3, 12, 8), torch.ones(2, 3, 12, 6)
    expected = counted(lambda: (q @ k.transpose(-1, -2)) @ v)
    assert flops("Attention", [tuple(t.shape) for t in (q, k, v)], (2, 3, 10, 6)) == expected
    packed: list[tuple[int, ...] | None] = [(2, 10, 24), (2, 12, 24), (2, 12, 18)]
    assert flops("MultiHeadAttention", packed, (2, 10, 18), num_heads=3) == expected


def test_causal_attention_needs_the_lower_triangle() -> None:
    shape: list[tuple[int, ...] | None] = [(1, 1, 10, 8)] * 3
    pairs = int(np.tril(np.ones((10, 10))).sum())
    assert flops("Attention", shape, (1, 1, 10, 8), is_causal=1) == 2 * pairs * (8 + 8)


@pytest.mark.parametrize(
    ("equation", "shapes", "out", "expected"),
    [
        ("ij,jk->ik", [(5, 7), (7, 3)], (5, 3), 2 * 5 * 7 * 3),
        ("bij,bjk->bik", [(2, 5, 7), (2, 7, 3)], (2, 5, 3), 2 * 2 * 5 * 7 * 3),
        ("i,j->ij", [(5,), (3,)], (5, 3), 15),
        ("ij->ji", [(5, 7)], (7, 5), 35),
        # (a·b)·c costs 2·2·50·3 + 2·2·3·40, a·(b·c) 2·50·3·40 + 2·2·50·40: the cheaper order counts
        ("ij,jk,kl->il", [(2, 50), (50, 3), (3, 40)], (2, 40), 2 * 2 * 50 * 3 + 2 * 2 * 3 * 40),
    ],
)
def test_einsum(equation: str, shapes: list[Any], out: tuple[int, ...], expected: int) -> None:
    # numpy prints the count with four digits
    assert flops("Einsum", shapes, out, equation=equation.encode()) == pytest.approx(expected, rel=1e-3)


def test_recurrent_layers() -> None:
    """An LSTM's step multiplies the input and the state with four gates' matrices."""
    steps, batch, size, hidden = 6, 2, 5, 4
    shapes: list[tuple[int, ...] | None] = [
        (steps, batch, size),
        (1, 4 * hidden, size),
        (1, 4 * hidden, hidden),
    ]
    assert flops("LSTM", shapes, (steps, 1, batch, hidden)) == 2 * steps * batch * 4 * hidden * (
        size + hidden
    )


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "expected"),
    [
        ("Add", [(3, 4), (4,)], (3, 4), 12),
        ("Sum", [(3, 4)] * 3, (3, 4), 24),
        ("Sigmoid", [(3, 4)], (3, 4), 12),
        ("ReduceMean", [(3, 4), (1,)], (3, 1), 12),
        ("Softmax", [(3, 4)], (3, 4), 60),
        ("Transpose", [(3, 4)], (4, 3), 0),
    ],
)
def test_the_rest_counts_per_element(
    op_type: str, inputs: list[Any], output: tuple[int, ...], expected: int
) -> None:
    assert flops(op_type, inputs, output) == expected


def test_pooling_needs_its_window() -> None:
    assert flops("MaxPool", [(1, 2, 8, 8)], (1, 2, 4, 4), kernel_shape=[3, 2]) == 6 * 32
    unknown = cost("MaxPool", [Value(F, (1, 2, 8, 8))], [Value(F, (1, 2, 4, 4))])
    assert unknown is not None
    assert not unknown.counted


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "read", "written"),
    [
        ("Relu", [(F, (10, 10))], (F, (10, 10)), 400, 400),
        ("Cast", [(F, (10,))], ("float16", (10,)), 40, 20),
        ("Reshape", [(F, (10,)), ("int64", (2,))], (F, (2, 5)), 0, 0),
        ("Gather", [(F, (1000, 8)), ("int64", (3,))], (F, (3, 8)), 3 * 8 * 4 + 24, 96),
        ("Slice", [(F, (1000,)), ("int64", (1,)), ("int64", (1,))], (F, (5,)), 20 + 16, 20),
        ("DequantizeLinear", [("int4", (7,)), (F, ())], (F, (7,)), 4 + 4, 28),
    ],
)
def test_bytes(op_type: str, inputs: list[Any], output: Any, read: int, written: int) -> None:
    found = cost(op_type, [Value(*i) for i in inputs], [Value(*output)])
    assert found is not None
    assert (found.read, found.written) == (read, written)


def test_an_operator_that_nobody_knows_counts_its_bytes_and_says_so() -> None:
    found = cost("Nobody", [Value(F, (10,))], [Value(F, (10,))])
    assert found is not None
    assert (found.bytes, found.flops, found.counted) == (80, 0, False)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(1000, 16)
        self.conv = torch.nn.Conv1d(16, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(self.table(ids).transpose(1, 2)))
        return self.head(x.flatten(2).mean(-1))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_model_at_the_sizes_of_its_sample(export: Any, batch: int) -> None:
    """Weights once, of the table only the rows that are looked up; the operations are those that torch counts."""
    net = Net().eval()
    ids = torch.zeros(3, 12, dtype=torch.int64)
    path = export(net, (ids,))
    found = model_cost(onnx.load(str(path)), {"in0": Value("int64", (batch, 12))})
    rows = batch * 12 * 16 * 4
    weights = sum(p.numel() * 4 for n, p in net.named_parameters() if not n.startswith("table"))
    assert found.read == batch * 12 * 8 + min(rows, 64000) + weights
    assert found.written == batch * 5 * 4
    products = sum(n.cost.flops for n in found.nodes if n.op_type in ("Conv", "Gemm", "MatMul") and n.cost)
    biases = batch * 8 * 12 + batch * 5
    assert products == counted(lambda: net(ids[:batch])) + biases
    assert found.uncounted == ()


class Heads(torch.nn.Module):
    """Computes sizes from its input's, as transformers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, size = x.shape
        heads = x.view(batch, steps, 4, size // 4).transpose(1, 2)
        scores = heads @ heads.transpose(-1, -2)
        return (scores.softmax(-1) @ heads).transpose(1, 2).reshape(batch, steps, size)


@pytest.mark.parametrize(("batch", "steps"), [(2, 6), (5, 6), (2, 9)])
def test_sizes_that_the_model_computes_are_followed(export: Any, batch: int, steps: int) -> None:
    net = Heads().eval()
    path = export(net, (torch.ones(2, 6, 8),), dynamic_axes={"in0": {0: "batch", 1: "steps"}})
    model = onnx.load(str(path))
    assert {"Shape", "Div"} & {n.op_type for n in model.graph.node}
    found = model_cost(model, {"in0": Value(F, (batch, steps, 8))})
    assert found.uncounted == ()
    products = sum(n.cost.flops for n in found.nodes if n.op_type == "MatMul" and n.cost)
    assert products == counted(lambda: net(torch.ones(batch, steps, 8)))
    assert found.written == batch * steps * 8 * 4


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("ConstantOfShape", ["many"]), ("Range", ["zero", "number", "one"]), ("Expand", ["one", "many"])],
)
def test_few_numbers_that_ask_for_a_trillion_are_not_computed(
    op_type: str, inputs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size is computed from the input's, in a way that shape inference does not follow (a Div)."""
    import onnx.reference

    run = []

    real = onnx.reference.ReferenceEvaluator

    def recorded(model: onnx.ModelProto) -> Any:
        run.append(model.graph.node[0].op_type)
        if op_type in run:
            raise RuntimeError("it would take all the memory")
        return real(model)

    monkeypatch.setattr(onnx.reference, "ReferenceEvaluator", recorded)
    numbers = {
        "big": np.array([10**12], np.int64),
        "zero": np.array(0),
        "one": np.array(1),
        "two": np.array([2]),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Div", ["size", "two"], ["half"]),
        helper.make_node("Mul", ["half", "big"], ["many"]),
        helper.make_node("Squeeze", ["many"], ["number"]),
        helper.make_node(op_type, inputs, ["made"]),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    stored = [onnx.numpy_helper.from_array(v, n) for n, v in numbers.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    model_cost(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10),
        {"x": Value(F, (2,))},
    )
    assert "Mul" in run
    assert op_type not in run


def _custom(body: bool) -> onnx.ModelProto:
    """y = acme::Square(x·w); its body is x·x + x."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Square", ["h"], ["y"], domain="acme", name="square"),
    ]
    weight = onnx.numpy_helper.from_array(np.ones((4, 6), np.float32), "w")
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", s]) for n, s in (("x", 4), ("y", 6))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    inner = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Add", ["s", "a"], ["b"])]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    functions = [helper.make_function("acme", "Square", ["a"], ["b"], inner, opsets[:1])] if body else []
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)


def test_a_custom_node_counts_as_its_body() -> None:
    found = model_cost(_custom(True), {"x": Value(F, (10, 4))})
    square = found.nodes[1].cost
    assert square is not None
    assert (square.read, square.written, square.flops) == (240, 240, 120)
    assert found.flops == {F: 2 * 10 * 4 * 6 + 120}


def test_a_custom_node_without_a_body_is_named() -> None:
    """The file states its result's sizes, in the model's own name for the batch: its bytes are known."""
    found = model_cost(_custom(False), {"x": Value(F, (10, 4))})
    square = found.nodes[1].cost
    assert square is not None
    assert (square.bytes, square.flops, square.counted) == (480, 0, False)
    assert found.uncounted == ("acme::Square",)


def test_a_declared_operator_counts_as_the_body_of_its_declaration() -> None:
    """Its body is in no function of this file."""
    from deployops.symbolic import registry

    registry.load_builtin()
    op = next(o for o in registry.all_operators() if o.name == "deployops::cube_root")
    attributes = {a.name: a.default for a in op.interface.attributes if a.default is not None}
    node = helper.make_node(op.op_type, ["x"], ["y"], domain=op.domain, name="n", **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 6, 8]) for n in ("x", "y")]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(op.domain, op.version)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    found = model_cost(model, {"x": Value(F, (4, 6, 8))})
    assert found.uncounted == ()
    assert found.flops[F] >= 4 * 6 * 8


def test_what_is_computed_of_constants_alone_is_not_of_a_run() -> None:
    weight = onnx.numpy_helper.from_array(np.ones((6, 4), np.float32), "w")
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Exp", ["t"], ["e"]),
        helper.make_node("MatMul", ["x", "e"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, s]) for n, s in (("x", 4), ("y", 6))]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], [weight]), ir_version=10)
    found = model_cost(model, {"x": Value(F, (3, 4))})
    assert [n.op_type for n in found.nodes] == ["MatMul"]
    assert found.flops == {F: 2 * 3 * 4 * 6}


def test_a_graph_inside_of_a_node_is_named_as_not_counted() -> None:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])],
        "b",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    found = model_cost(helper.make_model(graph, ir_version=10), {"x": Value(F, (3,)), "c": Value("bool", ())})
    assert found.uncounted == ("If",)


def test_external_weights_need_not_be_there(tmp_path: Path) -> None:
    model = _custom(True)
    big = onnx.numpy_helper.from_array(np.ones((4, 6), np.float32), "w")
    model.graph.initializer[0].CopyFrom(big)
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    loaded = onnx.load(str(path), load_external_data=False)
    found = model_cost(loaded, {"x": Value(F, (2, 4))})
    assert found.read == 2 * 4 * 4 + 4 * 6 * 4


def test_types_of_arrays_and_tensors() -> None:
    import ml_dtypes

    found = values_of(
        {"a": np.ones((2, 3), np.int8), "b": torch.ones(4, dtype=torch.bfloat16), "c": np.float32(1.0)}
    )
    assert found == {"a": Value("int8", (2, 3)), "b": Value("bfloat16", (4,)), "c": Value(F, ())}
    assert values_of({"d": np.ones(3, ml_dtypes.bfloat16)})["d"].size == 6


def test_a_long_vector_is_not_followed_as_if_it_were_a_shape() -> None:
    # ONNX would write out a dim for each of its numbers, for each node: minutes, and gigabytes.
    n = 1 << 26
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "a"], ["y"])],
        "long",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [n])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [n])],
    )
    assert value_shapes(helper.make_model(graph))["a"].shape == (n,)
