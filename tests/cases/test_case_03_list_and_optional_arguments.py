"""Case 03: a list of tensors becomes variadic inputs, a tensor that is None is an omitted input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import deployops

A = np.ones((2, 3), np.float32)
B = np.full((2, 3), 2.0, np.float32)
C = np.arange(6, dtype=np.float32).reshape(2, 3)
SPECS = ["a:float32[n,3]", "b:float32[n,3]", "c:float32[n,3]"]


@torch.library.custom_op("acme03::wsum", mutates_args=())
def wsum(xs: list[Tensor], bias: Tensor | None = None, scale: float = 1.0) -> Tensor:
    out = torch.stack(list(xs)).sum(0) * scale
    return out.clone() if bias is None else out + bias


@wsum.register_fake
def _(xs: Any, bias: Any = None, scale: float = 1.0) -> Tensor:
    return torch.empty_like(xs[0])


adopted = deployops.adopt(
    "acme03::wsum", onnx="acme03::WeightedSum", dtypes={"xs, bias": ("float32", "float64")}
)


@adopted.body
def _(b: Any, xs: Any, bias: Any, scale: Any) -> Any:
    total = b.Mul(b.Sum(*xs), float(scale))
    return total if bias is None else b.Add(total, bias)


@deployops.operator("acme03::pick", onnx="acme03::Pick", dtypes={"before, xs, after": ("float32",)})
def pick(xs: list[Tensor], before: Tensor | None, after: Tensor | None, sizes: list[int]) -> Tensor:
    out = torch.stack(list(xs)).sum(0) * (1 + sum(sizes))
    if before is not None:
        out = out - before
    return out if after is None else out * after


@pick.fake
def _(xs: Any, before: Any, after: Any, sizes: Any) -> Tensor:
    return torch.empty_like(xs[0])


@pick.body
def _(b: Any, xs: Any, before: Any, after: Any, sizes: Any) -> Any:
    out = b.Mul(b.Sum(*xs), float(1 + sum(sizes)))
    out = out if before is None else b.Sub(out, before)
    return out if after is None else b.Mul(out, after)


class Net(torch.nn.Module):
    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return self.call(a, b, c)


@pytest.mark.parametrize("with_bias", [True, False])
def test_the_case(deploy: Any, with_bias: bool) -> None:
    net = Net(lambda a, b, c: torch.ops.acme03.wsum([a, b], c if with_bias else None, 0.5))
    exported = deploy(net, SPECS)
    node = exported.node("WeightedSum")
    assert list(node.input) == (["c", "a", "b"] if with_bias else ["", "a", "b"])
    assert exported.attributes("WeightedSum")["scale"] == 0.5
    expected = 0.5 * (A + B) + (C if with_bias else 0)
    np.testing.assert_array_equal(exported.run(a=A, b=B, c=C)[0], expected)
    assert exported.dims("output") == ["n", 3]


def test_both_variants_in_one_model_each_keep_their_own_body(deploy: Any) -> None:
    def call(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        op = torch.ops.acme03.wsum
        return op([a, b], c, 0.5) + 10 * op([a, b, c], None, 2.0) + 100 * op([c])

    exported = deploy(Net(call), SPECS)
    assert exported.result.custom_nodes == {"acme03::WeightedSum": 3}
    expected = (0.5 * (A + B) + C) + 10 * (2 * (A + B + C)) + 100 * C
    np.testing.assert_allclose(exported.run(a=A, b=B, c=C)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("mode", ["function", "node", "standard"])
def test_in_every_form_of_file(deploy: Any, mode: str) -> None:
    net = Net(lambda a, b, c: torch.ops.acme03.wsum([a, b], None, 0.5) + c)
    exported = deploy(net, SPECS, custom_ops=mode)
    assert bool(exported.result.custom_nodes) == (mode != "standard")
    assert bool(exported.proto.functions) == (mode == "function")
    if mode != "node":
        np.testing.assert_array_equal(exported.run(a=A, b=B, c=C)[0], 0.5 * (A + B) + C)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda a, b, c: pick([a, b], None, None, []), A + B),
        (lambda a, b, c: pick([a, b], None, c, []), (A + B) * C),
        (lambda a, b, c: pick([a], c, None, [1, 2]), 4 * A - C),
        (lambda a, b, c: pick([a, b, c], a, b, [3]), (4 * (A + B + C) - A) * B),
    ],
    ids=["none, empty list", "None in the middle", "last is None", "all"],
)
def test_any_of_several_optionals_may_be_none_and_lists_may_be_empty(
    deploy: Any, call: Callable[..., Tensor], expected: Any
) -> None:
    exported = deploy(Net(call), SPECS)
    np.testing.assert_allclose(exported.run(a=A, b=B, c=C)[0], expected, rtol=1e-6)
    assert "sizes" in exported.attributes("Pick")  # an empty list stays, typed


def test_the_torchscript_exporter_is_served_too(tmp_path: Any) -> None:
    """`torch.onnx.export(dynamo=False)` with the symbolic function that the declaration hands out."""
    import warnings

    import onnx

    from deployops.symbolic import symbolic_function

    torch.onnx.register_custom_op_symbolic("acme03::wsum", symbolic_function(adopted), 9)
    net = Net(lambda a, b, c: torch.ops.acme03.wsum([a, b], c, 0.5))
    path = tmp_path / "old.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, tuple(map(torch.from_numpy, (A, B, C))), str(path), dynamo=False, opset_version=20
        )
    (node,) = [n for n in onnx.load(str(path)).graph.node if n.domain == "acme03"]
    assert node.op_type == "WeightedSum"
    assert len(node.input) == 3
    assert {a.name: a.f or a.i for a in node.attribute}["scale"] == 0.5
