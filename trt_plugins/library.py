"""Compiling a plugin library: the plan of what there is to build, the build, and what the user is told."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.compile_job import CompileJob
from ..native.compilers import Compiler, find_cxx
from ..native.diagnostics import CompileError, warnings_in
from ..native.jobs import run_all
from ..native.kernel_files import INCLUDE
from ..native.nvcc import Nvcc, find_nvcc
from ..native.nvcc_objects import CudaCache
from ..native.nvcc_output import KernelResources, kernel_resources
from ..native.output_files import replace_file
from ..native.planning import planned
from .headers import Headers, find_headers
from .kernel_objects import KernelObjects, largest_first, object_name
from .manifest import manifest_path, write_manifest
from .parts import PartsAhead
from .plan import KernelUnit, PluginPlan, make_plan

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["DEFAULT_ARCHS", "NAME", "PluginLibrary", "compile_plugins", "expect_archs", "expect_budget"]

Progress = Callable[[int, int, str], None]

NAME = "libdeployops_trt.so"  # of every library
DEFAULT_ARCHS = (80, 86, 89, 90, 100, 120)  # compute capabilities 8.0 to 12.0: Ampere to Blackwell
_OURS = Path(__file__).resolve().parent / "cpp"
_PARTS = ("attributes", "messages", "plugin", "plugin_runtime", "exported")

_HOST_FLAGS = ("-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall", "-Wextra")
_CXX_FLAGS = ("-std=c++17", "-O2", *_HOST_FLAGS)


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
    compiler = find_cxx(cxx)
    tool = find_nvcc(compiler, nvcc)
    tools = _Tools(compiler, tool, find_headers(tensorrt_root), expect_archs(archs, tool))
    cache = CudaCache()
    with PartsAhead(cache, [_part_job(tools, n, f'#include "{n}.cpp"\n') for n in _PARTS], jobs) as parts:
        objects = KernelObjects(cache, compiler, tool, tools.archs, parts)
        build = _Build(tools, cache, _plan(ops, cache, objects), parts, objects)
        path, kernels = build.write(folder, budget, jobs, progress)
    warnings = build.warnings()
    return PluginLibrary(
        path,
        build.plan.names,
        tools.archs,
        build.compiled,
        time.perf_counter() - start,
        kernels,
        warnings,
    )


def expect_archs(archs: Sequence[int], nvcc: Nvcc) -> tuple[int, ...]:
    """Each once, in their order. Raises UsageError for what is none, or what `nvcc` does not compile for."""
    if not archs or not all(isinstance(a, int) and 75 <= a < 1000 for a in archs):
        raise UsageError(f"archs = {list(archs)}: compute capabilities are expected, 80 for 8.0, from 75 on")
    strange = [a for a in archs if a not in nvcc.archs]
    if strange:
        raise UsageError(
            f"nvcc {nvcc.version} compiles for {', '.join(map(str, nvcc.archs))}, "
            f"not for {', '.join(map(str, strange))}"
        )
    return tuple(sorted(set(archs)))


def _plan(ops: Sequence[Operator | str] | None, cache: CudaCache, objects: KernelObjects) -> PluginPlan:
    return planned(
        ops,
        cache=cache.root,
        target="tensorrt",
        ours=("native", "trt_plugins", "symbolic"),
        read=PluginPlan.from_dict,
        make=functools.partial(make_plan, begin=objects.begin),
    )


@dataclass(frozen=True, slots=True)
class _Tools:
    cxx: Compiler
    nvcc: Nvcc
    headers: Headers
    archs: tuple[int, ...]


def _part_job(tools: _Tools, name: str, source: str) -> CompileJob:
    return CompileJob(
        name=f"plugin {name}",
        source=source,
        compiler=tools.cxx,
        flags=_CXX_FLAGS,
        include_dirs=(tools.nvcc.include, INCLUDE, _OURS, tools.headers.folder),
    )


class _Build:
    """A plan on its way to a library. `parts`, `objects`: what is being compiled already."""

    def __init__(
        self, tools: _Tools, cache: CudaCache, plan: PluginPlan, parts: PartsAhead, objects: KernelObjects
    ) -> None:
        self.plan = plan
        self._tools, self._cache, self._parts, self._objects = tools, cache, parts, objects
        self._units = largest_first(plan.kernels)
        self._table = _part_job(tools, "table", plan.table)

    @property
    def compiled(self) -> int:
        """How many objects had to be compiled."""
        names = {object_name(k) for k in self._units} | {
            self._table.name,
            *(name for name, _ in self._parts.tasks),
        }
        return sum(output.compiled for name, output in self._cache.outputs.items() if name in names)

    def write(
        self, folder: Path, budget: bool, workers: int | None, progress: Progress | None
    ) -> tuple[Path, tuple[KernelResources, ...]]:
        tasks = self._objects.tasks(self._units)
        tasks += [(self._table.name, functools.partial(self._cache.compile, self._table)), *self._parts.tasks]
        objects = run_all(tasks, workers, progress)
        resources = {k.operator: kernel_resources(self._said(k)) for k in self._units}
        kernels = tuple(r for name in sorted(resources) for r in resources[name])
        if budget:
            expect_budget(resources)
        flags = (
            str(self._tools.nvcc.runtime), "-pthread", "-ldl", "-lrt", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL",
            f"-Wl,--version-script={_OURS / 'exports.map'}", "-Wl,--strip-all",
        )  # fmt: skip
        built = self._cache.link(objects, self._tools.cxx, flags, NAME)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UsageError(f"{folder} cannot be made: {e.strerror}") from None
        path = folder / NAME
        # A library that a process has loaded is replaced, never overwritten; one that is right already is left alone.
        if not path.is_file() or path.read_bytes() != built.read_bytes():
            replace_file(path, lambda temporary: shutil.copyfile(built, temporary), executable=True)
        write_manifest(path, self.plan, resources, self._tools.archs, self._tools.nvcc, self._tools.headers)
        return path, kernels

    def warnings(self) -> tuple[str, ...]:
        """What the author should know, each thing once."""
        said = dict.fromkeys(self.plan.notes)
        for unit in self._units:
            folder = Path(unit.file).parent
            said |= dict.fromkeys(
                warnings_in(self._said(unit), [folder], generated=unit.source, kernel=unit.operator)
            )
        return tuple(said)

    def _said(self, unit: KernelUnit) -> str:
        return self._cache.outputs[object_name(unit)].text


def expect_budget(resources: Mapping[str, Sequence[KernelResources]]) -> None:
    """Raises CompileError where a kernel spills registers or uses local memory; `resources` by operator."""
    over = [
        f"{operator}: {k.name} on sm_{k.arch}: {k.over_budget}"
        for operator, kernels in resources.items()
        for k in kernels
        if k.over_budget
    ]
    if over:
        shown = "\n".join(over[:10])
        more = f"\n… and {len(over) - 10} more" if len(over) > 10 else ""
        raise CompileError(
            f"{len(over)} kernels spill registers or use local memory, which the budget does not allow:\n{shown}{more}\n"
            "Hold fewer numbers at once in each thread, or give the kernel more registers (__launch_bounds__)"
        )
