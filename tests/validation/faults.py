"""What converters, optimisers and kernels get wrong, each in a small model: the right function and the faulty one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

ALL = ("float32", "float16", "bfloat16")


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Fault:
    """`good` and `bad` take the inputs and the module that holds `constants`.

    `exported`: ONNX Runtime can run both in float32 and float16; else torch stands for the runtime.
    """

    name: str
    good: Callable[..., Any]
    bad: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...] = field(default_factory=lambda: (rand(50, 60),))
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ALL
    exported: bool = True
    mode: str = "values"


def accumulated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x w, the running sum rounded to half every 16 terms."""
    half = torch.bfloat16 if x.dtype == torch.bfloat16 else torch.float16
    total = torch.zeros(x.shape[0], w.shape[1])
    for k in range(0, x.shape[1], 16):
        total = (total + x[:, k : k + 16].float() @ w[k : k + 16].float()).to(half).float()
    return total.to(x.dtype)


def narrower(w: torch.Tensor) -> torch.Tensor:
    """Weights stored one size too small, and widened again."""
    return w.to(torch.float16 if w.dtype == torch.float32 else torch.float8_e4m3fn).to(w.dtype)


def int8(w: torch.Tensor) -> torch.Tensor:
    step = w.abs().amax() / 127
    return torch.round(w / step) * step


def truncated(v: torch.Tensor, keep: int) -> torch.Tensor:
    """float32 with the lower bits of the mantissa cut off, not rounded."""
    return (v.float().view(torch.int32) & ~((1 << (23 - keep)) - 1)).view(torch.float32)


