"""Case 13: permuted and sliced inputs reach a kernel as the numbers they stand for, whoever calls it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops.native.cpu_library import CpuLibrary
from deployops.symbolic.operators.add_relu import add_relu
from deployops.symbolic.operators.mean_pool import mean_pool

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.t(),
    "every other column": lambda t: t[:, ::2],
    "one column of many": lambda t: t[:, 3:4],
    "reversed rows": lambda t: t.flip(0),
    "repeated without memory": lambda t: t[:1].expand(5, 6),
    "from the middle": lambda t: t[1:3, 2:5],
}


@pytest.mark.parametrize("view", VIEWS)
def test_by_torch(view: str, shipped_library: str) -> None:
    x = VIEWS[view](torch.arange(24.0).reshape(4, 6))
    y = torch.linspace(-5, 5, x.shape[1])
    [got] = CpuLibrary(shipped_library).run(add_relu, (x, y))
    want = np.maximum(np.array(x.tolist(), np.float32) + np.array(y.tolist(), np.float32), 0)
    assert got.tolist() == want.tolist()


def test_channels_last_images(shipped_library: str) -> None:
    x = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    [got] = CpuLibrary(shipped_library).run(mean_pool, (x,))
    assert got.tolist() == [[9.5, 29.5, 49.5], [69.5, 89.5, 109.5]]


def test_the_first_column_of_a_transposed_array_through_onnxruntime(shipped_library: str) -> None:
    graph = helper.make_graph(
        [helper.make_node("CubeRoot", ["x"], ["y"], domain="deployops")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("deployops", 1)]
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(shipped_library)
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), options
    )
    x = (np.arange(12, dtype=np.float32).reshape(3, 4)) ** 3
    [y] = session.run(None, {"x": x.T})
    np.testing.assert_array_equal(y[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(y[0], [0, 4, 8])
