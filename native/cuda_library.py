"""What libraries of CUDA kernels have in common, whoever loads them: the objects of the kernels, and what ptxas says.

::

    build = CudaBuild(tools := cuda_tools(cxx, nvcc, archs), cache := CudaCache())
    objects = run_all(build.tasks(units), jobs, progress)
    cache.link(objects, tools.cxx, link_flags(tools.nvcc, exports), NAME)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .compilers import Compiler, find_cxx
from .cuda_plan import CudaUnit
from .diagnostics import CompileError, explained, warnings_in
from .kernel_files import INCLUDE
from .nvcc import Nvcc, find_nvcc
from .nvcc_objects import CudaCache, CudaJob, code_flags
from .nvcc_output import KernelResources, kernel_resources

__all__ = [
    "DEFAULT_ARCHS",
    "CudaBuild",
    "CudaTools",
    "cuda_tools",
    "expect_budget",
    "link_flags",
]

DEFAULT_ARCHS = (80, 86, 89, 90, 100, 120)  # compute capabilities 8.0 to 12.0: Ampere to Blackwell

# nvcc's own code for the host has empty declarations and unused functions.
_HOST_FLAGS = ("-fPIC", "-fvisibility=hidden")
# -O1 is for the host's side alone, a few calls around each launch; kernels are compiled with -O3 whatever it says.
# No --use_fast_math: what is written is what is computed.
# ptxas goes over the kernels of an object on two threads. Not nvcc's own --split-compile: it makes other code, which spills.
_DEVICE_FLAGS = ("-std=c++17", "-O1", "-Xptxas=-v,--split-compile=2", "--compress-mode=size")
_SHOWN = 10

Work = Callable[[], Path]
Ahead = Callable[[Work], Work]


@dataclass(frozen=True, slots=True)
class CudaTools:
    """`archs`: compute capabilities with machine code, 80 for 8.0; the oldest also as PTX."""

    cxx: Compiler
    nvcc: Nvcc
    archs: tuple[int, ...]


def cuda_tools(cxx: str | None, nvcc: str | None, archs: Sequence[int]) -> CudaTools:
    """Compilers for these architectures.

    Raises:
        UsageError: what was asked for is not there, will not do, or is no architecture of this nvcc.
        NotCheckedError: there is no compiler.
    """
    if not archs or not all(isinstance(a, int) and 75 <= a < 1000 for a in archs):
        raise UsageError(f"archs = {list(archs)}: compute capabilities are expected, 80 for 8.0, from 75 on")
    compiler = find_cxx(cxx)
    found = find_nvcc(compiler, nvcc)
    strange = [a for a in archs if a not in found.archs]
    if strange:
        raise UsageError(
            f"nvcc {found.version} compiles for {', '.join(map(str, found.archs))}, not for {', '.join(map(str, strange))}"
        )
    return CudaTools(compiler, found, tuple(sorted(set(archs))))


def link_flags(nvcc: Nvcc, exports: Path) -> tuple[str, ...]:
    """For the linker: the static CUDA runtime, which loads the driver itself, and nothing shown but `exports`."""
    return (
        str(nvcc.runtime), "-pthread", "-ldl", "-lrt", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL",
        f"-Wl,--version-script={exports}", "-Wl,--strip-all",
    )  # fmt: skip


class CudaBuild:
    """The objects of operators' kernels, on their way.

    Args:
        folders: of headers, besides CUDA's, ours for kernels and the kernel's own.
        ahead: starts some work and returns the function that waits for it; see `begin`.
    """

    def __init__(
        self, tools: CudaTools, cache: CudaCache, folders: Sequence[Path] = (), ahead: Ahead | None = None
    ) -> None:
        self._tools, self._cache, self._folders, self._ahead = tools, cache, tuple(folders), ahead
        self._begun: dict[CudaUnit, Work] = {}
        if ahead is not None:  # now: after `begin`, those who make the plan keep Python busy
            cache.get_ready(tools.cxx, _HOST_FLAGS)

    def begin(self, units: Sequence[CudaUnit]) -> None:
        """Compile the largest of them while what follows is still being found out. Needs `ahead`."""
        assert self._ahead is not None
        largest = _largest_first(units)[0]
        self._begun[largest] = self._ahead(functools.partial(self._compile, largest))

    def tasks(self, units: Sequence[CudaUnit]) -> list[tuple[str, Work]]:
        """For `run_all`: name and what gives the object. Raises CompileError at the lines of the kernel."""
        return [
            (u.operator, self._begun.get(u) or functools.partial(self._compile, u))
            for u in _largest_first(units)
        ]

    def compiled(self, units: Sequence[CudaUnit]) -> int:
        """How many objects had to be compiled; the others were in the cache."""
        found = (self._cache.outputs.get(unit.object_name) for unit in units)
        return sum(output is not None and output.compiled for output in found)

    def resources(self, units: Sequence[CudaUnit]) -> dict[str, list[KernelResources]]:
        """What each kernel needs on each architecture, by operator; once the objects are there."""
        return {unit.operator: kernel_resources(self._said(unit)) for unit in units}

    def warnings(self, units: Sequence[CudaUnit]) -> tuple[str, ...]:
        """What the compiler has to say of the user's kernels, each thing once."""
        said: dict[str, None] = {}
        for unit in _largest_first(units):
            folder = Path(unit.file).parent
            found = warnings_in(self._said(unit), [folder], generated=unit.source, kernel=unit.operator)
            said |= dict.fromkeys(found)
        return tuple(said)

    def _said(self, unit: CudaUnit) -> str:
        return self._cache.outputs[unit.object_name].text

    def _compile(self, unit: CudaUnit) -> Path:
        tools, folder = self._tools, Path(unit.file).parent
        job = CudaJob(
            name=unit.object_name,
            source=unit.source,
            compiler=tools.cxx,
            flags=_HOST_FLAGS,
            include_dirs=(tools.nvcc.include, INCLUDE, *self._folders, folder),
            keep_symbol=unit.symbol,
            nvcc=tools.nvcc,
            device_flags=(*_DEVICE_FLAGS, *code_flags(tools.archs)),
        )
        try:
            return self._cache.compile(job)
        except CompileError as e:
            raise explained(
                e, [folder], generated=unit.source, kernel=unit.operator, signature=unit.signature
            ) from None


def _largest_first(units: Sequence[CudaUnit]) -> list[CudaUnit]:
    """What begins last is then short, and no processor waits long for the end."""
    return sorted(units, key=lambda u: (-u.rows * Path(u.file).stat().st_size, u.operator))


def expect_budget(resources: Mapping[str, Sequence[KernelResources]]) -> None:
    """Raises CompileError where a kernel spills registers or uses local memory; `resources` by operator."""
    over = [
        f"{operator}: {k.name} on sm_{k.arch}: {k.over_budget}"
        for operator, kernels in sorted(resources.items())
        for k in kernels
        if k.over_budget
    ]
    if over:
        more = [f"… and {len(over) - _SHOWN} more"] if len(over) > _SHOWN else []
        lines = [
            f"{len(over)} kernels spill registers or use local memory, which the budget does not allow:",
            *over[:_SHOWN],
            *more,
            "Hold fewer numbers at once in each thread, or give the kernel more registers (__launch_bounds__)",
        ]
        raise CompileError("\n".join(lines))