def rotated(x: torch.Tensor, interleaved: bool, angle_dtype: torch.dtype = torch.float32) -> torch.Tensor:
    n, d = x.shape
    freq = 10000.0 ** (-torch.arange(0, d, 2) / d)
    angle = (torch.arange(1000, 1000 + n)[:, None].to(angle_dtype) * freq.to(angle_dtype)).float()
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if interleaved:
        a, b = x[:, 0::2], x[:, 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(n, d)
    a, b = x[:, : d // 2], x[:, d // 2 :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def attended(x: torch.Tensor, scale: float, shift: int = 1, masked: float = -float("inf")) -> torch.Tensor:
    scores = x @ x.transpose(-1, -2) * scale
    mask = torch.triu(torch.ones(x.shape[-2], x.shape[-2]), shift) > 0
    return torch.softmax(scores.masked_fill(mask, masked), -1) @ x


def gru(x: torch.Tensor, m: Any, reset_after: bool) -> torch.Tensor:
    h = torch.zeros_like(x[0])
    for v in x:
        z, r = torch.sigmoid(v @ m.a + h @ m.b), torch.sigmoid(v @ m.c + h @ m.d)
        n = torch.tanh(v @ m.e + (r * (h @ m.f + m.g) if reset_after else (r * h) @ m.f + m.g))
        h = (1 - z) * n + z * h
    return h


def lstm(x: torch.Tensor, m: Any, order: str) -> torch.Tensor:
    h = c = torch.zeros_like(x[0])
    for v in x:
        gates = dict(zip(order, (v @ m.w + h @ m.u).chunk(4, -1), strict=True))
        c = torch.sigmoid(gates["f"]) * c + torch.sigmoid(gates["i"]) * torch.tanh(gates["g"])
        h = torch.sigmoid(gates["o"]) * torch.tanh(c)
    return h


def shuffled(x: torch.Tensor, column_row_depth: bool) -> torch.Tensor:
    n, c, h, w = x.shape
    if column_row_depth:
        return F.pixel_shuffle(x, 2)
    return x.reshape(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


def square(n: int = 24, seed: int = 9) -> torch.Tensor:
    return rand(n, n, seed=seed) / n**0.5


# in bfloat16 the two forms of GELU differ by more than an ULP in the tail only, which few elements reach
MANY = rand(250, 60)
IMAGE = rand(2, 4, 9, 10)
SPECIAL = rand(6, 8).index_put((torch.tensor([1, 4]), torch.tensor([3, 0])), torch.tensor(float("nan")))
INFINITE = rand(6, 8).index_put((torch.tensor([1, 4]), torch.tensor([3, 0])), torch.tensor(float("inf")))
HALVES = torch.arange(-64, 64).reshape(8, 16) / 2
INTS = torch.arange(-60, 60).reshape(10, 12)
GRU = {n: square(seed=i) for i, n in enumerate("abcdef")} | {"g": rand(24, seed=7)}

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

LAYERS = (
    Fault(
        "layer norm: epsilon moved",
        lambda x, m: F.layer_norm(x, (60,), eps=1e-5),
        lambda x, m: F.layer_norm(x, (60,), eps=1e-6),
        (0.01 * rand(50, 60),),
    ),
    Fault(
        "layer norm: unbiased variance",
        lambda x, m: F.layer_norm(x, (24,)),
        lambda x, m: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5),
        (rand(50, 24),),
    ),
    Fault(
        "layer norm: weight forgotten on one channel",
        lambda x, m: F.layer_norm(x, (24,), m.w, m.b),
        lambda x, m: F.layer_norm(x, (24,), torch.cat([m.w[:5], torch.ones_like(m.w[5:6]), m.w[6:]]), m.b),
        (rand(50, 24),),
        {"w": 1 + 0.2 * rand(24), "b": rand(24, seed=1)},
    ),
    Fault(
        "RMS norm: epsilon outside the root",
        lambda x, m: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-4),
        lambda x, m: x / (torch.sqrt((x * x).mean(-1, keepdim=True)) + 1e-4),
        (0.05 * rand(50, 24),),
    ),
    Fault(
        "batch norm: epsilon moved",
        lambda x, m: F.batch_norm(x, m.a, m.v, eps=1e-3),
        lambda x, m: F.batch_norm(x, m.a, m.v, eps=1e-5),
        (IMAGE,),
        {"a": rand(4), "v": torch.full((4,), 0.02)},
    ),
    Fault(
        "batch norm: the batch's own statistics",
        lambda x, m: F.batch_norm(x, m.a, m.v),
        lambda x, m: (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), keepdim=True) + 1e-5).sqrt(),
        (IMAGE,),
        {"a": 0.05 * rand(4), "v": 1 + 0.05 * rand(4).abs()},
    ),
    Fault(
        "group norm: another number of groups",
        lambda x, m: F.group_norm(x, 2),
        lambda x, m: F.group_norm(x, 4),
        (IMAGE,),
    ),
    Fault(
        "mean over the wrong axes", lambda x, m: x.mean((2, 3)), lambda x, m: x.mean((1, 2))[:, :4], (IMAGE,)
    ),
    Fault(
        "standard deviation: n for n - 1",
        lambda x, m: x.std(1),
        lambda x, m: x.std(1, correction=0),
        (rand(60, 20),),
    ),
    Fault(
        "a divisor frozen at another size",
        lambda x, m: x.sum(0) / x.shape[0],
        lambda x, m: x.sum(0) / 49,
        (rand(50, 60),),
    ),
    Fault(
        "weights transposed", lambda x, m: x @ m.w, lambda x, m: x @ m.w.T, (rand(50, 24),), {"w": square()}
    ),
    Fault(
        "bias dropped on one class",
        lambda x, m: x @ m.w + m.b,
        lambda x, m: x @ m.w + torch.cat([m.b[:7], torch.zeros_like(m.b[7:8]), m.b[8:]]),
        (rand(50, 24),),
        {"w": square(), "b": 0.1 + 0.02 * rand(24, seed=3).abs()},
    ),
    Fault(
        "bias dropped at one size only",
        lambda x, m: x @ m.w + m.b,
        lambda x, m: x @ m.w + (m.b if x.shape[0] != 1 else 0),
        (rand(1, 24),),
        {"w": square(), "b": 0.1 * rand(24, seed=3)},
    ),
    Fault(
        "sums in half precision",
        lambda x, m: x @ m.w,
        lambda x, m: accumulated(x, m.w),
        (rand(8, 2048).abs(),),
        {"w": rand(2048, 16, seed=4).abs() / 2048},
        exported=False,
    ),
    Fault(
        "weights one size too small",
        lambda x, m: x @ m.w,
        lambda x, m: x @ narrower(m.w),
        (rand(50, 24),),
        {"w": square()},
        exported=False,
    ),
    Fault(
        "weights in int8",
        lambda x, m: x @ m.w,
        lambda x, m: x @ int8(m.w),
        (rand(50, 24),),
        {"w": square()},
        exported=False,
    ),
    Fault(
        "weights of the layer before",
        lambda x, m: torch.relu(x @ m.w) @ m.v,
        lambda x, m: torch.relu(x @ m.w) @ m.w,
        (rand(50, 24),),
        {"w": square(), "v": square(seed=5)},
    ),
    Fault(
        "results cut off at a narrower type",
        lambda x, m: x * m.k,
        lambda x, m: truncated(
            x.float() * m.k.float(), {torch.float32: 10, torch.float16: 8, torch.bfloat16: 5}[x.dtype]
        ).to(x.dtype),
        (rand(50, 60),),
        {"k": torch.tensor(1.25)},
        exported=False,
    ),
    Fault(
        "the residual added twice",
        lambda x, m: x + torch.tanh(x @ m.w),
        lambda x, m: 2 * x + torch.tanh(x @ m.w),
        (rand(50, 24),),
        {"w": square()},
    ),
    Fault(
        "attention: scale of the wrong width",
        lambda x, m: attended(x, 24**-0.5),
        lambda x, m: attended(x, 23**-0.5),
        (rand(3, 20, 24),),
    ),
    Fault(
        "attention: mask off by one",
        lambda x, m: attended(x, 24**-0.5),
        lambda x, m: attended(x, 24**-0.5, 2),
        (rand(3, 20, 24),),
    ),
    Fault(
        "attention: masked by -5",
        lambda x, m: attended(x, 0.02),
        lambda x, m: attended(x, 0.02, 1, -5.0),
        (rand(3, 20, 24),),
    ),
    Fault(
        "rotary: halves for pairs",
        lambda x, m: rotated(x, True),
        lambda x, m: rotated(x, False),
        (rand(32, 24),),
    ),
    Fault(
        "rotary: angles in half precision",
        lambda x, m: rotated(x, False),
        lambda x, m: rotated(x, False, torch.bfloat16),
        (rand(32, 24),),
        exported=False,
    ),
    Fault(
        "GRU: reset before the product",
        lambda x, m: gru(x, m, True),
        lambda x, m: gru(x, m, False),
        (rand(5, 8, 24),),
        GRU,
    ),
    Fault(
        "LSTM: order of the gates",
        lambda x, m: lstm(x, m, "ifgo"),
        lambda x, m: lstm(x, m, "iofg"),
        (rand(5, 8, 24),),
        {"w": rand(24, 96, seed=1) / 5, "u": rand(24, 96, seed=2) / 5},
    ),
)

