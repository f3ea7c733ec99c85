"""Kernels compiled for the emulation: one shared library, from the cache where nothing changed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import DeployOpsError, UsageError
from ...native.compilers import Compiler, find_cxx
from ...native.cuda_signature import cuda_entries, cuda_entries_symbol, cuda_signature
from ...native.diagnostics import CompileError, explained
from ...native.jobs import run_all
from ...native.kernel_files import INCLUDE, find_kernel
from ...native.object_cache import Cache, CompileJob
from ...native.rendering import template

if TYPE_CHECKING:
    from ...symbolic.operator import Operator

__all__ = ["SMALL_LIMITS", "Built", "Sanitizer", "build", "compiled", "device_jobs", "kernel_flags"]

Sanitizer = Literal["address", "thread"]

_HERE = Path(__file__).resolve().parent
_CPP = _HERE / "cpp"
_DEVICE = ("context", "memory", "block", "meetings", "races", "undefined", "device")
_NAME = "libdeployops_emulated.so"

# DWARF 4: addr2line takes the files of 5 for their neighbours now and then.
_FLAGS = (
    "-std=c++17", "-O2", "-g1", "-gdwarf-4", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-pthread",
    "-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-psabi",
)  # fmt: skip
# Answered by undefined.cpp.
_UNDEFINED = ("-fsanitize=alignment,bounds,integer-divide-by-zero,shift", "-fno-sanitize-recover=all")
# Few blocks and few short indices: grids are gone over several times, and 64-bit indices used, by small samples too.
SMALL_LIMITS = ("-DDEPLOYOPS_MOST_BLOCKS=24", "-DDEPLOYOPS_MOST_SHORT_INDICES=256")
# For tensors of 2^31 elements, and for a smaller one that takes the same way.
LARGE_LIMITS = ("-DDEPLOYOPS_MOST_SHORT_INDICES=0x100000",)
# Without object-size: what it finds, AddressSanitizer finds too, and says more.
_ADDRESS = (
    "-fsanitize=address,undefined", "-fno-sanitize=object-size", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
)  # fmt: skip


_Task = tuple[str, Callable[[], "Path | DeployOpsError"]]


@dataclass(frozen=True, slots=True)
class Built:
    """An emulated library.

    Attributes:
        path: the file, in the cache.
        operators: names -> number in the library.
        folders: the folders behind `include-0` … in messages, by the operator's name.
        failed: operators that it lacks -> why.
    """

    path: Path
    compiler: Compiler
    sanitize: Sanitizer | None
    operators: Mapping[str, int]
    folders: Mapping[str, tuple[Path, ...]]
    failed: Mapping[str, DeployOpsError] = field(default_factory=dict)


def build(
    operators: Sequence[Operator],
    *,
    sanitize: Sanitizer | None = None,
    large: bool = False,
    cxx: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Built:
    """Compile the CUDA kernels (`.cuh`) of operators for the emulation.

    Args:
        sanitize: "address": AddressSanitizer and UndefinedBehaviorSanitizer; "thread": the detector of races.
        large: grids as large as on a device, for huge tensors of which only some blocks are run.
        cxx: the C++ compiler; None: $CXX, else g++, else clang++.
        progress: called as objects are done: how many, of how many, which.

    An operator without a kernel, or whose kernel does not compile, is in `failed`, and the others are built.

    Raises UsageError for an unknown sanitizer, NotCheckedError where there is no compiler.
    """
    if sanitize not in (None, "address", "thread"):
        raise UsageError(f"sanitize = {sanitize!r} is not known; known are address, thread")
    compiler = find_cxx(cxx)
    cache = Cache()
    jobs_of: dict[str, CompileJob] = {}
    failed: dict[str, DeployOpsError] = {}
    for op in operators:
        try:
            jobs_of[op.name] = _kernel_job(
                op, compiler, kernel_flags(sanitize, LARGE_LIMITS if large else SMALL_LIMITS)
            )
        except DeployOpsError as e:  # noqa: PERF203
            failed[op.name] = e
    tasks: list[_Task] = [
        (op.name, functools.partial(compiled, cache, jobs_of[op.name], op))
        for op in operators
        if op.name in jobs_of
    ]
    runtime: list[_Task] = [
        (job.name, functools.partial(cache.compile, job))
        for job in (*device_jobs(compiler, sanitize), _cpp_job("interface", compiler, sanitize))
    ]
    made = run_all([*tasks, *runtime], jobs, progress)
    objects: list[Path] = []
    numbers: dict[str, int] = {}
    by_name = {op.name: op for op in operators}
    for (name, _), outcome in zip(tasks, made, strict=False):
        if isinstance(outcome, DeployOpsError):
            failed[name] = outcome
        else:
            numbers[name] = len(objects)
            objects.append(outcome)
    objects += [path for path in made[len(tasks) :] if isinstance(path, Path)]
    table = template("operators.cpp.j2", _HERE / "templates").render(
        symbols=[cuda_entries_symbol(by_name[name]) for name in numbers]
    )
    objects.append(cache.compile(_job("emulated operators", table, compiler, _runtime_flags(sanitize))))
    link = ("-pthread", "-Wl,-Bsymbolic", *(_ADDRESS if sanitize == "address" else ()))
    path = cache.link(objects, compiler, link, _NAME)
    return Built(
        path,
        compiler,
        sanitize,
        numbers,
        {name: jobs_of[name].include_dirs for name in numbers},
        failed,
    )


def _kernel_job(op: Operator, compiler: Compiler, flags: tuple[str, ...]) -> CompileJob:
    from ...native.data_sizes import sized_by_kernel
    from ...native.signature import check_compilable

    check_compilable(op)
    kernel = find_kernel(op, ".cuh")
    _expect_portable(kernel)
    return CompileJob(
        name=f"{op.name} (emulated)",
        source=cuda_entries(op, kernel.name, sized_by_kernel(op)),
        compiler=compiler,
        flags=flags,
        include_dirs=(_CPP / "include", INCLUDE, kernel.parent),
    )


def _expect_portable(kernel: Path) -> None:
    """Say what to write where the source has what only nvcc takes."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", kernel.read_text(encoding="utf-8", errors="replace"), flags=re.S)
    for wrong, right in (
        ("<<<", "launch(kernel, grid, block, bytes, stream, …) of deployops/cuda/launch.h"),
        ("extern __shared__", "dynamic_shared<T>() of deployops/cuda/launch.h"),
    ):
        if wrong in code:
            raise UsageError(f"{kernel} has `{wrong}`, which only nvcc understands: use {right}")


