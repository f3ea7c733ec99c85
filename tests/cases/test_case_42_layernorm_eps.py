"""Case 42: an eps below the smallest float16 does not become 0, so that constant rows give zeros and no NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from deployops.symbolic import registry

registry.load_builtin()
X = np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1.001, 1, 1]], np.float16)
EPS = [1e-5, 1e-8, 1e-12]


def by_definition(x: Any, eps: float) -> Any:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)


class Shipped(torch.nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(4, dtype=torch.float16))
        self.register_buffer("bias", torch.zeros(4, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.deployops.layer_norm(x, self.weight, self.bias, self.eps)


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("which", ["torch", "shipped"])
def test_constant_rows_are_zero(deploy: Any, which: str, eps: float) -> None:
    net = torch.nn.LayerNorm(4, eps=eps).half() if which == "torch" else Shipped(eps)
    exported = deploy(net, ["x:float16[n,4]"])
    got = exported.run(X)[0]
    assert got.dtype == np.float16
    assert not np.isnan(got).any()
    np.testing.assert_array_equal(got[:2], 0)
    np.testing.assert_allclose(got[2], by_definition(X, eps)[2], rtol=2e-2, atol=2e-3)


def constants(proto: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    found = [onnx.numpy_helper.to_array(t) for t in proto.graph.initializer]
    for nodes in (proto.graph.node, *(f.node for f in proto.functions)):
        for node in nodes:
            found += [
                onnx.numpy_helper.to_array(a.t)
                for a in node.attribute
                if a.type == onnx.AttributeProto.TENSOR
            ]
    return found


@pytest.mark.parametrize("eps", EPS)
def test_eps_is_in_the_file_with_its_value(deploy: Any, eps: float) -> None:
    """As an attribute or a float32 constant; in float16 it would be 0."""

    class Manual(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            wide = x.float()
            centred = wide - wide.mean(-1, keepdim=True)
            return (centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)).half()

    for net in (torch.nn.LayerNorm(4, eps=eps).half(), Shipped(eps), Manual()):
        proto = deploy(net, ["x:float16[n,4]"]).proto
        attributes = [a.f for n in proto.graph.node for a in n.attribute if a.name in ("epsilon", "eps")]
        scalars = [c for c in constants(proto) if c.size == 1]
        numbers = attributes + [float(c.item()) for c in scalars if c.dtype != np.float16]
        assert any(abs(n - eps) < 1e-3 * eps for n in numbers), numbers


def test_a_model_that_adds_eps_in_float16_is_exported_as_it_is(deploy: Any) -> None:
    """eps = 1e-8 is 0 in the original's own float16 arithmetic: 0/0 in both, and that agrees."""

    class Naive(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            eps = torch.tensor(1e-8, dtype=torch.float16)
            return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps)

    exported = deploy(Naive(), ["x:float16[n,4]"])
    assert np.isnan(exported.run(X)[0][:2]).all()
    assert np.isnan(Naive()(torch.from_numpy(X))[:2].numpy()).all()
