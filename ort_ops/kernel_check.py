"""Does a library's kernel compute what the reference does? On every sample, dtype, instruction-set level, 1 and 2 threads.

Judged as bodies are (`symbolic.checking.error_budget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DeployOpsError
from ..native.cpu_library import CpuLibrary
from ..native.file_contents import FILES
from ..native.kernel_files import find_kernel
from .library_manifest import manifest_path, read_manifest

if TYPE_CHECKING:
    import torch

    from ..symbolic.checking.sample_runs import SampleRun
    from ..symbolic.checking.tally import CheckResult, Tally
    from ..symbolic.operator import Operator

__all__ = ["check_kernels"]


def check_kernels(library: str | Path, ops: Sequence[Operator]) -> list[CheckResult]:
    """Compare each operator's kernel in `library` with its reference; a result for each operator.

    Raises UsageError where the library has no kernel for one of them, or was built from another declaration.
    """
    from ..symbolic.checking.tally import Tally

    kernels = CpuLibrary(library)
    built_from = _kernel_digests(kernels.path)
    results: list[CheckResult] = []
    for op in ops:
        kernels.check(op)
        tally = Tally(op.name, "kernel")
        recorded = built_from.get(op.name)
        if not recorded:
            tally.unchecked.append(
                "whether the library has the kernel file's newest state: no manifest says so"
            )
        if recorded and recorded != FILES.digest(str(find_kernel(op))):
            tally.fail(
                "the kernel file has changed since the library was built: run `deployops compile` again"
            )
        elif op.stateful:
            tally.unchecked.append("stateful")
        else:
            _check(kernels, op, tally)
        results.append(tally.result())
    return results


def _kernel_digests(library: Path) -> dict[str, str]:
    """Torch names of the operators in a library -> sha256 of the kernel file that each was built from."""
    if not manifest_path(library).is_file():
        return {}
    return {operator.name: operator.kernel for operator in read_manifest(library).operators}


def _check(kernels: CpuLibrary, op: Operator, tally: Tally) -> None:
    from ..symbolic.checking.sample_runs import sound_runs

    for run, by_torch in sound_runs(op, tally):
        try:
            exact = run.exact()
        except Exception as e:  # whatever the user's reference raises
            tally.unchecked.append(f"the reference fails in float64 ({type(e).__name__})")
            continue
        for level in kernels.levels:
            for threads in (1, 2):
                _check_one(kernels, run, by_torch, exact, level, threads, tally)


def _check_one(
    kernels: CpuLibrary,
    run: SampleRun,
    by_torch: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    level: str,
    threads: int,
    tally: Tally,
) -> None:
    from ..symbolic.checking.error_budget import faults

    where = f"level {level}" + (f", {threads} threads" if threads > 1 else "")
    try:
        args, kwargs = run.copies()
        got = kernels.run(run.op, args, kwargs, threads=threads, level=level)
    except DeployOpsError as e:
        tally.fail(f"{where}: {e}", run)
        return
    for k, fault in enumerate(faults(run, got, by_torch, exact)):
        if fault:
            tally.fail(f"{where}: output {k}: {fault}", run)
            return
    tally.passed += 1
