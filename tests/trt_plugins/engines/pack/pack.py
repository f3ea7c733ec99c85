"""A user's operator with a CUDA kernel, for engines with a plugin in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from deployops import operator


@operator("enginepack::scaled", dtypes=("float32", "float16"))
def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    """x·factor, elementwise."""
    return x * factor


@scaled.fake
def _(x: Tensor, factor: float = 2.0) -> Tensor:
    return torch.empty_like(x)


@scaled.samples
def _(draw: Any) -> Iterator[Any]:
    yield draw(3, 5), 0.5
    yield draw(4), 3.0
