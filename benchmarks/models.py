"""Models of the sizes that the export benchmark measures, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["MODELS", "Benchmarked"]


@dataclass(frozen=True, slots=True)
class Benchmarked:
    """A model, an example input, and the names of its dims that vary."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dims: dict[int, str]


class Block(nn.Module):
    """A transformer block, pre-norm, causal. (B, T, D) to (B, T, D)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions. (B, C, H, W) to (B, 4·planes, H/stride, W/stride)."""

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        out = 4 * planes
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, planes, 1, bias=False), nn.BatchNorm2d(planes), nn.ReLU(inplace=True)),
            *(
                nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
                nn.BatchNorm2d(planes),
                nn.ReLU(inplace=True),
            ),
            *(nn.Conv2d(planes, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        y += self.skip(x)
        result: torch.Tensor = self.relu(y)
        return result


def transformer(layers: int, width: int = 256, heads: int = 4) -> nn.Module:
    return nn.Sequential(*(Block(width, heads) for _ in range(layers)))


def resnet50() -> nn.Module:
    """53 convolutions, 25.6 million parameters."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
    ]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for planes, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(channels, planes, stride if index == 0 else 1))
            channels = 4 * planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


_SEQUENCE = {0: "batch", 1: "seq"}
MODELS: dict[str, Benchmarked] = {
    "transformer-10": Benchmarked(lambda: transformer(10), (2, 16, 256), _SEQUENCE),
    "transformer-50": Benchmarked(lambda: transformer(50), (2, 16, 256), _SEQUENCE),
    "transformer-100": Benchmarked(lambda: transformer(100), (2, 16, 256), _SEQUENCE),
    "transformer-200": Benchmarked(lambda: transformer(200), (2, 16, 256), _SEQUENCE),
    "resnet50": Benchmarked(resnet50, (2, 3, 224, 224), {0: "batch"}),
}
