"""Does a library's kernel compute what the reference does? On every sample, dtype, instruction-set level, 1 and 2 threads.

Judged as bodies are (`symbolic.checking.error_budget`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DeployOpsError, UsageError
from ..native.cpu_library import CpuLibrary
from ..native.kernel_files import find_kernel
from .library_manifest import manifest_path

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
    results: list[CheckResult] = []
    for op in ops:
        kernels.check(op)
        tally = Tally(op.name, "kernel")
        if _changed_since(kernels.path, op):
            tally.fail(
                "the kernel file has changed since the library was built: run `deployops compile` again"
            )
        elif op.stateful:
            tally.unchecked.append("stateful")
        else:
            _check(kernels, op, tally)
        results.append(tally.result())
    return results


def _changed_since(library: Path, op: Operator) -> bool:
    """Whether the kernel file is another one than the library's manifest says; False where that is not known."""
    try:
        entries = json.loads(manifest_path(library).read_text(encoding="utf-8"))["operators"]
        recorded = {entry["name"]: entry["kernel"]["sha256"] for entry in entries}[op.name]
        return bool(recorded != hashlib.sha256(find_kernel(op).read_bytes()).hexdigest())
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return False


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
