"""Faults of weights, types, functions and shapes: told of each file that the installed ONNX Runtime refuses, and of no other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deployops.ort_ops.inspection.check import check_model
from deployops.ort_ops.inspection.runtime_limits import limits_for
from deployops.symbolic.graph_inspection import shape_faults

from .twice_library import refusal

node = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, dtype: int = FLOAT, shape: Any = (2, 2)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


ANY = value("y", shape=None)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Any = None,
    output: onnx.ValueInfoProto = ANY,
    init: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[tuple[str, int]] = (("f", 1),),
    infos: Sequence[onnx.ValueInfoProto] = (),
    sparse: Sequence[onnx.SparseTensorProto] = (),
) -> onnx.ModelProto:
    given = [value("x")] if inputs is None else inputs
    graph = helper.make_graph(
        list(nodes), "g", given, [output], list(init), value_info=list(infos), sparse_initializer=list(sparse)
    )
    opsets = [helper.make_opsetid("", 20), *(helper.make_opsetid(*d) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def tensor(name: str, dims: Sequence[int], dtype: int = FLOAT, **fields: Any) -> onnx.TensorProto:
    return TensorProto(name=name, dims=dims, data_type=dtype, **fields)


def stored(dims: Sequence[int], dtype: int = FLOAT, **fields: Any) -> onnx.ModelProto:
    """A model of one weight."""
    return model(
        [node("Identity", ["w"], ["y"])], [], value("y", dtype, None), [tensor("w", dims, dtype, **fields)]
    )


def sparse(
    indices: Sequence[int], dims: Sequence[int], index_dims: Sequence[int] | None = None
) -> onnx.ModelProto:
    count = len(indices) if index_dims is None else index_dims[0]
    made = onnx.SparseTensorProto(dims=dims)
    made.values.CopyFrom(tensor("w", [count], float_data=[1.0] * count))
    made.indices.CopyFrom(tensor("i", index_dims or [count], INT64, int64_data=indices))
    return model([node("Identity", ["w"], ["y"])], [], sparse=[made])


def function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], *nodes: onnx.NodeProto, opset: int = 20
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, list(inputs), list(outputs), list(nodes), opsets)


def called(
    made: onnx.FunctionProto, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",)
) -> onnx.ModelProto:
    return model([node(made.name, list(inputs), list(outputs), domain="f")], functions=[made])


def deep(count: int) -> onnx.ModelProto:
    made = [function("F0", ["a"], ["b"], node("Relu", ["a"], ["b"]))]
    made += [
        function(f"F{k}", ["a"], ["b"], node(f"F{k - 1}", ["a"], ["b"], domain="f")) for k in range(1, count)
    ]
    return model([node(f"F{count - 1}", ["x"], ["y"], domain="f")], functions=made)


def twice(made: onnx.NodeProto) -> onnx.NodeProto:
    made.attribute.append(helper.make_attribute("alpha", 0.5))
    return made


def typed(path: str, element: int | None = None) -> onnx.ModelProto:
    """A second input of a type by its fields, which nothing reads."""
    made = onnx.ValueInfoProto(name="s")
    kind: Any = made.type
    for part in path.split("."):
        kind = getattr(kind, part)
    kind.SetInParent()
    if element is not None:
        kind.elem_type = element
    return model([node("Relu", ["x"], ["y"])], [value("x"), made])


def ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def shaped(
    op: str, *more: onnx.TensorProto, outputs: Sequence[str] = ("y",), **attributes: Any
) -> onnx.ModelProto:
    return model([node(op, ["x", *(t.name for t in more)], list(outputs), **attributes)], init=more)


RELU = function("A", ["a"], ["b"], node("Relu", ["a"], ["b"]))
TWO = function("A", ["a"], ["b", "c"], node("Relu", ["a"], ["b"]), node("Neg", ["a"], ["c"]))
ADD = function("A", ["a", "c"], ["b"], node("Add", ["a", "c"], ["b"]))
BRANCH = helper.make_graph([node("Concat", ["x", "x"], ["q"], axis=9)], "b", [], [value("q", shape=None)])
POOL = [value("x", shape=(1, 1, 4, 4))]
AXIS9 = node("Concat", ["a", "a"], ["b"], axis=9)

# kind of finding ("" where ONNX Runtime opens the model) and model
CASES: dict[str, tuple[str, onnx.ModelProto]] = {
    "bytes": ("", stored([4], raw_data=bytes(16))),
    "too few bytes": ("tensor-data", stored([4], raw_data=bytes(4))),
    "too many bytes": ("tensor-data", stored([4], raw_data=bytes(400))),
    "no data": ("tensor-data", stored([4])),
    "no elements": ("", stored([0], raw_data=b"")),
    "no elements and data": ("tensor-data", stored([0], raw_data=b"1234")),
    "a negative dim": ("tensor-data", stored([-1, 4], raw_data=bytes(16))),
    "dims beyond 64 bits": ("tensor-data", stored([2**40, 2**40], raw_data=bytes(4))),
    "dims of terabytes": ("tensor-data", stored([2**40], raw_data=bytes(4))),
    "numbers": ("", stored([4], float_data=[1.0] * 4)),
    "too few numbers": ("tensor-data", stored([4], float_data=[1.0])),
    "too many numbers": ("tensor-data", stored([4], float_data=[1.0] * 5)),
    "numbers of another field": ("tensor-data", stored([4], int64_data=[1] * 4)),
    "float16 as numbers": ("", stored([4], TensorProto.FLOAT16, int32_data=[1] * 4)),
    "too few float16": ("tensor-data", stored([4], TensorProto.FLOAT16, int32_data=[1] * 3)),
    "bool as numbers": ("", stored([4], TensorProto.BOOL, int32_data=[1] * 4)),
    "uint32 as numbers": ("", stored([4], TensorProto.UINT32, uint64_data=[1] * 4)),
    "uint32 of another field": ("tensor-data", stored([4], TensorProto.UINT32, int32_data=[1] * 4)),
    "strings": ("", stored([2], TensorProto.STRING, string_data=[b"a", b"b"])),
    "too few strings": ("tensor-data", stored([2], TensorProto.STRING, string_data=[b"a"])),
    "strings as bytes": ("tensor-data", stored([2], TensorProto.STRING, raw_data=b"ab")),
    "no element type": ("tensor-data", stored([4], 0, raw_data=bytes(16))),
    "an element type that is none": ("tensor-data", stored([4], 99, raw_data=bytes(16))),
    "too few bytes, unread": ("", model([node("Relu", ["x"], ["y"])], init=[tensor("w", [4], raw_data=bytes(4))])),
    "a constant with too few bytes": (
        "tensor-data",
        model([node("Constant", [], ["c"], value=tensor("v", [4], raw_data=bytes(4))), node("Neg", ["c"], ["y"])]),
    ),
    "a constant of shape with two numbers": (
        "tensor-data",
        model(
            [node("ConstantOfShape", ["s"], ["y"], value=tensor("v", [2], raw_data=bytes(8)))],
            [value("s", INT64, (2,))],
        ),
    ),
    "two initializers of one name, alike": (
        "",
        model([node("Identity", ["w"], ["y"])], init=[tensor("w", [1], raw_data=bytes(4))] * 2),
    ),
    "two initializers of one name": (
        "initializer-twice",
        model(
            [node("Identity", ["w"], ["y"])],
            init=[tensor("w", [1], raw_data=bytes(4)), tensor("w", [2], raw_data=bytes(8))],
        ),
    ),
    "a sparse tensor": ("", sparse([1], [2, 2])),
    "a sparse tensor, two indices each": ("", sparse([1, 1], [2, 2], [1, 2])),
    "a sparse index far outside": ("sparse-data", sparse([2**40], [2, 2])),
    "a sparse index one outside": ("sparse-data", sparse([4], [2, 2])),
    "a sparse index below": ("sparse-data", sparse([-1], [2, 2])),
    "a sparse index outside its dim": ("sparse-data", sparse([1, 2], [2, 2], [1, 2])),
    "huge sparse dims": ("sparse-data", sparse([1], [2**40, 2**40])),
    "an output of another type": ("type-declared", model([node("Relu", ["x"], ["y"])], output=value("y", INT64))),
    "a value of another type": (
        "type-declared",
        model([node("Relu", ["x"], ["z"]), node("Relu", ["z"], ["y"])], infos=[value("z", INT64)]),
    ),
    "an output of another shape": ("", model([node("Relu", ["x"], ["y"])], output=value("y", shape=(7, 9)))),
    "an attribute twice": ("attribute-twice", model([twice(node("LeakyRelu", ["x"], ["y"], alpha=0.1))])),
    "an attribute twice in a function": (
        "",
        called(function("A", ["a"], ["b"], twice(node("LeakyRelu", ["a"], ["b"], alpha=0.1)))),
    ),
    "a function": ("", called(RELU)),
    "more inputs than the function has": ("inputs", called(RELU, ["x", "x", "x"])),
    "more outputs than the function has": ("outputs", called(RELU, outputs=["y", "z"])),
    "fewer outputs than the function has": ("outputs", called(TWO)),
    "an output that is left out": ("", called(TWO, outputs=["y", ""])),
    "an input of a function left out and read": ("inputs", called(ADD)),
    "a function's output that nothing makes": (
        "output-not-made",
        called(function("A", ["a"], ["b"], node("Relu", ["a"], ["c"]))),
    ),
    "a function's output that is its input": (
        "output-not-made",
        called(function("A", ["a"], ["a"], node("Relu", ["a"], ["c"]))),
    ),
    "a value that nothing in the function makes": (
        "input-not-made",
        called(function("A", ["a"], ["b"], node("Add", ["a", "q"], ["b"]))),
    ),
    "a function out of order": (
        "function-order",
        called(function("A", ["a"], ["b"], node("Relu", ["c"], ["b"]), node("Relu", ["a"], ["c"]))),
    ),
    "made twice in a function": (
        "value-twice",
        called(function("A", ["a"], ["b"], node("Relu", ["a"], ["b"]), node("Neg", ["a"], ["b"]))),
    ),
    "a function of an opset to come": (
        "opset-too-new",
        called(function("A", ["a"], ["b"], node("Relu", ["a"], ["b"]), opset=99)),
    ),
    "an older function": ("", called(function("A", ["a"], ["b"], node("Relu", ["a"], ["b"]), opset=18))),
    "a domain of the runtime to come": (
        "opset-too-new",
        model([node("Relu", ["x"], ["y"])], domains=[("com.microsoft", 2)]),
    ),
    "ai.onnx.ml 5": ("", model([node("Relu", ["x"], ["y"])], domains=[("ai.onnx.ml", 5)])),
    "ai.onnx.ml 6": ("opset-too-new", model([node("Relu", ["x"], ["y"])], domains=[("ai.onnx.ml", 6)])),
    "functions 100 deep": ("", deep(100)),
    "functions 101 deep": ("functions-deep", deep(101)),
    "a sequence of nothing": ("value-type", typed("sequence_type")),
    "nested sequences of nothing": ("value-type", typed("sequence_type.elem_type.sequence_type")),
    "an optional of nothing": ("value-type", typed("optional_type")),
    "a map of nothing": ("value-type", typed("map_type")),
    "a tensor of nothing": ("value-type", typed("tensor_type")),
    "a tensor of type 99": ("value-type", typed("tensor_type", 99)),
    "a sequence of sequences": (
        "value-type",
        typed("sequence_type.elem_type.sequence_type.elem_type.tensor_type", FLOAT),
    ),
    "a sequence": ("", typed("sequence_type.elem_type.tensor_type", FLOAT)),
    "an optional sequence": ("", typed("optional_type.elem_type.sequence_type.elem_type.tensor_type", FLOAT)),
    "a stride of 0": (
        "shape",
        model([node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[0, 0])], POOL),
    ),
    "a stride": ("", model([node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])], POOL)),
    "an axis of Split": ("shape", shaped("Split", outputs=["y", "z"], axis=99, num_outputs=2)),
    "an axis of TopK": ("shape", shaped("TopK", ints("k", 1), outputs=["y", "i"], axis=-9)),
    "Reshape": ("shape", shaped("Reshape", ints("s", 0, -1, 0, -1))),
    "Reshape that fits": ("", shaped("Reshape", ints("s", 4, -1))),
    "Reshape by a constant node": (
        "shape",
        model([node("Constant", [], ["s"], value=ints("v", 0, -1, 0, -1)), node("Reshape", ["x", "s"], ["y"])]),
    ),
    "Einsum": ("shape", shaped("Einsum", equation="ij->k->")),
    "sizes of a product": ("shape", model([node("MatMul", ["x", "v"], ["y"])], [value("x"), value("v", shape=(3, 2))])),
    "behind a custom node": (
        "shape",
        model(
            [node("Gelu", ["x"], ["q"], domain="com.microsoft"), node("Concat", ["x", "x"], ["y"], axis=9)],
            domains=[("com.microsoft", 1)],
        ),
    ),
    "in a branch": (
        "shape",
        model(
            [node("If", ["c"], ["y"], then_branch=BRANCH, else_branch=BRANCH)],
            [value("x"), value("c", TensorProto.BOOL, ())],
        ),
    ),
    "in a function": ("shape", called(function("A", ["a"], ["b"], AXIS9))),
    "int4 where the opset has none": ("type-not-allowed", stored([4], TensorProto.INT4, raw_data=bytes(2))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_onnx_runtime_refuses_is_told_and_nothing_else(name: str) -> None:
    kind, proto = CASES[name]
    assert (refusal(proto) is not None) == bool(kind)
    inferred = shape_faults.infer(proto)
    assert not inferred.not_checked
    found = check_model(proto, limits_for("installed"), inferred=inferred)
    fails = [f.kind for f in found.findings if f.severity == "would fail"]
    assert kind in fails if kind else not fails, found.findings


@pytest.mark.parametrize(
    ("entries", "opens"),
    [
        ({}, True),
        ({"length": 16}, True),
        ({"length": 0}, True),
        ({"length": 8}, False),
        ({"length": 20}, False),
        ({"offset": 4}, False),
        ({"offset": 4, "length": 12}, False),
        ({"offset": -4}, False),
        ({"length": "x"}, False),
    ],
)
def test_parts_of_side_files(tmp_path: Path, entries: dict[str, Any], opens: bool) -> None:
    import onnxruntime

    (tmp_path / "w.data").write_bytes(bytes(16))
    weight = tensor("w", [4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": "w.data", **entries}.items():
        weight.external_data.add(key=key, value=str(text))
    proto = model([node("Neg", ["w"], ["y"])], [], init=[weight])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    try:
        onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        opened = True
    except Exception:
        opened = False
    assert opened == opens
    found = check_model(proto, limits_for("installed"), folder=tmp_path)
    assert ("tensor-data" not in [f.kind for f in found.findings]) == opens


def entries(count: int, where: str) -> onnx.ModelProto:
    """A model with many of something."""
    proto = model([node("Relu", ["x"], ["y"])], domains=())
    if where == "opset imports":
        proto.opset_import.extend(helper.make_opsetid(f"d{k}", 1) for k in range(count))
    elif where == "one domain":
        proto.opset_import.extend(helper.make_opsetid("d", k) for k in range(count))
    elif where == "functions":
        proto.functions.extend(
            function(f"F{k}", ["a"], ["b"], node("Relu", ["a"], ["b"])) for k in range(count)
        )
    elif where == "metadata":
        for k in range(count):
            proto.metadata_props.add(key=f"k{k}", value="v")
    elif where == "values":
        proto.graph.value_info.extend(value(f"v{k}") for k in range(count))
    elif where == "initializers":
        proto.graph.initializer.extend(tensor(f"w{k}", [0]) for k in range(count))
    else:
        proto.graph.node[0].attribute.extend(helper.make_attribute(f"a{k}", 1) for k in range(count))
    return proto


@pytest.mark.parametrize(
    "where", ["opset imports", "one domain", "functions", "metadata", "values", "initializers", "attributes"]
)
def test_ten_times_as_many_take_no_hundred_times_as_long(where: str) -> None:
    few, many = entries(2_000, where), entries(20_000, where)
    spent = []
    for proto in (few, many):
        start = time.process_time()
        check_model(proto, limits_for("onnxruntime==1.32.0"))
        spent.append(time.process_time() - start)
    assert spent[1] < 30 * spent[0] + 0.5  # linear is 10, quadratic 100


def test_inference_that_does_not_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = shape_faults.infer(CASES["Reshape"][1], limit_s=0.001)
    assert not found.findings
    assert found.not_checked[0].startswith("the shapes at the nodes, all of them: not done after 0.001 s")
    monkeypatch.setattr(shape_faults, "MOST_NODES", 0)
    assert "0 are looked at" in shape_faults.infer(CASES["Reshape"][1]).not_checked[0]
    monkeypatch.setattr(shape_faults, "MOST_NODES", 9)
    monkeypatch.setattr(shape_faults, "_START", "import os; os.write(1, b'@Conv\\n'); os._exit(7)")
    assert "ended with 7, at Conv" in shape_faults.infer(CASES["Reshape"][1]).not_checked[0]
    monkeypatch.setattr(shape_faults, "MOST_BYTES", 10)
    assert "without its weights" in shape_faults.infer(CASES["Reshape"][1]).not_checked[0]
