"""Layers with weights: normalisations, products, attention, rotary embeddings, recurrent cells."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .fault import IMAGE, Fault, rand, square


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


GRU = {n: square(seed=i) for i, n in enumerate("abcdef")} | {"g": rand(24, seed=7)}

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
