"""Functions of single elements and of rows: activations, rounding, modulo, NaN and infinities."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .fault import HALVES, Fault, rand, square

# in bfloat16 the two forms of GELU differ by more than an ULP in the tail only, which few elements reach
MANY = rand(250, 60)
SPECIAL = rand(6, 8).index_put((torch.tensor([1, 4]), torch.tensor([3, 0])), torch.tensor(float("nan")))
INFINITE = rand(6, 8).index_put((torch.tensor([1, 4]), torch.tensor([3, 0])), torch.tensor(float("inf")))

ACTIVATIONS = (
    Fault("GELU: tanh for erf", lambda x, m: F.gelu(x), lambda x, m: F.gelu(x, approximate="tanh"), (MANY,)),
    Fault("GELU: erf for tanh", lambda x, m: F.gelu(x, approximate="tanh"), lambda x, m: F.gelu(x), (MANY,)),
    Fault("GELU: x sigmoid(1.702 x)", lambda x, m: F.gelu(x), lambda x, m: x * torch.sigmoid(1.702 * x)),
    Fault(
        "GELU: tanh for erf behind a layer",
        lambda x, m: F.gelu(x @ m.w),
        lambda x, m: F.gelu(x @ m.w, approximate="tanh"),
        (rand(100, 24),),
        {"w": square()},
    ),
    Fault("SiLU as hard swish", lambda x, m: F.silu(x), lambda x, m: F.hardswish(x)),
    Fault("the lower tail cut off", lambda x, m: F.gelu(x), lambda x, m: torch.where(x < -2, 0.0, F.gelu(x))),
    Fault("ELU: alpha ignored", lambda x, m: F.elu(x, 0.8), lambda x, m: F.elu(x)),
    Fault("leaky ReLU: slope lost", lambda x, m: F.leaky_relu(x, 0.02), lambda x, m: F.leaky_relu(x, 0.01)),
    Fault("ReLU6: upper bound missing", lambda x, m: F.relu6(2.5 * x), lambda x, m: F.relu(2.5 * x)),
    Fault(
        "hard sigmoid: slope 0.2 for 1/6",
        lambda x, m: F.hardsigmoid(x),
        lambda x, m: (0.2 * x + 0.5).clamp(0, 1),
    ),
    Fault("softplus: beta ignored", lambda x, m: F.softplus(x, 1.1), lambda x, m: F.softplus(x)),
    Fault(
        "softplus overflows",
        lambda x, m: F.softplus(x),
        lambda x, m: torch.log(1 + torch.exp(x)),
        (40 * rand(50, 60),),
    ),
    Fault(
        "tanh as a ratio",
        lambda x, m: torch.tanh(x),
        lambda x, m: (x * (27 + x * x) / (27 + 9 * x * x)).clamp(-1, 1),
    ),
    Fault(
        "exp by the exponent's bits",
        lambda x, m: torch.exp(x),
        lambda x, m: torch.exp(x) * (1 + 0.03 * torch.sin(9 * x)),
    ),
    Fault(
        "log of softmax",
        lambda x, m: F.log_softmax(x, -1),
        lambda x, m: torch.softmax(x, -1).log(),
        (60 * rand(20, 9),),
    ),
    Fault(
        "log-sum-exp without the maximum",
        lambda x, m: x.logsumexp(-1),
        lambda x, m: x.exp().sum(-1).log(),
        (70 * rand(20, 9),),
    ),
    Fault("softmax: wrong axis", lambda x, m: x.softmax(1), lambda x, m: x.softmax(0)),
    Fault("a factor typed 1.4 for sqrt 2", lambda x, m: x * 2**0.5, lambda x, m: x * 1.4),
    Fault(
        "a stale constant",
        lambda x, m: x * m.k,
        lambda x, m: x * (m.k + 0.05),
        (rand(50, 60),),
        {"k": torch.tensor(2.0)},
    ),
    Fault(
        "step at zero: >= for >",
        lambda x, m: (x > 0).to(x.dtype),
        lambda x, m: (x >= 0).to(x.dtype),
        (HALVES,),
    ),
    Fault(
        "sign of zero",
        lambda x, m: torch.sign(x),
        lambda x, m: torch.where(x >= 0, 1.0, -1.0).to(x.dtype),
        (HALVES,),
    ),
    Fault(
        "modulo: the dividend's sign", lambda x, m: torch.remainder(x, 1.5), lambda x, m: torch.fmod(x, 1.5)
    ),
    Fault(
        "halves rounded away",
        lambda x, m: torch.round(x),
        lambda x, m: torch.sign(x) * torch.floor(x.abs() + 0.5),
        (HALVES,),
    ),
    Fault(
        "NaN swallowed by the maximum",
        lambda x, m: x.amax(1),
        lambda x, m: torch.where(x.isnan(), -9.0, x).amax(1),
        (SPECIAL,),
        exported=False,
    ),
    Fault(
        "NaN swallowed by the clamp",
        lambda x, m: x.clamp(-1, 1),
        lambda x, m: torch.where(x.isnan(), -1.0, x.clamp(-1, 1)),
        (SPECIAL,),
    ),
    Fault("Inf saturated", lambda x, m: x * 2, lambda x, m: (x * 2).clamp(-3e4, 3e4), (INFINITE,)),
    Fault(
        "an active dropout",
        lambda x, m: x * 1.0,
        lambda x, m: F.dropout(x, 0.1, training=True),
        exported=False,
    ),
    Fault(
        "noise of a hundredth",
        lambda x, m: x * 1.0,
        lambda x, m: x + 0.02 * torch.randn_like(x),
        exported=False,
    ),
)
