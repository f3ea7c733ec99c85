"""A planted fault as data: the right function, the faulty one, and the inputs on which they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

ALL = ("float32", "float16", "bfloat16")


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def square(n: int = 24, seed: int = 9) -> torch.Tensor:
    return rand(n, n, seed=seed) / n**0.5


IMAGE = rand(2, 4, 9, 10)
HALVES = torch.arange(-64, 64).reshape(8, 16) / 2


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
