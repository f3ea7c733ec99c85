"""Exported nodes say which plugin is theirs; nobody else minds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops import export_model, inspect_model, operator
from deployops.errors import DeclarationError
from deployops.symbolic import registry

from ...ort_ops.twice_library import compiled

STATED = {"plugin_version": b"1", "plugin_namespace": b"deployops"}


class Two(torch.nn.Module):
    """A shipped operator twice, with an attribute and without one."""

    def __init__(self) -> None:
        super().__init__()
        registry.load_builtin()
        self.softmax, self.relu = (
            next(o for o in registry.all_operators() if o.name == f"deployops::{n}")
            for n in ("softmax", "relu")
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.relu(self.softmax(x, dim=0))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "function.onnx"
    export_model(Two(), ["x:float32[n=1..8,4]"], out=path, custom_ops="function")
    return path


def test_every_custom_node_carries_version_and_namespace(exported: Path) -> None:
    nodes = onnx.load(exported).graph.node
    assert [n.op_type for n in nodes] == ["StableSoftmax", "RectifiedLinear"]
    for node in nodes:
        given = {a.name: a for a in node.attribute}
        assert {name: given[name].s for name in STATED} == STATED
        assert all(given[name].type == onnx.AttributeProto.STRING for name in STATED)


def test_checker_inference_and_runtime_take_them(exported: Path) -> None:
    model = onnx.load(exported)
    onnx.checker.check_model(model, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    assert [d.dim_param or d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim] == [
        "n",
        4,
    ]
    x = np.array([[0.0, 1, 2, 3], [1, 1, 1, 1]], dtype=np.float32)
    session = onnxruntime.InferenceSession(str(exported), providers=["CPUExecutionProvider"])
    [y] = session.run(None, {"x": x})
    powers = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, powers / powers.sum(axis=0), rtol=1e-6)


def test_the_registered_schema_knows_their_type(exported: Path) -> None:
    model = onnx.load(exported)
    del model.functions[:]
    onnx.checker.check_model(model, full_check=True)
    [version] = [a for a in model.graph.node[0].attribute if a.name == "plugin_version"]
    version.CopyFrom(helper.make_attribute("plugin_version", 1))
    with pytest.raises(onnx.checker.ValidationError, match="plugin_version"):
        onnx.checker.check_model(model, full_check=True)


def test_a_kernel_of_onnx_runtime_ignores_them_and_inspection_knows(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y"))
    node = helper.make_node("Twice", ["x"], ["y"], domain="acme", plugin_version="3", plugin_namespace="acme")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 3)]
    made = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(compiled(tmp_path)))
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    [found] = session.run(None, {"x": np.array([1.5, 2], dtype=np.float32)})
    np.testing.assert_array_equal(found, [3, 4])


def test_expanded_bodies_carry_nothing(tmp_path: Path) -> None:
    export_model(Two(), ["x:float32[n=1..8,4]"], out=tmp_path / "m.onnx", custom_ops="standard")
    names = {a.name for node in onnx.load(tmp_path / "m.onnx").graph.node for a in node.attribute}
    assert not names & set(STATED)


def test_the_same_model_gives_the_same_bytes(exported: Path, tmp_path: Path) -> None:
    export_model(Two(), ["x:float32[n=1..8,4]"], out=tmp_path / "m.onnx", custom_ops="function")
    assert (tmp_path / "m.onnx").read_bytes() == exported.read_bytes()


def test_inspection_for_onnx_runtime_does_not_mind(exported: Path) -> None:
    found = inspect_model(exported)
    assert found.checked is not None
    assert found.checked.verdict != "would fail"
    assert found.tensorrt is None


@pytest.mark.parametrize(
    "name", ["plugin_version", "plugin_namespace", "tensorrt_plugin_shape_input_indices"]
)
def test_an_operator_may_not_have_them_itself(name: str) -> None:
    def theirs(x: torch.Tensor, value: str) -> torch.Tensor:
        return x

    with pytest.raises(DeclarationError, match="TensorRT reserves this name"):
        operator(f"acme::own_{name}", schema=f"(Tensor x, str {name}) -> Tensor")(theirs)
