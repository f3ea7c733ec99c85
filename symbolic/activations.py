"""Activation functions: the definition, the gradient, and the body in ONNX nodes of each.

The bodies are written for accuracy where the plain node has none: ONNX Runtime's float32 Sigmoid is 0 below
−18, and it has no Erf for float64 at all. They compute in the dtype they are given: widen halves first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from . import functions

__all__ = ["ACTIVATIONS", "Activation", "check_activation", "sigmoid", "sigmoid_in_body"]

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715  # of the tanh form of GELU: Hendrycks and Gimpel 2016, arXiv:1606.08415

# log(erfc(z)·exp(z²)/t) with t = 2/(2 + z), z ≥ 0, as a Chebyshev series in 2t − 1: 64 nodes, 50 digits
# (mpmath). What is left out is below 1e-18. tests/symbolic/test_op_scale_bias_act.py compares with math.erfc.
_ERFC_SERIES = (
    -1.3026537197817094342, 0.6419697923564902603, 0.019476473204185836312, -0.0095615147868086316419,
    -0.0009465953444820368663, 0.00036683949785276145187, 4.2523324806907771645e-5, -2.0278578112534243154e-5,
    -1.6242900046470255135e-6, 1.3036558355805232018e-6, 1.5626441722066143178e-8, -8.5238095914926542525e-8,
    6.5290544390988514964e-9, 5.0593434955514689418e-9, -9.9136415649303308674e-10, -2.2736512229318358557e-10,
    9.646791102015526802e-11, 2.3940380830391147447e-12, -6.8860275264975533984e-12, 8.9448792730907257167e-13,
    3.1309213993429580783e-13, -1.1270822361367252366e-13, 3.8109052551892320552e-16, 7.1060976136092369878e-15,
    -1.5230282014571043043e-15, -9.4574945712912340005e-17, 1.2102371892242789923e-16, -2.8166630877471769718e-17,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Activation:
    """`reference(z, slope)`, `gradient(grad, z, slope)` with respect to z, and `body(op, z, slope)`."""

    reference: Callable[[Tensor, float], Tensor]
    gradient: Callable[[Tensor, Tensor, float], Tensor]
    body: Callable[[functions.BodyBuilder, functions.Tensor, float], Any]


def check_activation(name: str, activation: str) -> Activation:
    """The activation of this name. Raises ValueError with the list of known ones."""
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"{name}: activation = {activation!r} is not known; known are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[activation]


# --- logistic function ----------------------------------------------------------------------------------------


def sigmoid(x: Tensor) -> Tensor:
    """1/(1 + exp(−x)), written so that exp never overflows and small results keep their digits.

    Not for use in a gradient: autograd takes |x| to be flat at 0, so it is wrong there; torch.sigmoid is not.
    """
    import torch

    e = torch.exp(-x.abs())
    return torch.where(x < 0, e, torch.ones_like(e)) / (1 + e)


def sigmoid_in_body(op: functions.BodyBuilder, x: functions.Tensor) -> Any:
    """`sigmoid`, in ONNX nodes."""
    e = op.Exp(op.Neg(op.Abs(x)))
    # A number beside a condition would become a bool.
    one = op.tensor(1, x.dtype or "float32")
    return op.Div(op.Where(op.Less(x, 0), e, one), op.Add(e, one))


# --- distribution function of the normal distribution ---------------------------------------------------------


def _normal_cdf_in_body(op: functions.BodyBuilder, x: functions.Tensor) -> Any:
    if x.dtype != "float64":
        return op.Mul(op.Add(op.Erf(op.Mul(x, math.sqrt(0.5))), 1), 0.5)
    z = op.Mul(op.Abs(x), math.sqrt(0.5))
    t = op.Div(op.tensor(2, "float64"), op.Add(z, 2))
    tail = op.Mul(op.Mul(t, op.Exp(op.Sub(_chebyshev_in_body(op, t), op.Mul(z, z)))), 0.5)
    return op.Where(op.Less(x, 0), tail, op.Sub(op.tensor(1, "float64"), tail))


def _chebyshev_in_body(op: functions.BodyBuilder, t: functions.Tensor) -> Any:
    """The series at 2t − 1, by Clenshaw's recurrence."""
    u = op.Sub(op.Mul(t, 4), 2)
    later: Any = None
    current: Any = op.tensor(_ERFC_SERIES[-1], "float64")
    for coefficient in reversed(_ERFC_SERIES[1:-1]):
        following = op.Add(op.Mul(u, current), coefficient)
        later, current = current, following if later is None else op.Sub(following, later)
    return op.Sub(op.Add(op.Mul(op.Mul(u, 0.5), current), _ERFC_SERIES[0] / 2), later)


