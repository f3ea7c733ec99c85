"""The operators' CUDA objects of a plugin library: made by nvcc, the largest of them while the plan is still being made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from ..native.compilers import Compiler
from ..native.diagnostics import CompileError, explained
from ..native.kernel_files import INCLUDE
from ..native.nvcc import Nvcc
from ..native.nvcc_objects import CudaCache, CudaJob, code_flags
from .parts import PartsAhead
from .plan import KernelUnit

__all__ = ["KernelObjects", "largest_first", "object_name"]

_OURS = Path(__file__).resolve().parent / "cpp"
# nvcc's own code for the host has empty declarations and unused functions.
_HOST_FLAGS = ("-fPIC", "-fvisibility=hidden")
# -O1 is for the host's side alone, a few calls around each launch; kernels are compiled with -O3 whatever it says.
# No --use_fast_math: what is written is what is computed.
_DEVICE_FLAGS = ("-std=c++17", "-O1", "-Xptxas=-v", "--compress-mode=size")


class KernelObjects:
    """Compiles kernels for `archs`. `begin` starts the largest; `tasks` gives all of them, for `run_all`."""

    def __init__(
        self, cache: CudaCache, cxx: Compiler, nvcc: Nvcc, archs: tuple[int, ...], ahead: PartsAhead
    ) -> None:
        self._cache, self._cxx, self._nvcc, self._archs, self._ahead = cache, cxx, nvcc, archs, ahead
        self._begun: dict[KernelUnit, Callable[[], Path]] = {}
        cache.get_ready(cxx, _HOST_FLAGS)  # now: after `begin`, those who make the plan keep Python busy

    def begin(self, units: Sequence[KernelUnit]) -> None:
        """Compile the largest of them while what follows is still being found out."""
        largest = largest_first(units)[0]
        self._begun[largest] = self._ahead.begin(functools.partial(self._compile, largest))

    def tasks(self, units: Sequence[KernelUnit]) -> list[tuple[str, Callable[[], Path]]]:
        """The operator and the function that gives its object. The function raises CompileError in the author's terms."""
        return [(u.operator, self._begun.get(u) or functools.partial(self._compile, u)) for u in units]

    def _compile(self, unit: KernelUnit) -> Path:
        folder = Path(unit.file).parent
        job = CudaJob(
            name=object_name(unit),
            source=unit.source,
            compiler=self._cxx,
            flags=_HOST_FLAGS,
            include_dirs=(self._nvcc.include, INCLUDE, _OURS, folder),
            keep_symbol=unit.symbol,
            nvcc=self._nvcc,
            device_flags=(*_DEVICE_FLAGS, *code_flags(self._archs)),
        )
        try:
            return self._cache.compile(job)
        except CompileError as e:
            raise explained(
                e, [folder], generated=unit.source, kernel=unit.operator, signature=unit.signature
            ) from None


def largest_first(units: Sequence[KernelUnit]) -> list[KernelUnit]:
    """What begins last is then short, and no processor waits long for the end."""
    return sorted(units, key=lambda u: (-u.rows * Path(u.file).stat().st_size, u.operator))


def object_name(unit: KernelUnit) -> str:
    """The name under which the cache knows it."""
    return f"{unit.operator} (CUDA)"
