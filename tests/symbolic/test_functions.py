"""Bodies: written once, run by ONNX Runtime as the reference runs, each node with its own attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import Tensor

from deployops.errors import DeclarationError
from deployops.symbolic import Operator, dtypes, functions, operator

_numbers = count()
OPSET = 20


def declare(reference: Callable[..., Any], body: Callable[..., Any], **options: Any) -> Operator:
    k = next(_numbers)
    op = operator(f"t_functions::op{k}", onnx=f"t_functions::Op{k}", **options)(reference)
    op.body(body)
    return op


def value(name: str, dtype: str, rank: int | None) -> ir.Value:
    shape = None if rank is None else ir.Shape([None] * rank)
    return ir.Value(name=name, shape=shape, type=ir.TensorType(ir.DataType(dtypes.onnx_number(dtype))))


def node(op: Operator, inputs: Sequence[ir.Value | None], outputs: int = 1, **attributes: Any) -> ir.Node:
    kinds = {a.name: a.onnx_type for a in op.interface.attributes}
    made = [ir.Attr(n, ir.AttributeType[kinds.get(n, "INT")], v) for n, v in attributes.items()]
    result = ir.Node(op.domain, op.op_type, inputs, made, num_outputs=outputs, version=op.version)
    for v in result.outputs:
        v.type = next(i for i in inputs if i is not None).type
    return result


def model(op: Operator, inputs: Sequence[ir.Value], nodes: Sequence[ir.Node], opset: int = OPSET) -> ir.Model:
    """A model whose outputs are all those of its nodes; with the bodies attached."""
    outputs = [o for n in nodes for o in n.outputs]
    for k, v in enumerate(outputs):
        v.name = f"y{k}"
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": opset, op.domain: op.version}, name="g")
    made = ir.Model(graph, ir_version=10)
    functions.attach(made, {(op.domain, op.op_type): op})
    return made


def run(made: ir.Model, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    proto = ir.to_proto(made)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [i.name for i in session.get_inputs()]
    return list(session.run(None, dict(zip(names, arrays, strict=True))))


def scaled(x: Tensor, k: float = 1.0) -> Tensor:
    return x * k


X = np.array([1.0, -2.0, 0.5], dtype=np.float32)


def single(body: Callable[..., Any], dtype: str = "float32", **attributes: Any) -> np.ndarray[Any, Any]:
    """`body` of an operator `(x, k)` on X."""
    op = declare(scaled, body)
    x = value("x", dtype, 1)
    return run(model(op, [x], [node(op, [x], **attributes)]), X.astype(dtype))[0]


# --- attributes -----------------------------------------------------------------------------------------------


def test_an_attribute_handed_on_stays_a_reference_and_nodes_share_the_body() -> None:
    op = declare(scaled, lambda op, x, k: op.LeakyRelu(x, alpha=k))
    x = value("x", "float32", 1)
    made = model(op, [x], [node(op, [x], k=0.5), node(op, [x], k=0.25)])
    (function,) = made.functions.values()
    assert [n.op_type for n in function] == ["LeakyRelu"]
    a, b = run(made, X)
    np.testing.assert_array_equal(a, [1.0, -1.0, 0.5])
    np.testing.assert_array_equal(b, [1.0, -0.5, 0.5])


def test_an_attribute_as_operand_follows_the_node_too() -> None:
    op = declare(scaled, lambda op, x, k: op.Mul(x, k))
    x = value("x", "float32", 1)
    made = model(op, [x], [node(op, [x], k=0.5), node(op, [x], k=-4.0)])
    assert len(made.functions) == 1
    a, b = run(made, X)
    np.testing.assert_array_equal(a, X * np.float32(0.5))
    np.testing.assert_array_equal(b, X * np.float32(-4))


def test_what_a_body_calculates_in_python_makes_a_function_for_each_node() -> None:
    op = declare(scaled, lambda op, x, k: op.Mul(x, 1 / k) if k > 1 else op.Neg(x))
    x = value("x", "float32", 1)
    nodes = [node(op, [x], k=k) for k in (2.0, 0.5, 4.0, 2.0)]
    made = model(op, [x], nodes)
    assert [n.overload for n in nodes] == ["", "v2", "v3", ""]
    assert len(made.functions) == 3
    results = run(made, X)
    for got, expected in zip(results, (X / 2, -X, X / 4, X / 2), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_other_dtypes_and_ranks_are_other_functions_where_the_body_looked() -> None:
    op = declare(
        scaled, lambda op, x, k: op.Add(x, 1.0) if x.rank == 1 else op.Add(op.cast(op.widen(x), x.dtype), 2.0)
    )
    x, z, h = value("x", "float32", 1), value("z", "float32", 2), value("h", "float16", 2)
    made = model(op, [x, z, h], [node(op, [v], k=1.0) for v in (x, z, h)])
    assert len(made.functions) == 3
    a, b, c = run(made, X, X[None], X[None].astype(np.float16))
    np.testing.assert_array_equal(a, X + 1)
    np.testing.assert_array_equal(b, X[None] + 2)
    np.testing.assert_array_equal(c, X[None].astype(np.float16) + np.float16(2))
    assert c.dtype == np.float16


def test_integer_string_and_list_attributes() -> None:
    def reference(x: Tensor, axis: int, mode: str, perm: list[int]) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def body(op: Any, x: Any, axis: int, mode: str, perm: list[int]) -> Any:
        return op.Softmax(x, axis=axis), op.Transpose(x, perm=perm) if mode == "t" else op.Identity(x)

    op = declare(reference, body)
    x = value("x", "float32", 2)
    a, b, c, d = run(
        model(
            op,
            [x],
            [
                node(op, [x], 2, axis=0, mode="t", perm=[1, 0]),
                node(op, [x], 2, axis=1, mode="n", perm=[0, 1]),
            ],
        ),
        np.eye(2, 3, dtype=np.float32),
    )
    np.testing.assert_allclose(a.sum(0), 1, rtol=1e-6)
    assert b.shape == (3, 2)
    np.testing.assert_allclose(c.sum(1), 1, rtol=1e-6)
    assert d.shape == (2, 3)


def test_an_empty_list_of_floats_has_its_declared_type() -> None:
    def reference(x: Tensor, names: list[str], scales: list[float]) -> Tensor:
        raise NotImplementedError

    op = declare(reference, lambda op, x, names, scales: op.Constant(value_floats=scales))
    x = value("x", "float32", 1)
    made = model(op, [x], [node(op, [x], names=[], scales=[])])
    (function,) = made.functions.values()
    assert function[0].attributes["value_floats"].type == ir.AttributeType.FLOATS
    types = {n: a.type for n, a in function.attributes.items()}
    assert types == {"names": ir.AttributeType.STRINGS, "scales": ir.AttributeType.FLOATS}


def test_a_dtype_attribute_is_a_dtype() -> None:
    def reference(x: Tensor, dtype: torch.dtype) -> Tensor:
        raise NotImplementedError

    def body(op: Any, x: Any, dtype: torch.dtype) -> Any:
        assert isinstance(dtype, torch.dtype)
        return op.cast(x, dtypes.name_of(dtype))

    op = declare(reference, body)
    x = value("x", "float32", 1)
    made_node = node(op, [x], dtype=7)
    made_node.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    (y,) = run(model(op, [x], [made_node]), X)
    assert y.dtype == np.int64


# --- constants and dtypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_number_takes_the_dtype_of_the_tensor_beside_it(dtype: str) -> None:
    y = single(lambda op, x, k: op.Add(op.Mul(x, 3), 0.5), dtype, k=1.0)
    np.testing.assert_array_equal(y, X.astype(dtype) * 3 + np.array(0.5, dtype))
    assert y.dtype == dtype


def test_float64_bodies_are_exact_although_onnx_attributes_are_float32() -> None:
    k = 0.1
    assert float(np.float32(k)) != k
    for body in (lambda op, x, k: op.Mul(x, k), lambda op, x, k: op.Mul(x, k * 1)):
        y = single(body, "float64", k=k)
        np.testing.assert_array_equal(y, X.astype(np.float64) * k)


def test_a_number_without_a_tensor_beside_it_is_said() -> None:
    with pytest.raises(DeclarationError, match=r"t_functions::op\d+: body: op.Sqrt: a number needs a tensor"):
        single(lambda op, x, k: op.Sqrt(2.0), k=1.0)


def test_constant_tensors() -> None:
    y = single(lambda op, x, k: op.Gather(x, op.tensor([2, 0], "int64")), k=1.0)
    np.testing.assert_array_equal(y, X[[2, 0]])


def test_widen_and_cast_know_what_is_there_already() -> None:
    seen: list[Any] = []

    def body(op: Any, x: Any, k: float) -> Any:
        wide = op.widen(x)
        seen.append((x.dtype, x.rank, x.is_half, wide.dtype, wide is x, op.cast(wide, x.dtype).dtype))
        return op.cast(op.Exp(wide), x.dtype)

    single(body, "float16", k=1.0)
    single(body, "float32", k=1.0)
    assert seen == [
        ("float16", 1, True, "float32", False, "float16"),
        ("float32", 1, False, "float32", True, "float32"),
    ]


def test_results_of_standard_nodes_have_dtype_and_rank() -> None:
    seen: list[Any] = []

    def body(op: Any, x: Any, k: float) -> Any:
        """The rank of the second follows from a constant."""
        shape = op.Shape(x)
        wide = op.Unsqueeze(x, op.tensor([0], "int64"))
        values, places = op.TopK(x, op.tensor([1], "int64"), _outputs=2)
        seen.extend((t.dtype, t.rank) for t in (shape, wide, op.Greater(x, 0.0), values, places))
        return op.Add(x, values)

    single(body, k=1.0)
    assert seen == [("int64", 1), ("float32", 2), ("bool", 1), ("float32", 1), ("int64", 1)]


# --- inputs and outputs ---------------------------------------------------------------------------------------


def test_an_absent_optional_input_is_none() -> None:
    def reference(x: Tensor, w: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def body(op: Any, x: Any, w: Any, b: Any) -> Any:
        x = x if w is None else op.Mul(x, w)
        return op.Identity(x) if b is None else op.Add(x, b)

    op = declare(reference, body)
    x, w, b = (value(n, "float32", 1) for n in "xwb")
    nodes = [node(op, [x]), node(op, [x, w]), node(op, [x, None, b]), node(op, [x, w, b])]
    made = model(op, [x, w, b], nodes)
    assert len(made.functions) == 4
    two, one = np.float32([2]), np.float32([1])
    for got, expected in zip(run(made, X, two, one), (X, X * 2, X + 1, X * 2 + 1), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_lists_of_tensors_of_any_length() -> None:
    def reference(xs: list[Tensor], ys: list[Tensor]) -> Tensor:
        raise NotImplementedError

    op = declare(reference, lambda op, xs, ys: op.Sub(op.Sum(*xs), op.Sum(*ys)))
    x, y = value("x", "float32", 1), value("y", "float32", 1)
    nodes = [
        node(op, [x, x, y], xs_count=2, ys_count=1),
        node(op, [x, y, y], xs_count=1, ys_count=2),
    ]
    a, b = run(model(op, [x, y], nodes), X, np.float32([1, 1, 1]))
    np.testing.assert_array_equal(a, 2 * X - 1)
    np.testing.assert_array_equal(b, X - 2)


def test_several_outputs_one_value_twice_and_an_input_itself() -> None:
    def reference(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def body(op: Any, x: Any) -> Any:
        y = op.Neg(x)
        return y, y, x

    op = declare(reference, body)
    x = value("x", "float32", 1)
    a, b, c = run(model(op, [x], [node(op, [x], 3)]), X)
    np.testing.assert_array_equal(a, -X)
    np.testing.assert_array_equal(b, -X)
    np.testing.assert_array_equal(c, X)


def test_the_bodys_opset_is_the_models() -> None:
    op = declare(scaled, lambda op, x, k: op.ReduceSum(x, op.tensor([0], "int64"), keepdims=1))
    for opset in (18, 21, 23):
        x = value("x", "float32", 1)
        made = model(op, [x], [node(op, [x], k=1.0)], opset)
        (function,) = made.functions.values()
        assert function.opset_imports == {"": opset}


def test_a_node_without_a_body_is_left_alone() -> None:
    op = operator(f"t_functions::op{next(_numbers)}", onnx="t_functions::Bare")(scaled)
    x = value("x", "float32", 1)
    assert not model(op, [x], [node(op, [x], k=1.0)]).functions


# --- wrong bodies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda op, x, k: op.Frobnicate(x), "op.Frobnicate: opset 20 has no such operator"),
        (lambda op, x, k: op.Swish(x), "no such operator"),  # from opset 24 on
        (lambda op, x, k: (x, x), r"returned a tuple of 2 \(tensor, tensor\); expected one tensor, `y`"),
        (lambda op, x, k: [], "returned a list of 0; expected one tensor, `y`"),
        (
            lambda op, x, k: None,
            r"returned nothing \(None\): is a `return` missing\?; expected one tensor, `y`",
        ),
        (lambda op, x, k: torch.sigmoid(x), r"torch's sigmoid was called: a body is made of op.X"),
        (lambda op, x, k: x.sigmoid(), r"has no `sigmoid`: a body is made of op.X"),
        (
            lambda op, x, k: op.cast(x, "float64"),
            r"returned `y` in float64, .* is float32: .*op.cast\(y, x.dtype\)",
        ),
        (
            lambda op, x, k: op.Add(x, op.RandomNormalLike(x)),
            "op.RandomNormalLike is random: .*stateful=True",
        ),
        (lambda op, x, k: x + 1, r"`\+` does not work on the tensors of a body: write op.Add"),
    ],
)
def test_a_wrong_body_is_said(body: Any, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason) as caught:
        single(body, k=1.0)
    assert "t_functions::op" in str(caught.value)


def test_a_body_takes_op_and_the_operators_own_arguments() -> None:
    op = operator(f"t_functions::op{next(_numbers)}", onnx="t_functions::Own")(scaled)
    with pytest.raises(DeclarationError, match=r"takes \(op, x, scale\); expected \(op, x, k\)"):
        op.body(lambda op, x, scale: x)


def test_bodies_are_reproducible() -> None:
    op = declare(scaled, lambda op, x, k: op.Mul(op.Exp(x), k))

    def written() -> bytes:
        x = value("x", "float32", 1)
        return ir.to_proto(model(op, [x], [node(op, [x], k=0.5)])).SerializeToString(deterministic=True)

    assert written() == written()
