"""A quick sweep visits the declared maximum where a run there costs little, and says where it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import deployops
from deployops.export.inputs.signature import signature_from_specs
from deployops.validation import validate
from deployops.validation.inputs.declared_maxima import MOST_FLOPS, cheap_sizes, declared_maxima
from deployops.validation.inputs.samples import from_signature
from deployops.validation.inputs.sizes import OpenDim

BATCH = OpenDim("batch", 4, 1, 64)
LENGTH = OpenDim("length", 8, 1, 512)
TRIED = [{"batch": 4}, {"batch": 3}, {"batch": 1}]


def always(_: Any) -> bool:
    return True


def never(_: Any) -> bool:
    return False


def test_the_maximum_is_tried_where_it_is_cheap_and_said_where_not() -> None:
    notes: dict[str, None] = {}
    assert declared_maxima([BATCH], TRIED, always, notes) == [{"batch": 64}]
    assert notes == {}
    assert declared_maxima([BATCH], TRIED, never, notes) == []
    assert list(notes) == [
        "the declared maximum 64 of batch was not tried, for the cost: --sweep full tries it"
    ]


@pytest.mark.parametrize(
    ("dim", "tried"),
    [
        (BATCH, [*TRIED, {"batch": 64}]),  # the example or another size is the maximum already
        (OpenDim("batch", 4), TRIED),  # none is declared
    ],
)
def test_nothing_is_added_or_said_without_need(dim: OpenDim, tried: list[dict[str, int]]) -> None:
    notes: dict[str, None] = {}
    assert declared_maxima([dim], tried, always, notes) == []
    assert declared_maxima([dim], tried, never, notes) == []
    assert notes == {}


def test_a_multiple_is_kept() -> None:
    assert declared_maxima([OpenDim("w", 32, 1, 100, 32)], [{"w": 32}], always, {}) == [{"w": 96}]


def test_together_else_each_alone() -> None:
    tried = [{"batch": 4, "length": 8}, {"batch": 1, "length": 1}]
    assert declared_maxima([BATCH, LENGTH], tried, always, {}) == [{"batch": 64, "length": 512}]
    notes: dict[str, None] = {}

    def few(sizes: Any) -> bool:
        return bool(sizes["batch"] * sizes["length"] <= 2048)

    assert declared_maxima([BATCH, LENGTH], tried, few, notes) == [
        {"batch": 64, "length": 8},
        {"batch": 4, "length": 512},
    ]
    assert "one by one, and not batch=64 with length=512" in next(iter(notes))
    notes = {}

    def fewer(sizes: Any) -> bool:
        return bool(sizes["batch"] * sizes["length"] <= 1024)

    assert declared_maxima([BATCH, LENGTH], tried, fewer, notes) == [{"batch": 64, "length": 8}]
    assert "the declared maximum 512 of length was not tried" in next(iter(notes))


def convolution(build: Callable[..., Path], channels: int) -> onnx.ModelProto:
    """3 x 3 over an image of 32 x 32: 2 x 9 x channels^2 x 1024 operations for each item."""
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    shape = ["batch", channels, 32, 32]
    weight = np.zeros((channels, channels, 3, 3), np.float32)
    return onnx.load(str(build(nodes, [("x", "float", shape)], [("y", "float", shape)], {"w": weight})))


def test_the_cost_is_that_of_the_file(build: Callable[..., Path]) -> None:
    model = convolution(build, 64)
    each = 2 * 9 * 64 * 64 * 1024
    most = MOST_FLOPS // each
    cheap = cheap_sizes(model, signature_from_specs(["x:float32[batch=1..64,64,32,32]"]))
    assert cheap({"batch": most})
    assert not cheap({"batch": most + 1})
    # in order where the names are others; unknown where there are not as many
    other = signature_from_specs(["image:float32[batch=1..64,64,32,32]"])
    assert cheap_sizes(model, other)({"batch": most})
    assert not cheap_sizes(model, other)({"batch": most + 1})
    two = signature_from_specs(["image:float32[batch=1..64,64,32,32]", "mask:float32[batch]"])
    assert not cheap_sizes(model, two)({"batch": 1})
    assert not cheap_sizes(None, other)({"batch": 1})


@pytest.mark.parametrize("channels", [1, 512])
def test_a_quick_sweep_of_a_file(channels: int, build: Callable[..., Path]) -> None:
    """A big net keeps the samples that it had."""
    signature = signature_from_specs([f"x:float32[batch=1..64@4,{channels},32,32]"])
    model = convolution(build, channels)

    def labels(sweep: Any) -> tuple[list[str], dict[str, None]]:
        notes: dict[str, None] = {}
        found = from_signature(signature, nn.Identity(), 3, 0, sweep, notes, model)
        return [s.label for s in found], notes

    plain, quick, notes = labels(None)[0], *labels("quick")
    assert "batch=64" not in plain
    more = [] if channels == 512 else ["batch=64"]
    assert quick == [*plain, *more, "batch=4, large", "batch=4, tiny"]
    assert any("maximum 64 of batch was not tried" in n for n in notes) == (channels == 512)


def test_what_shows_beyond_a_block_only_fails_quick(tmp_path: Path) -> None:
    """The file clamps its first 32 rows' worth: sizes 1 to 32 are right, and 64 is not."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x)

    specs = ["x:float32[batch=1..64@4,16]"]
    path = tmp_path / "net.onnx"
    deployops.export_model(Net().eval(), specs, out=path)
    model = onnx.load(str(path))
    (node,) = (n for n in model.graph.node if n.op_type == "Tanh")
    index = list(model.graph.node).index(node)
    end, zero = (onnx.numpy_helper.from_array(np.array([n], np.int64), f"n{n}") for n in (32, 0))
    value = onnx.numpy_helper.from_array(np.array(0.0, np.float32), "nothing")
    pads = onnx.helper
    made = node.output[0]
    nodes = [
        pads.make_node("Tanh", [node.input[0]], ["all"]),
        pads.make_node("Slice", ["all", "n0", "n32"], ["head"]),
        pads.make_node("Slice", ["all", "n32", "far"], ["tail"]),
        pads.make_node("Mul", ["tail", "nothing"], ["left_out"]),
        pads.make_node("Concat", ["head", "left_out"], [made], axis=0),
    ]
    far = onnx.numpy_helper.from_array(np.array([2**31], np.int64), "far")
    model.graph.initializer.extend([end, zero, far, value])
    rest = [onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node[index + 1 :]]
    del model.graph.node[index:]
    model.graph.node.extend([*nodes, *rest])
    onnx.save(model, str(path))

    def verdict(sweep: Any) -> str:
        options: dict[str, Any] = {"latency": False, "isolate": False, "allow_modified": True}
        return validate(Net().eval(), path, specs, sweep=sweep, backends=["onnxruntime"], **options).verdict

    assert verdict(None) == "passed"
    assert verdict("quick") == "failed"


def test_what_a_custom_node_without_a_body_costs_is_not_known() -> None:
    from onnx import TensorProto, helper

    node = helper.make_node("Attention2", ["x"], ["y"], domain="acme")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 8]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    made = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=opsets)
    signature = signature_from_specs(["x:float32[n=1..64@4,8]"])
    assert not cheap_sizes(made, signature)({"n": 64})
