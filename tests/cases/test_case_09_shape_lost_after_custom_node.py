"""Case 09: after a custom node every tensor keeps its shape, also in ONNX's own inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

import deployops
from deployops.errors import ExportError


class Blur(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.roll(1, -1) * 0.5 + x * 0.5

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme09::Blur", x)


class BlurTyped(Blur):
    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("acme09::Blur", x).setType(x.type())


@deployops.operator("acme09::upsample", onnx="acme09::Repeat", dtypes=("float32",))
def upsample(x: Tensor, factor: int) -> Tensor:
    return x.repeat_interleave(factor, -1)


@upsample.fake
def _(x: Tensor, factor: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], x.shape[-1] * factor)


@upsample.samples
def _(draw: Any) -> Any:
    yield draw(2, 3, 4, 5), 2
    yield draw(2, 8), 2


@deployops.operator("acme09::halves", onnx="acme09::Halves", dtypes=("float32",))
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    n = x.shape[-1] // 2
    return x[..., :n].clone(), x[..., :n].argmax(-1)


@halves.fake
def _(x: Tensor) -> Any:
    return x.new_empty(*x.shape[:-1], x.shape[-1] // 2), x.new_empty(x.shape[:-1], dtype=torch.int64)


@halves.samples
def _(draw: Any) -> Any:
    yield (draw(2, 3, 4, 6),)
    yield (draw(2, 8),)


class Net(torch.nn.Module):
    def __init__(self, first: Any) -> None:
        super().__init__()
        self.first = first
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(self.first(x))
        return torch.nn.functional.adaptive_avg_pool2d(torch.relu(y), (1, 1)).flatten(1)


def known(proto: onnx.ModelProto, symbols: set[str]) -> dict[str, bool]:
    """Tensor -> whether its dims are all numbers or expressions of the inputs' symbols."""
    from deployops.symbolic import dims

    values = [*proto.graph.value_info, *proto.graph.output]
    return {
        v.name: bool(v.type.tensor_type.elem_type)
        and v.type.tensor_type.HasField("shape")
        and all(
            d.HasField("dim_value") or (d.dim_param and set(dims.names(d.dim_param)) <= symbols)
            for d in v.type.tensor_type.shape.dim
        )
        for v in values
    }


@pytest.mark.parametrize("blur", [Blur, BlurTyped])
def test_every_tensor_after_the_node_is_typed_and_shaped(deploy: Any, blur: Any) -> None:
    exported = deploy(Net(blur.apply).eval(), ["x:float32[N,3,8,8]"])
    assert exported.ops[0] == "acme09::Blur"
    found = known(exported.proto, {"N"})
    made = [o for n in exported.proto.graph.node for o in n.output]
    assert len(made) >= 4
    assert all(found.get(o) for o in made), {o: found.get(o) for o in made}


def test_a_declared_operator_carries_shapes_through_onnx_by_itself(deploy: Any) -> None:
    exported = deploy(Net(lambda x: upsample(x, 2)).eval(), ["x:float32[N,3,8,w]"])
    bare = onnx.ModelProto()
    bare.CopyFrom(exported.proto)
    del bare.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(bare, strict_mode=True)
    after = next(v for v in inferred.graph.value_info if v.name == exported.node("Repeat").output[0])
    dims = [d.dim_param or d.dim_value for d in after.type.tensor_type.shape.dim]
    assert dims == ["N", 3, 8, "2*w"]
    assert after.type.tensor_type.elem_type == TensorProto.FLOAT


def test_several_outputs_with_dims_and_dtypes_of_their_own(deploy: Any) -> None:
    class Two(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return halves(x * 2)

    exported = deploy(Two(), ["x:float32[N,w]"])
    assert exported.dims("output_0") == ["N", "floor(w/2)"]
    assert exported.dims("output_1") == ["N"]
    assert exported.proto.graph.output[1].type.tensor_type.elem_type == TensorProto.INT64


def bare_graph(op_type: str, outputs: list[str], **attributes: Any) -> onnx.ModelProto:
    """A graph of another producer: the custom node first, then standard ones, no value_info at all."""
    nodes = [
        helper.make_node(op_type, ["x"], outputs, domain="acme09", **attributes),
        helper.make_node("Relu", [outputs[0]], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[1, 0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_empty_tensor_value_info("y")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme09", 1)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def test_a_graph_from_another_producer_gets_its_shapes(deploy: Any) -> None:
    from deployops.symbolic import schema

    schema.register(upsample)
    model = bare_graph("Repeat", ["a"], factor=3)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    shape = inferred.graph.output[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in shape.dim] == [24, "N"]


def test_an_attribute_that_the_operator_does_not_have_is_refused_by_the_checker(deploy: Any) -> None:
    from deployops.symbolic import schema

    schema.register(upsample)

    def model(**attributes: Any) -> onnx.ModelProto:
        made = bare_graph("Repeat", ["a"], **attributes)
        made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [24, "N"]))
        return made

    onnx.checker.check_model(model(factor=3))
    for wrong in ({"factor": 3, "axis": 1}, {"factor": 3.5}, {}):
        with pytest.raises(onnx.checker.ValidationError):
            onnx.checker.check_model(model(**wrong))


def test_a_size_that_depends_on_the_data_is_a_symbol_of_its_own(deploy: Any) -> None:
    class Positive(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            rows = x[:, 0].nonzero()
            return rows, x.sum(1)

    exported = deploy(Positive(), ["x:float32[N,4]"])
    first, second = exported.dims("output_0"), exported.dims("output_1")
    assert second == ["N"]
    assert isinstance(first[0], str)
    assert first[0] != "N"
    x = np.array([[0, 1, 1, 1], [2, 0, 0, 0], [3, 1, 1, 1]], np.float32)
    np.testing.assert_array_equal(exported.run(x)[0], [[1], [2]])


def test_the_first_tensor_without_a_shape_is_named() -> None:
    import onnx_ir as ir

    from deployops.export.checks import check_structure

    proto = bare_graph("NobodyKnows", ["a"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, "N"]))
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, None))
    proto.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N", 8]))
    with pytest.raises(ExportError, match=r"shapes are lost.*a \(from acme09::NobodyKnows\)"):
        check_structure(ir.from_proto(proto))
