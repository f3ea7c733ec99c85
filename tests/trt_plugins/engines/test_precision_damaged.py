"""Models that are damaged, invalid or meant to grow are refused in one line, before onnx's tools or numpy trip over them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from deployops.errors import ModelFileError, UsageError
from deployops.trt_plugins.engines.casting.cast_model import cast_model


def with_weight(**fields: Any) -> onnx.ModelProto:
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> g (float[4] x) => (float[4] y) { y = Add(x, w) }'
    )
    tensor = made.graph.initializer.add()
    tensor.name, tensor.data_type = "w", fields.pop("data_type", TensorProto.FLOAT)
    for name, value in fields.items():
        if isinstance(value, bytes):
            setattr(tensor, name, value)
        else:
            getattr(tensor, name).extend(value)
    return made


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"dims": [2**40], "raw_data": bytes(16)},
            "is to be 1099511627776, and has 16 bytes for values of 4",
        ),
        ({"dims": [2**40, 2**40], "raw_data": bytes(16)}, "has 16 bytes"),
        ({"dims": [4], "raw_data": bytes(15)}, "is to be 4, and has 15 bytes"),
        ({"dims": [4], "float_data": [1, 2]}, "is to be 4, and has 2 values"),
        ({"dims": [-4]}, "negative dim"),
        ({"dims": [4], "data_type": 99, "raw_data": bytes(16)}, "breaks ONNX's rules"),
    ],
)
def test_tensors_of_another_size_than_they_say(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelFileError, match=said):
        cast_model(with_weight(**fields), "fp16")


def test_a_tensor_in_a_node_too() -> None:
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> g (float[2] x) => (float[2] y) '
        "{ c = Constant<value = float[2] {1, 2}>() y = Add(x, c) }"
    )
    made.graph.node[0].attribute[0].t.dims[0] = 2**40
    with pytest.raises(ModelFileError, match="damaged: the tensor"):
        cast_model(made, "fp16")


@pytest.mark.parametrize("kind", [k for k in TensorProto.DataType.values() if k not in (0, 8)])
def test_tensors_as_onnx_makes_them_are_whole(kind: int) -> None:
    """Of every type, with raw bytes and with lists."""
    for raw in (False, True):
        made = parser.parse_model(
            '<ir_version: 9, opset_import: ["": 20]> g (float[3] x) => (float[3] y) { y = Relu(x) }'
        )
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        zeros = np.zeros(3, dtype)
        made.graph.initializer.append(
            numpy_helper.from_array(zeros, "w") if raw else helper.make_tensor("w", kind, [3], zeros)
        )
        assert cast_model(made, "fp16").narrow_nodes == 1


def calling(bodies: dict[str, list[tuple[str, str]]], opset: int = 20) -> onnx.ModelProto:
    """A model that calls the first function; each body is nodes of operator and domain, one after the other."""
    functions = []
    for name, nodes in bodies.items():
        values = ["a", *(f"m{k}" for k in range(1, len(nodes))), "o"]
        made = [
            helper.make_node(operator, [values[k]], [values[k + 1]], domain=domain)
            for k, (operator, domain) in enumerate(nodes)
        ]
        imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
        functions.append(helper.make_function("f", name, ["a"], ["o"], made, imports))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node(next(iter(bodies)), ["x"], ["y"], domain="f")], "g", [x], [y])
    return helper.make_model(
        graph,
        functions=functions,
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("f", 1)],
    )


def doubling(depth: int) -> onnx.ModelProto:
    bodies = {f"F{k}": [(f"F{k + 1}", "f")] * 2 for k in range(depth - 1)}
    return calling(bodies | {f"F{depth - 1}": [("Relu", ""), ("Neg", "")]})


def test_functions_that_double_are_counted_and_not_expanded() -> None:
    start = time.perf_counter()
    with pytest.raises(ModelFileError, match=r"1,073,741,824 nodes.*1,000,000 are refused.*f::F0"):
        cast_model(doubling(30), "fp16")
    with pytest.raises(ModelFileError, match="calls itself"):
        cast_model(calling({"F": [("Relu", ""), ("F", "f")]}), "fp16")
    with pytest.raises(ModelFileError, match="calls itself"):
        cast_model(calling({"F": [("G", "f")], "G": [("F", "f"), ("F", "f")]}), "fp16")
    assert time.perf_counter() - start < 10
    assert cast_model(doubling(4), "fp16").narrow_nodes == 16


def test_bodies_of_another_opset() -> None:
    """Softmax of opset 11 normalises over all axes from the given one on, later ones over one alone."""
    with pytest.raises(ModelFileError, match=r"f::F is of opset 11 and the model of opset 20, and Softmax"):
        cast_model(calling({"F": [("Softmax", "")]}, 11), "fp16")
    made = calling({"F": [("Relu", ""), ("Softmax", "")]}, 15)  # the same as in 20
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    cast = cast_model(made, "fp16")
    assert not cast.model.functions
    (was,) = ReferenceEvaluator(made).run(None, {"x": x})
    (now,) = ReferenceEvaluator(cast.model).run(None, {"x": x})
    assert 0 < np.abs(was - now).max() < 2e-3


def test_what_onnx_itself_refuses_is_an_invalid_model() -> None:
    made = calling({"F": [("Relu", ""), ("Neg", "")]})
    made.graph.node[0].input.extend(["x", "x"])
    with pytest.raises(ModelFileError, match="damaged or breaks ONNX's rules"):
        cast_model(made, "fp16")


def test_a_name_to_keep_that_is_nearly_one() -> None:
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20, "mine": 1]> g (float[4] x) => (float[4] y) { k = mine.KeepRows(x) y = Softmax(k) }'
    )
    with pytest.raises(UsageError, match=r"--keep-float32 keep_rows: .*Did you mean mine::KeepRows\?"):
        cast_model(made, "fp16", keep=["keep_rows"])
    with pytest.raises(UsageError, match=r"--keep-float32 Sofmax: .*Did you mean Softmax\?"):
        cast_model(made, "fp16", keep=["Sofmax"])
    with pytest.raises(
        UsageError, match=r"--keep-float32 Conv: nothing in the model is called 'Conv'\. It takes"
    ):
        cast_model(made, "fp16", keep=["Conv"])
    assert cast_model(made, "fp16", keep=["KeepRows"]).kept[0].reason == "you asked for it"
