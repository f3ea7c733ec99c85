"""Compile declared operators into a library that any ONNX Runtime from 1.17 on loads: for the CPU, or for CUDA."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.cache_entries import own_folder
from ..native.cache_store import default_root
from ..native.compilers import Compiler, find_cxx
from ..native.diagnostics import CompileError, explained, warnings_in
from ..native.jobs import run_all
from ..native.levels import levels_for
from ..native.linking import put_library, writing_library
from ..native.object_cache import Cache, CompileJob
from ..native.planning import planned
from .build_plan import Plan
from .cuda_library import CUDA_NAME, DEFAULT_ARCHS, build_cuda_library
from .library_manifest import manifest_path
from .manifest_writer import write_manifest

if TYPE_CHECKING:
    from ..native.nvcc_output import KernelResources
    from ..symbolic.operator import Operator
    from .build_plan import Unit

__all__ = [
    "CUDA_NAME",
    "NAME",
    "Library",
    "compile_library",
    "ort_library",
    "shipped_folder",
    "shipped_library",
]

Progress = Callable[[int, int, str], None]

NAME = "libdeployops_ort_cpu.so"  # of every library for the CPU
_NAMES = {"ort-cpu": NAME, "ort-cuda": CUDA_NAME}
_EXPORTS = Path(__file__).resolve().parent.parent / "native" / "cpp" / "exports.map"

# No -march here: each kernel is compiled for every level, and the processor decides at run time. No fused or
# reordered arithmetic behind the author's back: what is written is what is computed, at every level.
_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-pthread", "-Wall", "-Wextra", "-Wno-psabi",
)  # fmt: skip
_LINK_FLAGS = ("-pthread", "-Wl,--gc-sections", f"-Wl,--version-script={_EXPORTS}")


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled library.

    Attributes:
        path: the `.so`; its manifest is the `.json` beside it.
        operators: ONNX names of what is in it.
        compiled: how many objects had to be compiled; the others were in the cache.
        seconds: how long it took.
        warnings: what the compiler said of the user's kernels, and what their samples leave open.
        archs: for CUDA: compute capabilities with machine code, 80 for 8.0; the oldest also as PTX.
        kernels: for CUDA: what each kernel needs on each architecture.
    """

    path: Path
    operators: tuple[str, ...]
    compiled: int
    seconds: float
    warnings: tuple[str, ...] = ()
    archs: tuple[int, ...] = ()
    kernels: tuple[KernelResources, ...] = ()

    @property
    def manifest(self) -> Path:
        return manifest_path(self.path)

    @property
    def over_budget(self) -> tuple[KernelResources, ...]:
        """CUDA kernels that spill registers or use local memory."""
        return tuple(k for k in self.kernels if k.over_budget)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        cuda = {
            "archs": list(self.archs),
            "kernels": len(self.kernels),
            "over_budget": [
                {"kernel": k.name, "arch": k.arch, "reason": k.over_budget} for k in self.over_budget
            ],
        }
        return {
            "library": str(self.path),
            "manifest": str(self.manifest),
            "operators": list(self.operators),
            "compiled": self.compiled,
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
            **(cuda if self.archs else {}),
        }

    def summary(self) -> str:
        """For people: what was built, and the compiler's warnings."""
        size = self.path.stat().st_size / 1e6
        count = f"{len(self.operators)} operator{'' if len(self.operators) == 1 else 's'}"
        done = f"{self.compiled} compiled" if self.compiled else "nothing had changed"
        archs = f"{', '.join(f'sm_{a}' for a in self.archs)}, " if self.archs else ""
        head = f"{self.path}: {count}, {archs}{size:.2f} MB, {self.seconds:.1f} s ({done})"
        over = (
            [
                f"{len(self.over_budget)} of {len(self.kernels)} kernels spill registers or use local memory "
                "(the manifest says which)"
            ]
            if self.over_budget
            else []
        )
        return "\n".join([*self.warnings, *over, head])