LAYOUT = (
    Fault(
        "a window off by one",
        lambda x, m: F.avg_pool1d(x, 3, 1),
        lambda x, m: F.avg_pool1d(x, 3, 1).roll(1, -1),
        (rand(2, 4, 40),),
    ),
    Fault(
        "padding on the other side",
        lambda x, m: F.conv2d(F.pad(x, (0, 1, 0, 1)), m.w),
        lambda x, m: F.conv2d(F.pad(x, (1, 0, 1, 0)), m.w),
        (IMAGE,),
        {"w": rand(5, 4, 2, 2) / 4},
    ),
    Fault(
        "padding: edges for zeros",
        lambda x, m: F.pad(x, (1, 1, 1, 1)),
        lambda x, m: F.pad(x, (1, 1, 1, 1), mode="replicate"),
        (IMAGE,),
    ),
    Fault(
        "padding: reflected for repeated",
        lambda x, m: F.pad(x, (2, 2, 2, 2), mode="replicate"),
        lambda x, m: F.pad(x, (2, 2, 2, 2), mode="reflect"),
        (IMAGE,),
    ),
    Fault(
        "pooling counts the padding",
        lambda x, m: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x, m: F.avg_pool2d(x, 3, 1, 1),
        (IMAGE,),
    ),
    Fault(
        "max pooling pads with zero",
        lambda x, m: F.max_pool2d(x, 3, 1, 1),
        lambda x, m: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1),
        (IMAGE,),
    ),
    Fault(
        "dilation ignored",
        lambda x, m: F.conv2d(x, m.w, dilation=2, padding=2),
        lambda x, m: F.conv2d(x, m.w, padding=1),
        (IMAGE,),
        {"w": rand(5, 4, 3, 3) / 6},
    ),
    Fault(
        "convolution: kernel flipped",
        lambda x, m: F.conv2d(x, m.w),
        lambda x, m: F.conv2d(x, m.w.flip(-1, -2)),
        (IMAGE,),
        {"w": rand(5, 4, 3, 3) / 6},
    ),
    Fault(
        "groups: the second half first",
        lambda x, m: F.conv2d(x, m.w, groups=2),
        lambda x, m: F.conv2d(x.roll(2, 1), m.w, groups=2),
        (IMAGE,),
        {"w": rand(4, 2, 3, 3) / 4},
    ),
    Fault(
        "resize: aligned corners",
        lambda x, m: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x, m: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        (IMAGE,),
    ),
    Fault(
        "resize: nearest rounds up",
        lambda x, m: F.interpolate(x, size=(6, 6), mode="nearest"),
        lambda x, m: F.interpolate(x.roll(-1, -1), size=(6, 6), mode="nearest"),
        (IMAGE,),
    ),
    Fault(
        "pixel shuffle: depth first",
        lambda x, m: shuffled(x, True),
        lambda x, m: shuffled(x, False),
        (rand(2, 8, 5, 5),),
    ),
    Fault(
        "channels last read as first",
        lambda x, m: x.permute(0, 2, 3, 1).flatten(1),
        lambda x, m: x.flatten(1),
        (IMAGE,),
    ),
    Fault(
        "red and blue swapped",
        lambda x, m: x * m.k,
        lambda x, m: x * m.k.flip(1),
        (rand(2, 3, 8, 8),),
        {"k": torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)},
    ),
    Fault(
        "scale on the wrong axis",
        lambda x, m: x * m.k,
        lambda x, m: x * m.k[:, None],
        (rand(24, 24),),
        {"k": 1 + 0.1 * rand(24)},
    ),
    Fault("cumulative sum: exclusive", lambda x, m: x.cumsum(1), lambda x, m: x.cumsum(1) - x),
    Fault("cumulative sum: reversed", lambda x, m: x.cumsum(1), lambda x, m: x.flip(1).cumsum(1).flip(1)),
    Fault(
        "an index from the end taken as zero",
        lambda x, m: x[:, torch.tensor([-1, 2])],
        lambda x, m: x[:, torch.tensor([0, 2])],
    ),
    Fault(
        "a gather off by one", lambda x, m: x[:, torch.arange(0, 30)], lambda x, m: x[:, torch.arange(1, 31)]
    ),
    Fault("top-k ascending", lambda x, m: x.topk(5, 1).values, lambda x, m: x.topk(5, 1).values.flip(1)),
    Fault("a slice's step ignored", lambda x, m: x[:, ::2], lambda x, m: x[:, :30]),
    Fault(
        "positions off by one",
        lambda x, m: x + m.p[1:61],
        lambda x, m: x + m.p[:60],
        (rand(50, 60),),
        {"p": 0.05 * rand(61, seed=2)},
    ),
    Fault(
        "labels: the last of equals",
        lambda x, m: x.argmax(1),
        lambda x, m: 7 - x.flip(1).argmax(1),
        (torch.arange(48).reshape(6, 8) % 3 * 1.0,),
        exported=False,
    ),
    Fault(
        "labels off by one",
        lambda x, m: x.argmax(1),
        lambda x, m: x.argmax(1) + 1,
        (rand(30, 8),),
        mode="argmax",
    ),
    Fault(
        "truncation for floor",
        lambda x, m: torch.div(x, 7, rounding_mode="floor"),
        lambda x, m: torch.div(x, 7, rounding_mode="trunc"),
        (INTS,),
        dtypes=("float32",),
        exported=False,
    ),
    Fault(
        "int32 for int64",
        lambda x, m: x * 100_000_000,
        lambda x, m: (x * 100_000_000).to(torch.int32).to(torch.int64),
        (INTS,),
        dtypes=("float32",),
    ),
    Fault(
        "rounding for truncation to int",
        lambda x, m: (x * 1.5).to(torch.int64),
        lambda x, m: torch.round(x * 1.5).to(torch.int64),
        (HALVES,),
    ),
    Fault(
        "uint8 saturates",
        lambda x, m: x.to(torch.uint8),
        lambda x, m: x.clamp(0, 255).to(torch.uint8),
        (INTS * 5,),
        dtypes=("float32",),
        exported=False,
    ),
)

FAULTS = (*ACTIVATIONS, *LAYERS, *LAYOUT)
