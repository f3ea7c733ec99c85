"""scale_bias_act: the activations are torch's, and the two GELUs are told apart (case 43)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from deployops.symbolic import registry
from deployops.symbolic.samples import Sample

registry.load_builtin()
from deployops.symbolic.operators.scale_bias_act import scale_bias_act  # noqa: E402

TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda z: z,
    "relu": F.relu,
    "leaky_relu": lambda z: F.leaky_relu(z, 0.01),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
}


@pytest.mark.parametrize("activation", TORCH)
def test_values_and_gradients_are_those_of_torch(activation: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    x[0, 0, 0] = 0.0  # the kinks, where scale·x + bias is 0
    leaves = [
        t.requires_grad_() for t in (x, torch.randn(5, generator=generator).double(), torch.zeros(5).double())
    ]
    z = leaves[0] * leaves[1][:, None] + leaves[2][:, None]
    ours, theirs = scale_bias_act(*leaves, activation), TORCH[activation](z)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn(4, 5, 3, generator=generator).double()
    got, expected = (torch.autograd.grad((y * weights).sum(), leaves) for y in (ours, theirs))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


def batch_norm() -> torch.nn.BatchNorm2d:
    norm = torch.nn.BatchNorm2d(6).eval()
    generator = torch.Generator().manual_seed(1)
    for tensor in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
        assert tensor is not None
        tensor.copy_(torch.rand(6, generator=generator) + 0.5)
    return norm


def test_it_is_a_batch_norm_at_inference() -> None:
    norm, x = batch_norm(), torch.randn(2, 6, 4, 4, generator=torch.Generator().manual_seed(2))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    ours = scale_bias_act(x, scale, norm.bias - norm.running_mean * scale, "silu")
    torch.testing.assert_close(ours, F.silu(norm(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("where", ["reference", "body"])
def test_each_gelu_is_the_one_it_is_named_after(where: str, run_body: Any) -> None:
    x = torch.linspace(-5, 5, 2001)[None]
    one = torch.ones(2001)
    y = {}
    for activation in ("gelu", "gelu_tanh"):
        sample = Sample((x, one, None, activation))
        y[activation] = (
            scale_bias_act(*sample.args) if where == "reference" else run_body(scale_bias_act, sample)[0]
        )
    z = x.double()
    erf = z * (1 + torch.erf(z / math.sqrt(2))) / 2
    tanh = z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    assert (y["gelu"] - erf).abs().max() < 1e-6
    assert (y["gelu_tanh"] - tanh).abs().max() < 1e-6
    assert (y["gelu"] - tanh).abs().max() > 4e-4
    assert (y["gelu_tanh"] - erf).abs().max() > 4e-4


def test_the_float64_gelu_body_keeps_relative_accuracy_without_an_erf_kernel(
    run_body: Any, assert_within: Any
) -> None:
    x = torch.linspace(-37, 10, 4001, dtype=torch.float64)[None]
    one = torch.ones(4001, dtype=torch.float64)
    (y,) = run_body(scale_bias_act, Sample((x, one, None, "gelu")))
    expected = torch.tensor(
        [[v * math.erfc(-v / math.sqrt(2)) / 2 for v in x[0].tolist()]], dtype=torch.float64
    )
    # z² in the exponent: a rounding of z²/2 is a relative error of that size.
    assert_within(y, expected, expected * (1 + x * x), 3)


def test_an_unknown_activation_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"activation = 'swiglu' is not known; known are none, relu, .*gelu_tanh"
    ):
        scale_bias_act(torch.ones(1, 2), torch.ones(2), None, "swiglu")