def compile_library(
    target: str = "ort-cpu",
    ops: Sequence[Operator | str] | None = None,
    *,
    out: str | Path | None = None,
    cxx: str | None = None,
    flags: Sequence[str] = (),
    archs: Sequence[int] | None = None,
    nvcc: str | None = None,
    budget: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Library:
    """Compile operators into `out/libdeployops_ort_cpu.so` (or `…_ort_cuda.so`), with a manifest beside it.

    Every object is kept in a cache by the content of what went into it. Where nothing changed since the library
    was written, nothing is done.

    Args:
        target: "ort-cpu": ONNX Runtime on the CPU. "ort-cuda": its CUDA execution provider; compiled without a GPU.
        ops: declared operators, or modules and files that declare them (`acme.ops`, `ops/acme.py`: they are run);
            None: those that come with deployops.
        out: the folder to write to; None: `lib`, and for the shipped operators the place in the user's cache
            where sessions look for them.
        cxx: the C++ compiler; None: $CXX, else g++, else clang++.
        flags: ort-cpu: more flags for it (sanitizers, say).
        archs: ort-cuda: compute capabilities to have machine code for, 80 for 8.0; None: 80, 86, 89, 90, 100, 120. The
            oldest is there as PTX too, for newer GPUs.
        nvcc: ort-cuda: the CUDA compiler; None: $CUDA_HOME, PATH, the PyPI wheels.
        budget: ort-cuda: refuse kernels that spill registers or use local memory.
        jobs: compilers at once; None: one per core.
        progress: called as objects are done: how many, of how many, which.

    Raises:
        UsageError: no C++ compiler, no kernel file, a wrong argument.
        NotCheckedError: ort-cuda: no CUDA compiler.
        DeclarationError: an operator that a native library cannot carry, with the reason.
        CompileError: the compiler's errors, at the lines of the kernel; with `budget`, the kernels beyond it.
    """
    start = time.perf_counter()
    _expect_target(target)
    folder = shipped_folder() if out is None and ops is None else Path("lib" if out is None else out)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; `out` is the folder that the library is written to")
    if out is None and ops is None:
        with contextlib.suppress(OSError):  # whoever writes into it says so
            own_folder(folder)
    if target == "ort-cuda":
        if flags:
            raise UsageError(
                "`flags` are for the target ort-cpu: kernels for CUDA are compiled with fixed ones"
            )
        built = build_cuda_library(
            ops,
            folder=folder,
            archs=DEFAULT_ARCHS if archs is None else archs,
            nvcc=nvcc,
            cxx=cxx,
            budget=budget,
            jobs=jobs,
            progress=progress,
        )
        return Library(
            built.path,
            built.operators,
            built.compiled,
            time.perf_counter() - start,
            built.warnings,
            built.archs,
            built.kernels,
        )
    if archs is not None or nvcc is not None or budget:
        raise UsageError("`archs`, `nvcc` and `budget` are for the target ort-cuda")
    compiler = find_cxx(cxx)
    cache = Cache()
    plan = _plan(ops, compiler, cache)
    compiled = _Compilation(cache, compiler, tuple(flags), plan)
    path = compiled.write(folder, jobs, progress)
    warnings = (*plan.notes, *compiled.warnings())
    return Library(path, plan.names, compiled.count, time.perf_counter() - start, warnings)


def ort_library(target: str = "ort-cpu") -> str:
    """The path of a library with all shipped operators, for ``SessionOptions.register_custom_ops_library``.

    Compiled when it is first asked for (for the CPU a minute or so, for CUDA some minutes), and kept in the user's cache.
    ONNX Runtime takes one library for these operators: for CUDA, that for CUDA instead of that for the CPU.

    Args:
        target: "ort-cpu", or "ort-cuda" for the CUDA execution provider.

    Raises as `compile_library`.
    """
    return str(compile_library(target).path)


def shipped_library(target: str) -> Path:
    """Where `ort_library(target)` is, if it has been compiled."""
    return shipped_folder() / _NAMES[target]


def shipped_folder() -> Path:
    """Where the library of the shipped operators is kept for this user and version."""
    from .. import __version__

    return default_root() / f"deployops-{__version__}"


def _expect_target(target: str) -> None:
    if target not in _NAMES:
        raise UsageError(f"target {target!r} is not known; known are {', '.join(_NAMES)}")


def _plan(ops: Sequence[Operator | str] | None, compiler: Compiler, cache: Cache) -> Plan:
    def make(operators: list[Operator]) -> Plan:
        from .build_plan import make_plan

        return make_plan(operators, levels_for(compiler.target))

    ours = ("native", "ort_ops", "symbolic")
    return planned(ops, cache=cache.root, target=compiler.target, ours=ours, read=Plan.from_dict, make=make)


class _Compilation:
    """A plan on its way to a library."""

    def __init__(self, cache: Cache, compiler: Compiler, flags: tuple[str, ...], plan: Plan) -> None:
        self._cache, self._compiler, self._flags, self._plan = cache, compiler, flags, plan

    def write(self, folder: Path, workers: int | None, progress: Progress | None) -> Path:
        tasks = [(unit.name, functools.partial(self._compile, unit)) for unit in self._plan.units]
        objects = run_all(tasks, workers, progress)
        # a sanitizer's report is of little use without symbols
        strip = () if any("-fsanitize" in f for f in self._flags) else ("-Wl,--strip-all",)
        built = self._cache.link(objects, self._compiler, (*_LINK_FLAGS, *self._flags, *strip), NAME)
        with writing_library(folder):
            path = put_library(built, folder, NAME)
            write_manifest(path, self._plan, self._compiler, (*_FLAGS, *self._flags))
        return path

    @property
    def count(self) -> int:
        """How many objects had to be compiled."""
        names = {unit.name for unit in self._plan.units}
        return sum(output.compiled for name, output in self._cache.outputs.items() if name in names)

    def warnings(self) -> tuple[str, ...]:
        """What the compiler has to say of the kernels, each thing once."""
        said: dict[str, None] = {}
        for unit in self._plan.units:
            output = self._cache.outputs.get(unit.name)
            if output is not None and unit.operator:
                folder = Path(unit.include_dirs[-1])
                found = warnings_in(output.text, [folder], generated=unit.source, kernel=unit.operator)
                said |= dict.fromkeys(found)
        return tuple(said)

    def _compile(self, unit: Unit) -> Path:
        job = CompileJob(
            name=unit.name,
            source=unit.source,
            compiler=self._compiler,
            flags=(*_FLAGS, *unit.flags, *self._flags),
            include_dirs=tuple(map(Path, unit.include_dirs)),
            keep_symbol=unit.keep_symbol,
        )
        try:
            return self._cache.compile(job)
        except CompileError as e:
            if not unit.operator:
                raise
            raise explained(
                e,
                [Path(unit.include_dirs[-1])],
                generated=unit.source,
                kernel=unit.operator,
                signature=unit.signature,
            ) from None
