"""What the tests of the kernels share: one call of a kernel, at any instruction-set level and with any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from deployops.native.cpu_library import CpuLibrary
from deployops.symbolic.operator import Operator


@pytest.fixture(scope="session")
def shipped_kernels(shipped_library: str) -> CpuLibrary:
    """The kernels of all shipped operators."""
    return CpuLibrary(shipped_library)


@pytest.fixture
def cpu_kernel(shipped_kernels: CpuLibrary) -> Callable[..., list[torch.Tensor]]:
    """``cpu_kernel(op, *args, threads=1, level=None, **kwargs)``: the outputs of the kernel itself, no runtime around it."""

    def run(
        op: Operator, *args: Any, threads: int = 1, level: str | None = None, **kwargs: Any
    ) -> list[torch.Tensor]:
        return shipped_kernels.run(op, args, kwargs, threads=threads, level=level)

    return run


@pytest.fixture(params=["portable", "avx2", "avx512"])
def level(request: pytest.FixtureRequest, shipped_kernels: CpuLibrary) -> str:
    """Every instruction-set level that this processor runs; the others are reported as not checked."""
    name: str = request.param
    if name not in shipped_kernels.levels:
        pytest.skip(f"not checked: this processor does not run the kernels of level {name}")
    return name