# --- the table ------------------------------------------------------------------------------------------------


def _relu(z: Tensor, slope: float) -> Tensor:
    import torch

    return torch.relu(z)


def _relu_gradient(grad: Tensor, z: Tensor, slope: float) -> Tensor:
    import torch

    # As torch: nothing at 0, and a NaN in z lets the gradient through.
    return torch.where(z <= 0, torch.zeros_like(grad), grad)


def _leaky_relu(z: Tensor, slope: float) -> Tensor:
    import torch

    return torch.where(z > 0, z, z * slope)


def _leaky_relu_gradient(grad: Tensor, z: Tensor, slope: float) -> Tensor:
    import torch

    return torch.where(z > 0, grad, grad * slope)


def _leaky_relu_in_body(op: functions.BodyBuilder, z: functions.Tensor, slope: float) -> Any:
    return op.Where(op.Greater(z, 0), z, op.Mul(z, slope))


def _tanh(z: Tensor, slope: float) -> Tensor:
    import torch

    return torch.tanh(z)


def _sigmoid_gradient(grad: Tensor, z: Tensor, slope: float) -> Tensor:
    import torch

    # s(−z) rather than 1 − s(z), which is 0 from z = 17 on in float32.
    return grad * (torch.sigmoid(z) * torch.sigmoid(-z))


def _silu_gradient(grad: Tensor, z: Tensor, slope: float) -> Tensor:
    import torch

    s = torch.sigmoid(z)
    return grad * (s + z * (s * torch.sigmoid(-z)))


def _gelu(z: Tensor, slope: float) -> Tensor:
    import torch

    # erfc(−u) rather than 1 + erf(u), which cancels for negative z. torch's own gelu is NaN at inf (CPU, 2.13).
    return z * (torch.erfc(-z * math.sqrt(0.5)) / 2)


def _gelu_gradient(grad: Tensor, z: Tensor, slope: float) -> Tensor:
    import torch

    density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return grad * (torch.erfc(-z * math.sqrt(0.5)) / 2 + z * density)


def _gelu_tanh(z: Tensor, slope: float) -> Tensor:
    # (1 + tanh(a))/2 = sigmoid(2a), which does not cancel for negative a.
    return z * sigmoid(2 * _SQRT_2_OVER_PI * (z * (1 + _CUBIC * (z * z))))


def _gelu_tanh_gradient(grad: Tensor, z: Tensor, slope: float) -> Tensor:
    import torch

    a = 2 * _SQRT_2_OVER_PI * (z * (1 + _CUBIC * (z * z)))
    inner = 2 * _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * (z * z))
    s = torch.sigmoid(a)
    return grad * (s + z * (s * torch.sigmoid(-a)) * inner)


def _gelu_tanh_in_body(op: functions.BodyBuilder, z: functions.Tensor, slope: float) -> Any:
    cubic = op.Add(op.Mul(op.Mul(z, z), _CUBIC), 1)
    return op.Mul(z, sigmoid_in_body(op, op.Mul(op.Mul(z, cubic), 2 * _SQRT_2_OVER_PI)))


ACTIVATIONS: Mapping[str, Activation] = {
    "none": Activation(lambda z, slope: z, lambda grad, z, slope: grad, lambda op, z, slope: z),
    "relu": Activation(_relu, _relu_gradient, lambda op, z, slope: op.Relu(z)),
    "leaky_relu": Activation(_leaky_relu, _leaky_relu_gradient, _leaky_relu_in_body),
    "sigmoid": Activation(
        lambda z, slope: sigmoid(z),
        _sigmoid_gradient,
        lambda op, z, slope: sigmoid_in_body(op, z),
    ),
    "tanh": Activation(
        _tanh,
        lambda grad, z, slope: grad * (1 - _tanh(z, slope) ** 2),
        lambda op, z, slope: op.Tanh(z),
    ),
    "silu": Activation(
        lambda z, slope: z * sigmoid(z),
        _silu_gradient,
        lambda op, z, slope: op.Mul(z, sigmoid_in_body(op, z)),
    ),
    "gelu": Activation(_gelu, _gelu_gradient, lambda op, z, slope: op.Mul(z, _normal_cdf_in_body(op, z))),
    "gelu_tanh": Activation(_gelu_tanh, _gelu_tanh_gradient, _gelu_tanh_in_body),
}
