"""Compile the CUDA kernels of operators into a library for ONNX Runtime's CUDA execution provider."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..native.compile_job import CompileJob
from ..native.cuda_library import (
    DEFAULT_ARCHS,
    CudaBuild,
    cuda_tools,
    expect_budget,
    link_flags,
)
from ..native.cuda_plan import CudaPlan
from ..native.jobs import run_all
from ..native.kernel_files import INCLUDE
from ..native.linking import put_library, writing_library
from ..native.nvcc_objects import CudaCache
from ..native.planning import planned
from .build_plan import NATIVE_CPP, ORT_CPP
from .cuda_plan import make_cuda_plan
from .manifest_writer import write_cuda_manifest

if TYPE_CHECKING:
    from ..native.nvcc_output import KernelResources
    from ..symbolic.operator import Operator

__all__ = ["CUDA_NAME", "DEFAULT_ARCHS", "CudaBuilt", "build_cuda_library"]

CUDA_NAME = "libdeployops_ort_cuda.so"  # of every library
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


@dataclass(frozen=True, slots=True)
class CudaBuilt:
    """What `compile_library` tells of a library of CUDA kernels."""

    path: Path
    operators: tuple[str, ...]
    archs: tuple[int, ...]
    compiled: int
    kernels: tuple[KernelResources, ...]
    warnings: tuple[str, ...]


def build_cuda_library(
    ops: Sequence[Operator | str] | None,
    *,
    folder: Path,
    archs: Sequence[int],
    nvcc: str | None,
    cxx: str | None,
    budget: bool,
    jobs: int | None,
    progress: Callable[[int, int, str], None] | None,
) -> CudaBuilt:
    """Compile into `folder/libdeployops_ort_cuda.so`, with a manifest beside it. Arguments as of `compile_library`.

    Needs no CUDA device, no driver and no ONNX Runtime.
    """
    tools = cuda_tools(cxx, nvcc, archs)
    cache = CudaCache()
    plan = planned(
        ops,
        cache=cache.root,
        target="ort-cuda",
        ours=("native", "ort_ops", "symbolic"),
        read=CudaPlan.from_dict,
        make=make_cuda_plan,
    )
    build = CudaBuild(tools, cache, (NATIVE_CPP,))
    parts = [
        CompileJob(name, source, tools.cxx, _FLAGS, (tools.nvcc.include, INCLUDE, NATIVE_CPP, ORT_CPP))
        for name, source in (
            ("CUDA operator table", plan.table),
            ("ONNX Runtime adapter for CUDA", '#include "cuda_target.h"\n#include "ort_adapter.cpp"\n'),
        )
    ]
    tasks = build.tasks(plan.units) + [(job.name, functools.partial(cache.compile, job)) for job in parts]
    objects = run_all(tasks, jobs, progress)
    resources = build.resources(plan.units)
    if budget:
        expect_budget(resources)
    built = cache.link(objects, tools.cxx, link_flags(tools.nvcc, ORT_CPP / "exports.map"), CUDA_NAME)
    with writing_library(folder):
        path = put_library(built, folder, CUDA_NAME)
        write_cuda_manifest(path, plan, tools, resources, _FLAGS)
    compiled = build.compiled(plan.units) + sum(
        cache.outputs[j.name].compiled for j in parts if j.name in cache.outputs
    )
    kernels = tuple(k for name in sorted(resources) for k in resources[name])
    return CudaBuilt(
        path,
        plan.names,
        tools.archs,
        compiled,
        kernels,
        tuple(dict.fromkeys((*plan.notes, *build.warnings(plan.units)))),
    )
