"""Operators whose CUDA kernels tell what an adapter gave them, or go wrong in one way each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from deployops import operator


@operator("cudapack::stream_of", dtypes=("int64",))
def stream_of(x: Tensor) -> Tensor:
    """The number of the stream that the kernel is launched on; its reference knows none."""
    return x.clone()


@operator("cudapack::forgets", dtypes=("float32",))
def forgets(x: Tensor) -> Tensor:
    """Its launcher asks for more threads than a block has, and does not look at the error."""
    return x.clone()


@operator("cudapack::refuses", dtypes=("float32",))
def refuses(x: Tensor) -> Tensor:
    """Its launcher takes matrices alone."""
    return x.clone()


@operator("cudapack::beyond", dtypes=("float32",))
def beyond(x: Tensor) -> Tensor:
    """Its launcher returns an error of CUDA."""
    return x.clone()


@operator("cudapack::elsewhere", dtypes=("float32",))
def elsewhere(x: Tensor) -> Tensor:
    """Its launcher launches on the default stream."""
    return x.clone()


@operator("cudapack::two", dtypes=("float32", "float16"), outputs=("twice", "thrice"))
def two(x: Tensor) -> tuple[Tensor, Tensor]:
    """2·x and 3·x: either may be left out."""
    return x * 2, x * 3


for op in (stream_of, forgets, refuses, beyond, elsewhere):

    @op.fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @op.samples
    def _(draw: Any) -> Iterator[Any]:
        yield (draw(2, 3),)


@two.fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@two.samples
def _(draw: Any) -> Iterator[Any]:
    yield (draw(2, 3),)
    yield (draw(0, 4),)
