"""Compiling a plugin library: the plan of what there is to build, the build, and what the user is told."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.compile_job import CompileJob
from ..native.cuda_library import DEFAULT_ARCHS, CudaBuild, cuda_tools, expect_budget, link_flags
from ..native.cuda_plan import CudaPlan
from ..native.jobs import run_all
from ..native.kernel_files import INCLUDE
from ..native.kernel_manifest import manifest_path
from ..native.linking import put_library, writing_library
from ..native.nvcc_objects import CudaCache
from ..native.nvcc_output import KernelResources
from ..native.planning import planned
from .ahead import Ahead
from .headers import find_headers
from .kernel_digests import kernel_digests
from .manifest import write_manifest
from .plan import make_plan

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["DEFAULT_ARCHS", "NAME", "PluginLibrary", "compile_plugins"]

Progress = Callable[[int, int, str], None]

NAME = "libdeployops_trt.so"  # of every library
_OURS = Path(__file__).resolve().parent / "cpp"
# One object: most of what compiling takes is the headers.
_INTERFACE = "".join(
    f'#include "{name}.cpp"\n' for name in ("attributes", "messages", "plugin", "plugin_runtime", "exported")
)

_CXX_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra")


@dataclass(frozen=True, slots=True)
class PluginLibrary:
    """A compiled plugin library.

    Attributes:
        path: the `.so`; its manifest is the `.json` beside it.
        operators: ONNX names of its plugins.
        archs: compute capabilities with machine code, 80 for 8.0; the oldest also as PTX.
        compiled: how many objects had to be compiled; the others were in the cache.
        seconds: how long it took.
        kernels: what each kernel needs on each architecture.
        warnings: what the compiler said of the user's kernels, what was left out, what the samples leave open.
    """

    path: Path
    operators: tuple[str, ...]
    archs: tuple[int, ...]
    compiled: int
    seconds: float
    kernels: tuple[KernelResources, ...]
    warnings: tuple[str, ...] = ()

    @property
    def manifest(self) -> Path:
        return manifest_path(self.path)

    @property
    def over_budget(self) -> tuple[KernelResources, ...]:
        """Kernels that spill registers or use local memory."""
        return tuple(k for k in self.kernels if k.over_budget)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "library": str(self.path),
            "manifest": str(self.manifest),
            "operators": list(self.operators),
            "archs": list(self.archs),
            "compiled": self.compiled,
            "seconds": round(self.seconds, 3),
            "kernels": len(self.kernels),
            "over_budget": [
                {"kernel": k.name, "arch": k.arch, "reason": k.over_budget} for k in self.over_budget
            ],
            "warnings": list(self.warnings),
        }

    def summary(self) -> str:
        """For people: what was built."""
        size = self.path.stat().st_size / 1e6
        count = f"{len(self.operators)} plugin{'' if len(self.operators) == 1 else 's'}"
        done = f"{self.compiled} compiled" if self.compiled else "nothing had changed"
        archs = ", ".join(f"sm_{a}" for a in self.archs)
        lines = [*self.warnings]
        if self.over_budget:
            lines.append(
                f"{len(self.over_budget)} of {len(self.kernels)} kernels spill registers or use local memory "
                "(the manifest says which)"
            )
        return "\n".join(
            [*lines, f"{self.path}: {count}, {archs}, {size:.2f} MB, {self.seconds:.1f} s ({done})"]
        )


def compile_plugins(
    ops: Sequence[Operator | str] | None = None,
    *,
    archs: Sequence[int] = DEFAULT_ARCHS,
    out: str | Path | None = None,
    nvcc: str | None = None,
    cxx: str | None = None,
    tensorrt_root: str | Path | None = None,
    budget: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> PluginLibrary:
    """Compile the CUDA kernels of operators into `out/libdeployops_trt.so`, with a manifest beside it.

    The library has machine code for `archs`, and PTX of the oldest of them for newer GPUs. It is linked to no library
    of TensorRT and not to libcuda, so that it loads on a machine without a GPU. Objects are kept in the cache by the
    content of what went into them.

    Args:
        ops: declared operators, or modules and files that declare them (they are run); None: those that come with
            deployops.
        archs: compute capabilities, 80 for 8.0.
        out: the folder to write to; None: `lib`.
        nvcc: the CUDA compiler, see `find_nvcc`.
        cxx: the C++ compiler; None: $CXX, else g++, else clang++.
        tensorrt_root: where TensorRT's headers are, see `find_headers`.
        budget: refuse kernels that spill registers or use local memory.
        jobs: compilers at once; None: one per core.
        progress: called as objects are done: how many, of how many, which.

    Raises:
        UsageError: a wrong argument, no kernel file, a tool that will not do.
        NotCheckedError: no compiler, or no headers of TensorRT.
        DeclarationError: an operator that no plugin can carry, with the reason.
        CompileError: the compiler's errors, at the lines of the kernel; with `budget`, the kernels beyond it.
    """
    start = time.perf_counter()
    folder = Path("lib" if out is None else out)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; `out` is the folder that the library is written to")
    tools, headers = cuda_tools(cxx, nvcc, archs), find_headers(tensorrt_root)
    include = (tools.nvcc.include, INCLUDE, _OURS, headers.folder)

    def ours(name: str, source: str) -> CompileJob:
        return CompileJob(f"plugin {name}", source, tools.cxx, _CXX_FLAGS, include)

    cache = CudaCache()
    interface = ours("interface", _INTERFACE)
    with Ahead(jobs) as ahead:
        compiled_interface = ahead.begin(functools.partial(cache.compile, interface))
        build = CudaBuild(tools, cache, (_OURS,), ahead.begin)
        plan = planned(
            ops,
            cache=cache.root,
            target="tensorrt",
            ours=("native", "trt_plugins", "symbolic"),
            read=CudaPlan.from_dict,
            make=functools.partial(make_plan, begin=build.begin),
        )
        table = ours("table", plan.table)
        tasks: list[tuple[str, Callable[[], Path]]] = [
            *build.tasks(plan.units),
            (table.name, functools.partial(cache.compile, table)),
            (interface.name, compiled_interface),
        ]
        objects = run_all(tasks, jobs, progress)
        made = {name: path for (name, _), path in zip(tasks, objects, strict=True)}
        source = kernel_digests({unit.symbol: made[unit.operator] for unit in plan.units})
        digests = CompileJob("plugin kernel digests", source, tools.cxx, _CXX_FLAGS, ())
        objects.append(cache.compile(digests))
    resources = build.resources(plan.units)
    if budget:
        expect_budget(resources)
    built = cache.link(objects, tools.cxx, link_flags(tools.nvcc, _OURS / "exports.map"), NAME)
    with writing_library(folder):
        path = put_library(built, folder, NAME)
        write_manifest(path, plan, resources, tools, headers)
    own = {table.name, interface.name, digests.name}
    return PluginLibrary(
        path,
        plan.names,
        tools.archs,
        build.compiled(plan.units) + sum(o.compiled for name, o in cache.outputs.items() if name in own),
        time.perf_counter() - start,
        tuple(k for name in sorted(resources) for k in resources[name]),
        tuple(dict.fromkeys((*plan.notes, *build.warnings(plan.units)))),
    )
