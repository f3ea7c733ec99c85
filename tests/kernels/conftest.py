"""What the tests of the kernels share: one call of a kernel, at any instruction-set level and with any number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from deployops.native.cpu_library import CpuLibrary
from deployops.symbolic.operator import Operator

from .aarch64.library import Aarch64Library, missing


@pytest.fixture(scope="session")
def shipped_kernels(shipped_library: str) -> CpuLibrary:
    """The kernels of all shipped operators."""
    return CpuLibrary(shipped_library)


@pytest.fixture(scope="session")
def aarch64_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuLibrary]:
    """The same, compiled for another processor and run in qemu."""
    if "DEPLOYOPS_TEST_LIBRARY" in os.environ:
        pytest.skip("the tests are to be run on another library")
    if lacking := missing():
        pytest.skip(f"not checked: {lacking}")
    library = Aarch64Library(tmp_path_factory.mktemp("aarch64"))
    yield library
    library.close()


@pytest.fixture
def cpu_kernel(
    shipped_kernels: CpuLibrary, request: pytest.FixtureRequest
) -> Callable[..., list[torch.Tensor]]:
    """``cpu_kernel(op, *args, threads=1, level=None, **kwargs)``: the outputs of the kernel itself, no runtime around it."""

    def run(
        op: Operator, *args: Any, threads: int = 1, level: str | None = None, **kwargs: Any
    ) -> list[torch.Tensor]:
        library: CpuLibrary = shipped_kernels
        if level == "aarch64":
            library, level = request.getfixturevalue("aarch64_kernels"), None
        return library.run(op, args, kwargs, threads=threads, level=level)

    return run


@pytest.fixture(params=["portable", "avx2", "avx512", "aarch64"])
def level(request: pytest.FixtureRequest, shipped_kernels: CpuLibrary) -> str:
    """Every instruction-set level that this processor runs, and another processor; else reported as not checked."""
    name: str = request.param
    if name == "aarch64":
        request.getfixturevalue("aarch64_kernels")
    elif name not in shipped_kernels.levels:
        pytest.skip(f"not checked: this processor does not run the kernels of level {name}")
    return name
