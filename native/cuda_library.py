"""What libraries of CUDA kernels have in common, whoever loads them: the objects of the kernels, and what ptxas says.

::

    build = CudaBuild(CudaTools(cxx, nvcc, archs), cache, units)
    objects = run_all(build.tasks(), jobs, progress)
    cache.link([*objects, …], cxx, (*link_flags(nvcc), …), NAME)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from .compilers import Compiler, find_cxx
from .diagnostics import CompileError, explained, warnings_in
from .kernel_files import INCLUDE
from .nvcc import Nvcc, find_nvcc
from .nvcc_objects import CudaCache, CudaJob, code_flags
from .nvcc_output import KernelResources, kernel_resources

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = [
    "DEFAULT_ARCHS",
    "CudaBuild",
    "CudaTools",
    "CudaUnit",
    "cuda_tools",
    "cuda_unit",
    "link_flags",
    "over_budget_text",
]

DEFAULT_ARCHS = (80, 86, 89, 90, 100, 120)  # compute capabilities 8.0 to 12.0: Ampere to Blackwell

# nvcc's own code for the host has empty declarations and unused functions.
_HOST_FLAGS = ("-fPIC", "-fvisibility=hidden")
# No --use_fast_math: what is written is what is computed.
_DEVICE_FLAGS = ("-std=c++17", "-O3", "-Xptxas=-v", "--compress-mode=size")
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class CudaUnit:
    """An operator's CUDA object: the generated source, the user's file that it includes, the one symbol it shows.

    `signature`: what the kernel's launcher must look like, for messages. `rows`: combinations of dtypes.
    """

    operator: str
    source: str
    file: str
    symbol: str
    signature: str
    rows: int

    @property
    def object_name(self) -> str:
        return f"{self.operator} (CUDA)"


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


def cuda_unit(op: Operator, kernel: Path, source: str, symbol: str) -> CudaUnit:
    """The unit of an operator. `kernel`: its `.cuh`; `source`: generated, showing `symbol`."""
    from .cuda_signature import cuda_signature
    from .signature import kernel_rows

    return CudaUnit(op.name, source, str(kernel), symbol, cuda_signature(op), len(kernel_rows(op)))


def link_flags(nvcc: Nvcc, exports: Path) -> tuple[str, ...]:
    """For the linker: the static CUDA runtime, which loads the driver itself, and nothing shown but `exports`."""
    return (
        str(nvcc.runtime), "-pthread", "-ldl", "-lrt", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL",
        f"-Wl,--version-script={exports}", "-Wl,--strip-all",
    )  # fmt: skip


class CudaBuild:
    """The objects of some operators on their way.

    Args:
        folders: of headers, besides CUDA's, ours for kernels and the kernel's own.
    """

    def __init__(
        self,
        tools: CudaTools,
        cache: CudaCache,
        units: Sequence[CudaUnit],
        folders: Sequence[Path] = (),
        device_flags: Sequence[str] = (),
    ) -> None:
        self._tools, self._cache, self._folders = tools, cache, tuple(folders)
        self._device_flags = (*_DEVICE_FLAGS, *device_flags, *code_flags(tools.archs))
        # The largest first: what begins last is then short, and no processor waits long for the end.
        self.units = sorted(units, key=lambda u: (-u.rows * Path(u.file).stat().st_size, u.operator))

    def tasks(self) -> list[tuple[str, Callable[[], Path]]]:
        """For `run_all`: name and what makes the object. Raises CompileError at the lines of the kernel."""
        return [(unit.operator, functools.partial(self._compile, unit)) for unit in self.units]

    @property
    def compiled(self) -> int:
        """How many objects had to be compiled; the others were in the cache."""
        found = (self._cache.outputs.get(unit.object_name) for unit in self.units)
        return sum(output is not None and output.compiled for output in found)

    def resources(self) -> dict[str, list[KernelResources]]:
        """What each kernel needs on each architecture, by operator; once the objects are there."""
        return {unit.operator: kernel_resources(self._said(unit)) for unit in self.units}

    def warnings(self) -> tuple[str, ...]:
        """What the compiler has to say of the user's kernels, each thing once."""
        said: dict[str, None] = {}
        for unit in self.units:
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
            device_flags=self._device_flags,
        )
        try:
            return self._cache.compile(job)
        except CompileError as e:
            raise explained(
                e, [folder], generated=unit.source, kernel=unit.operator, signature=unit.signature
            ) from None


def over_budget_text(resources: dict[str, list[KernelResources]]) -> str:
    """Which kernels spill registers or use local memory, and what to do; empty where none does."""
    over = [
        f"{operator}: {k.name} on sm_{k.arch}: {k.over_budget}"
        for operator, kernels in sorted(resources.items())
        for k in kernels
        if k.over_budget
    ]
    if not over:
        return ""
    more = [f"… and {len(over) - _SHOWN} more"] if len(over) > _SHOWN else []
    return "\n".join(
        [
            f"{len(over)} kernels spill registers or use local memory, which the budget does not allow:",
            *over[:_SHOWN],
            *more,
            "Hold fewer numbers at once in each thread, or give the kernel more registers (__launch_bounds__)",
        ]
    )
