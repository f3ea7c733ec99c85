"""What `bench_ort.py` measures: each operator with inputs of some size, and the same as PyTorch users write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deployops.symbolic import registry
from deployops.symbolic.operator import Operator

registry.load_builtin()
OPS = {op.name.partition("::")[2]: op for op in registry.all_operators() if op.name.startswith("deployops::")}
SMALL_TO_LARGE = (64, 4096, 1 << 18, 1 << 22)


@dataclass(frozen=True)
class Case:
    """`draw(elements, dtype)` gives the arguments; `eager`: the same in PyTorch, by hand; `also`: torch's own."""

    op_name: str
    draw: Callable[[int, torch.dtype], tuple[list[Any], dict[str, Any]]]
    eager: Callable[..., Any] | None = None
    also: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    variant: str = ""
    elementwise: bool = False
    sizes: tuple[int, ...] = SMALL_TO_LARGE

    @property
    def op(self) -> Operator:
        return OPS[self.op_name]

    @property
    def name(self) -> str:
        return f"{self.op_name}{f' ({self.variant})' if self.variant else ''}"


def flat(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    return [torch.randn(n).to(dtype)], {}


def two(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    return [torch.randn(n).to(dtype), torch.randn(n).to(dtype)], {}


def image(n: int) -> tuple[int, int, int]:
    """(N, C, H·W) with n elements: at 16M, 1 × 64 × 512 × 512."""
    channels = 4 if n < 4096 else 64
    return 1, channels, n // channels


def channels(activation: str) -> Callable[[int, torch.dtype], tuple[list[Any], dict[str, Any]]]:
    def draw(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        shape = image(n)
        vectors = [torch.rand(shape[1]).to(dtype), torch.randn(shape[1]).to(dtype)]
        return [torch.randn(shape).to(dtype), *vectors], {"activation": activation}

    return draw


def swish_inputs(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    shape = image(n)
    return [torch.randn(shape).to(dtype), torch.rand(shape[1]).to(dtype)], {}


def width(n: int) -> int:
    return 64 if n <= 64 else 1024 if n > 4096 else 256


def rows(vectors: int) -> Callable[[int, torch.dtype], tuple[list[Any], dict[str, Any]]]:
    def draw(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        c = width(n)
        return [torch.randn(n // c, c).to(dtype), *[torch.rand(c).to(dtype) for _ in range(vectors)]], {}

    return draw


def residual(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    c = width(n)
    return [torch.randn(n // c, c).to(dtype), torch.randn(n // c, c).to(dtype), torch.rand(c).to(dtype)], {}


def pooled(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    _, c, area = image(n)
    side = 2 ** ((area.bit_length() - 1) // 2)
    return [torch.randn(1, c, side, area // side).to(dtype)], {}


def heads(causal: bool) -> Callable[[int, torch.dtype], tuple[list[Any], dict[str, Any]]]:
    def draw(n: int, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        # n = 8 · length · 64; the smallest is one head of one short sequence
        shape = (1, 1, 4, 16) if n <= 64 else (1, 8, n // 512, 64)
        return [torch.randn(shape).to(dtype) for _ in range(3)], ({"is_causal": True} if causal else {})

    return draw


# --- as PyTorch users write it; in halves, with the statistics in float32, as model code does -----------------------


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    z = x.float()
    return (z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    total = x + residual
    return rms_norm(total, weight, eps), total


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    z = x.float()
    d = z - z.mean(-1, keepdim=True)
    return (d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight + bias


def swish(x: Tensor, beta: Tensor) -> Tensor:
    b = beta.reshape(1, -1, 1)
    return x * torch.sigmoid(b * x)


def cube_root(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.abs(x).pow(1 / 3)


def scale_bias(x: Tensor, scale: Tensor, bias: Tensor, activation: str) -> Tensor:
    functions = {"relu": F.relu, "silu": F.silu, "gelu": F.gelu, "sigmoid": torch.sigmoid}
    return functions[activation](x * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1))


def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if is_causal:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~past, float("-inf"))
    return torch.softmax(scores, -1) @ v


def torch_sdpa(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


LENGTHS = (64, 8 * 64 * 64, 8 * 256 * 64, 8 * 1024 * 64)

CASES = (
    Case("relu", flat, F.relu, elementwise=True),
    Case("add_relu", two, lambda x, y: F.relu(x + y), elementwise=True),
    *(
        Case("scale_bias_act", channels(a), scale_bias, variant=a, elementwise=True)
        for a in ("relu", "silu", "gelu", "sigmoid")
    ),
    Case("sigmoid", flat, torch.sigmoid, elementwise=True),
    Case("swish", swish_inputs, swish, elementwise=True),
    Case("cube_root", flat, cube_root, elementwise=True),
    Case("softmax", rows(0), lambda x: torch.softmax(x, -1)),
    Case("layer_norm", rows(2), layer_norm, {"F.layer_norm": lambda x, w, b: F.layer_norm(x, w.shape, w, b)}),
    Case("rms_norm", rows(1), rms_norm, {"F.rms_norm": lambda x, w: F.rms_norm(x, w.shape, w, 1e-6)}),
    Case("add_rms_norm", residual, add_rms_norm),
    Case("mean_pool", pooled, lambda x: x.mean((2, 3))),
    Case("attention", heads(False), attention, {"sdpa": torch_sdpa}, sizes=LENGTHS),
    Case("attention", heads(True), attention, {"sdpa": torch_sdpa}, variant="causal", sizes=LENGTHS),
)
