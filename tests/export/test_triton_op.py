"""`torch.library.triton_op`s are adopted like any other. Triton kernels themselves need a GPU: not checked here."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops import adopt, operator


@pytest.fixture(scope="module")
def twice() -> Any:
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # it says that Triton is not installed

    @torch.library.triton_op("t_triton::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    op = adopt(twice, onnx="t_triton::Twice", dtypes=("float32",))

    @op.body
    def _(op: Any, x: Any) -> Any:
        return op.Add(x, x)

    return twice


def test_a_triton_op_stays_one_node(twice: Any, deploy: Any) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return twice(x) + 1

    exported = deploy(Net(), ["x:float32[batch,4]"])
    assert exported.result.custom_nodes == {"t_triton::Twice": 1}
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(exported.run(x)[0], 2 * x + 1)


def test_it_stays_one_beside_an_operator_that_writes_into_its_argument(twice: Any, deploy: Any) -> None:
    @operator("t_triton::halve_", onnx="t_triton::HalveInPlace", mutates=("x",), dtypes=("float32",))
    def halve_(x: Tensor) -> None:
        x.mul_(0.5)

    @halve_.fake
    def _(x: Tensor) -> None:
        return None

    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = twice(x)
            halve_(y)
            return y

    exported = deploy(Net(), ["x:float32[batch,4]"])
    assert exported.result.custom_nodes == {"t_triton::HalveInPlace": 1, "t_triton::Twice": 1}