def compiled(cache: Cache, job: CompileJob, op: Operator) -> Path | DeployOpsError:
    """The object of an operator's kernel, or why there is none, in the author's terms."""
    try:
        return cache.compile(job)
    except CompileError as e:
        return explained(
            e,
            [job.include_dirs[-1]],
            generated=job.source,
            kernel=op.name,
            signature=cuda_signature(op),
        )


def kernel_flags(
    sanitize: Sanitizer | None = None, limits: tuple[str, ...] = SMALL_LIMITS
) -> tuple[str, ...]:
    """How code is compiled that the emulation runs."""
    flags = (*_runtime_flags(sanitize), *limits)
    if sanitize == "address":
        return (*flags, *_ADDRESS)
    return (*flags, *_UNDEFINED, *(("-fsanitize=thread",) if sanitize == "thread" else ()))


def _runtime_flags(sanitize: Sanitizer | None) -> tuple[str, ...]:
    if sanitize == "address":
        return (*_FLAGS, "-DDEPLOYOPS_EMULATION_ADDRESS", "-DDEPLOYOPS_EMULATION_PLAIN_STATIC")
    return (*_FLAGS, "-DDEPLOYOPS_EMULATION_RACES") if sanitize == "thread" else _FLAGS


def device_jobs(compiler: Compiler, sanitize: Sanitizer | None = None) -> list[CompileJob]:
    """The objects of the emulated device itself: what code that calls CUDA's runtime interface is linked with."""
    return [_cpp_job(name, compiler, sanitize) for name in _DEVICE]


def _cpp_job(name: str, compiler: Compiler, sanitize: Sanitizer | None) -> CompileJob:
    return _job(f"emulation {name}", f'#include "{name}.cpp"\n', compiler, _runtime_flags(sanitize))


def _job(name: str, source: str, compiler: Compiler, flags: tuple[str, ...]) -> CompileJob:
    return CompileJob(name, source, compiler, flags, (_CPP / "include", INCLUDE, _CPP))
