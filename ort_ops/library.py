"""Compile declared operators into a library that any ONNX Runtime from 1.17 on loads."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.cache_store import default_root
from ..native.compilers import Compiler, find_cxx
from ..native.diagnostics import CompileError, explain, warnings_in
from ..native.jobs import run_all
from ..native.levels import levels_for
from ..native.object_cache import Cache, CompileJob
from ..native.output_files import replace_file
from ..native.planning import planned
from .build_plan import Plan
from .library_manifest import manifest_path
from .manifest_writer import write_manifest

if TYPE_CHECKING:
    from ..symbolic.operator import Operator
    from .build_plan import Unit

__all__ = ["NAME", "Library", "compile_library", "ort_library", "shipped_folder"]

Progress = Callable[[int, int, str], None]

NAME = "libdeployops_ort_cpu.so"  # of every library
_TARGETS = ("ort-cpu",)
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
    """

    path: Path
    operators: tuple[str, ...]
    compiled: int
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def manifest(self) -> Path:
        return manifest_path(self.path)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "library": str(self.path),
            "manifest": str(self.manifest),
            "operators": list(self.operators),
            "compiled": self.compiled,
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
        }

    def summary(self) -> str:
        """For people: what was built, and the compiler's warnings."""
        size = self.path.stat().st_size / 1e6
        count = f"{len(self.operators)} operator{'' if len(self.operators) == 1 else 's'}"
        done = f"{self.compiled} compiled" if self.compiled else "nothing had changed"
        head = f"{self.path}: {count}, {size:.2f} MB, {self.seconds:.1f} s ({done})"
        return "\n".join([*self.warnings, head])


def compile_library(
    target: str = "ort-cpu",
    ops: Sequence[Operator | str] | None = None,
    *,
    out: str | Path | None = None,
    cxx: str | None = None,
    flags: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Library:
    """Compile operators into `out/libdeployops_ort_cpu.so`, with a manifest beside it.

    Every object is kept in a cache by the content of what went into it. Where nothing changed since the library
    was written, nothing is done.

    Args:
        target: "ort-cpu": ONNX Runtime on the CPU.
        ops: declared operators, or modules and files that declare them (`acme.ops`, `ops/acme.py`: they are run);
            None: those that come with deployops.
        out: the folder to write to; None: `lib`, and for the shipped operators the place in the user's cache
            where sessions look for them.
        cxx: the C++ compiler; None: $CXX, else g++, else clang++.
        flags: more flags for it (sanitizers, say).
        jobs: compilers at once; None: one per core.
        progress: called as objects are done: how many, of how many, which.

    Raises:
        UsageError: no compiler, no kernel file, a wrong argument.
        DeclarationError: an operator that a native library cannot carry, with the reason.
        CompileError: the compiler's errors, at the lines of the kernel.
    """
    start = time.perf_counter()
    if target not in _TARGETS:
        raise UsageError(f"target {target!r} is not known; known are {', '.join(_TARGETS)}")
    folder = shipped_folder() if out is None and ops is None else Path("lib" if out is None else out)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; `out` is the folder that the library is written to")
    compiler = find_cxx(cxx)
    cache = Cache()
    plan = _plan(ops, compiler, cache)
    compiled = _Compilation(cache, compiler, tuple(flags), plan)
    path = compiled.write(folder, jobs, progress)
    warnings = (*plan.notes, *compiled.warnings())
    return Library(path, plan.names, compiled.count, time.perf_counter() - start, warnings)


def ort_library() -> str:
    """The path of a library with all shipped operators, for ``SessionOptions.register_custom_ops_library``.

    Compiled when it is first asked for (a minute or so), and kept in the user's cache. Raises as `compile_library`.
    """
    return str(compile_library().path)


def shipped_folder() -> Path:
    """Where the library of the shipped operators is kept for this user and version."""
    from .. import __version__

    return default_root() / f"deployops-{__version__}"


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
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UsageError(f"{folder} cannot be made: {e.strerror}") from None
        path = folder / NAME
        # A library that a process has loaded is replaced, never overwritten; one that is right already is left alone.
        if not path.is_file() or path.read_bytes() != built.read_bytes():
            replace_file(path, lambda temporary: shutil.copyfile(built, temporary), executable=True)
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
            text = explain(
                e.output,
                [Path(unit.include_dirs[-1])],
                generated=unit.source,
                kernel=unit.operator,
                signature=unit.signature,
            )
            raise CompileError(text, output=e.output, log=e.log) from None
