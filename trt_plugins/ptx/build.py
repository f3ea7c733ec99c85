"""Launchers and PTX of operators, from nvcc, one library for each operator, from the cache where nothing changed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DeployOpsError, NotCheckedError
from ...native.compile_job import CompileJob
from ...native.compilers import Compiler, find_cxx
from ...native.diagnostics import CompileError
from ...native.jobs import run_all
from ...native.kernel_files import INCLUDE, find_kernel
from ...native.nvcc import Nvcc, find_nvcc
from ...native.nvcc_objects import CudaCache, CudaJob
from ..emulation.build import SMALL_LIMITS, compiled
from ..generated import kernel_source, launcher_symbol

if TYPE_CHECKING:
    from ...symbolic.operator import Operator

__all__ = ["ARCH", "Built", "Interpretable", "build"]

ARCH = 80  # whose PTX is interpreted: compute_80
_HERE = Path(__file__).resolve().parent / "cpp"
_PLUGIN = _HERE.parent.parent / "cpp"
_EMULATION = _HERE.parent.parent / "emulation" / "cpp"
_DEVICE_FLAGS = (
    "-std=c++17", "-O3", "--generate-line-info", "--compress-mode=none", f"-gencode=arch=compute_{ARCH},code=compute_{ARCH}",
    *SMALL_LIMITS,
)  # fmt: skip
_HOST_FLAGS = ("-fPIC",)
_RUNTIME_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


@dataclass(frozen=True, slots=True)
class Interpretable:
    """An operator's library: its launcher, with the PTX of its kernels. `symbol`: the function that gives the launcher."""

    path: Path
    symbol: str


@dataclass(frozen=True, slots=True)
class Built:
    """Libraries by the operator's name; `failed`: operators without one -> why."""

    libraries: Mapping[str, Interpretable]
    failed: Mapping[str, DeployOpsError]
    nvcc: Nvcc


def build(
    operators: Sequence[Operator],
    *,
    nvcc: str | None = None,
    cxx: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Built:
    """Compile the CUDA kernels (`.cuh`) of operators to PTX, with their launchers.

    Args:
        nvcc, cxx: the compilers, see `find_nvcc` and `find_cxx`.
        progress: called as objects are done: how many, of how many, which.

    An operator without a kernel, or whose kernel does not compile, is in `failed`, and the others are built.

    Raises NotCheckedError where there is no compiler, UsageError where the one asked for will not do.
    """
    compiler = find_cxx(cxx)
    tool = find_nvcc(compiler, nvcc)
    cache = CudaCache()
    jobs_of: dict[str, CudaJob] = {}
    failed: dict[str, DeployOpsError] = {}
    for op in operators:
        try:
            jobs_of[op.name] = _kernel_job(op, compiler, tool)
        except DeployOpsError as e:  # noqa: PERF203
            failed[op.name] = e
    runtime = CompileJob(
        "interpreted runtime", '#include "runtime.cpp"\n', compiler, _RUNTIME_FLAGS,
        (tool.include, INCLUDE, _PLUGIN, _EMULATION, _HERE),
    )  # fmt: skip
    named = {op.name: op for op in operators}
    tasks: list[tuple[str, Callable[[], Path | DeployOpsError]]] = [
        (name, functools.partial(compiled, cache, job, named[name])) for name, job in jobs_of.items()
    ]
    tasks.append((runtime.name, functools.partial(cache.compile, runtime)))
    made = run_all(tasks, jobs, progress)
    libraries: dict[str, Interpretable] = {}
    for name, outcome in zip(jobs_of, made, strict=False):
        if isinstance(outcome, DeployOpsError):
            failed[name] = outcome
            continue
        assert isinstance(made[-1], Path)
        try:
            path = cache.link(
                [outcome, made[-1]], compiler, ("-Wl,-Bsymbolic",), "libdeployops_interpreted.so"
            )
        except CompileError as e:
            failed[name] = _missing(e)
        else:
            libraries[name] = Interpretable(path, launcher_symbol(named[name]))
    return Built(libraries, failed, tool)


def _kernel_job(op: Operator, compiler: Compiler, nvcc: Nvcc) -> CudaJob:
    from ...native.data_sizes import expect_bounds
    from ...native.signature import check_compilable

    check_compilable(op)
    expect_bounds(op)
    kernel = find_kernel(op, ".cuh")
    return CudaJob(
        name=f"{op.name} (PTX)",
        source=kernel_source(op, kernel.name),
        compiler=compiler,
        flags=_HOST_FLAGS,
        include_dirs=(nvcc.include, INCLUDE, _PLUGIN, kernel.parent),
        nvcc=nvcc,
        device_flags=_DEVICE_FLAGS,
    )


def _missing(error: CompileError) -> DeployOpsError:
    """Where the linker lacks functions of CUDA's runtime, they are what is not interpreted."""
    names = sorted(set(re.findall(r"undefined reference to [`'](cuda\w+)'", error.output or str(error))))
    if not names:
        return error
    return NotCheckedError(f"its launcher calls {', '.join(names)}, which the interpreter's runtime lacks")
