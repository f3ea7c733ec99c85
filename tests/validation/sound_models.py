"""Models that converters and runtimes compute rightly, of every kind that errs in its own way."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from .candidates import Net


class Residual(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 48), nn.Linear(48, width)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v + self.down(F.silu(self.up(self.norm(v))))


class Attention(nn.Module):
    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.qkv, self.scale, self.fused = nn.Linear(width, 3 * width), width**-0.5, fused

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        q, k, w = self.qkv(v)[:, None].chunk(3, -1)
        if self.fused:
            return F.scaled_dot_product_attention(q, k, w)[:, 0]
        return (torch.softmax(q @ k.transpose(-1, -2) * self.scale, -1) @ w)[:, 0]


class Gate(nn.Module):
    """One number for a whole channel: its error is shared by many elements."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(32, 16), nn.Linear(16, 32)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return v * torch.sigmoid(self.up(F.relu(self.down(v.mean(1, keepdim=True)))))


class Heads(nn.Module):
    """Boxes in pixels beside scores, as detectors return them: two magnitudes in one output."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes = nn.Linear(32, 4)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        return torch.cat([300 * torch.sigmoid(self.boxes(v)), torch.softmax(v, -1)], -1)


class First(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(v)[0]
        return out


def dense(activation: nn.Module, depth: int = 3) -> nn.Module:
    layers = [m for _ in range(depth) for m in (nn.Linear(24, 24), activation)]
    return nn.Sequential(*layers, nn.Linear(24, 3))


def fn(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], nn.Module]:
    return lambda: Net(lambda x, _: function(x))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2)
    )


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
    )


FLAT = (40, 60)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(64, 64), (32, 64)),
    "a long sum": (lambda: nn.Linear(2048, 16), (8, 2048)),
    "one number": (lambda: nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1)), (1, 64)),
    "relu net": (lambda: dense(nn.ReLU()), (5, 24)),
    "gelu net": (lambda: dense(nn.GELU()), (5, 24)),
    "gelu-tanh net": (lambda: dense(nn.GELU(approximate="tanh")), (5, 24)),
    "sigmoid net": (lambda: dense(nn.Sigmoid()), (2, 24)),
    "deep tanh net": (lambda: dense(nn.Tanh(), 12), (1, 24)),
    "residual": (lambda: nn.Sequential(Residual(), Residual(), Residual()), (2, 5, 24)),
    "deep residual": (lambda: nn.Sequential(*[Residual() for _ in range(8)]), (2, 5, 24)),
    "convolutions": (convolutions, (2, 3, 11, 13)),
    "convolutions, pooled": (pooled, (1, 3, 9, 9)),
    "attention": (lambda: Attention(16, False), (2, 7, 16)),
    "fused attention": (lambda: Attention(48, True), (3, 9, 48)),
    "gate": (Gate, (1, 40, 32)),
    "heads": (Heads, (60, 32)),
    "gelu": (nn.GELU, FLAT),
    "gelu-tanh": (lambda: nn.GELU(approximate="tanh"), FLAT),
    "silu": (nn.SiLU, FLAT),
    "mish": (nn.Mish, FLAT),
    "elu": (nn.ELU, FLAT),
    "softplus": (nn.Softplus, FLAT),
    "hardswish": (nn.Hardswish, FLAT),
    "relu6": (fn(lambda x: F.relu6(3 * x)), FLAT),
    "tanh": (nn.Tanh, FLAT),
    "sigmoid": (nn.Sigmoid, FLAT),
    "steep sigmoid": (fn(lambda x: torch.sigmoid(12 * x)), FLAT),
    "erf": (fn(torch.erf), FLAT),
    "exp": (fn(torch.exp), FLAT),
    "log": (fn(lambda x: torch.log(1 + x.abs())), FLAT),
    "power": (fn(lambda x: x.abs() ** 1.7), FLAT),
    "root": (fn(lambda x: torch.sqrt(x.abs() + 0.1)), FLAT),
    "several in turn": (lambda: nn.Sequential(nn.Tanh(), nn.GELU(), nn.Sigmoid()), (6, 50)),
    "softmax": (lambda: nn.Softmax(-1), (4, 300)),
    "sharp softmax": (fn(lambda x: torch.softmax(8 * x, -1)), (4, 300)),
    "log-softmax": (lambda: nn.LogSoftmax(-1), (4, 100)),
    "layer norm": (lambda: nn.LayerNorm(60), FLAT),
    "group norm": (lambda: nn.GroupNorm(3, 12), (4, 12, 6, 6)),
    "unit rows": (fn(lambda x: F.normalize(x, dim=-1)), FLAT),
    "unit norm": (fn(lambda x: x / (x * x).sum().sqrt()), (20, 30)),
    "centred": (fn(lambda x: x - x.mean()), (20, 30)),
    "cumulative sum": (fn(lambda x: x.cumsum(1)), (8, 50)),
    "rounded to eighths": (fn(lambda x: torch.round(x * 8) / 8), FLAT),
    "gru": (lambda: First(nn.GRU(8, 12, batch_first=True)), (2, 5, 8)),
}


def seeded(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net = make().eval()
    for layer in net.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return net
