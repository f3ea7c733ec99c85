"""Whether the kernels are right: every sample, and the outputs at full size, against the reference in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from ort_cases import Case

from deployops.errors import DeployOpsError
from deployops.symbolic import dtypes
from deployops.symbolic.checking.error_budget import faults
from deployops.symbolic.checking.sample_runs import SampleRun, map_tensors, sound_runs
from deployops.symbolic.checking.tally import Tally

from .bench import Bench

# ‖out − exact‖ / ‖exact‖ at full size: a few roundings of the dtype
_LARGE_ERROR = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def parity(bench: Bench) -> None:
    """Every operator, dtype, sample and tactic against the reference in float64, within the budget of all checks here."""
    bench.say("", "### Parity with float64", "", "| operator | runs | tactics | |", "|---|---:|---:|---|")
    for name, op in bench.ops.items():
        tally = Tally(op.name, "CUDA")
        tactics = bench.launcher.tactics(op)
        found: list[str] = []
        count = 0
        seen: dict[str, int] = {}
        for run, by_torch in sound_runs(op, tally):
            seen[run.dtype] = seen.get(run.dtype, 0) + 1
            if bench.tiny and seen[run.dtype] > 2:
                continue
            exact = run.exact()
            for tactic in range(tactics):
                fault = _launched_fault(bench, run, by_torch, exact, tactic)
                found += [fault] if fault else []
                count += 1
            if len(found) > 5:
                break
        bench.failures += found
        told = f"**failed**: {found[0]}" if found else "passed"
        bench.say(f"| {name} | {count} | {tactics} | {told} |")


def _launched_fault(
    bench: Bench, run: SampleRun, by_torch: Sequence[Any], exact: Sequence[Any], tactic: int
) -> str:
    args, kwargs = run.copies(lambda t: t.to(bench.device))
    try:
        launch = bench.launcher.prepared(run.op, args, kwargs, tactic)
        got = [t.cpu() for t in launch()]
    except (DeployOpsError, RuntimeError) as error:
        return f"{run.op.name}, {run}, tactic {tactic}: {error}"
    for k, fault in enumerate(faults(run, got, by_torch, exact)):
        if fault:
            return f"{run.op.name}, {run}, tactic {tactic}, output {k}: {fault}"
    return ""


def large_fault(bench: Bench, case: Case, args: list[Any], kwargs: dict[str, Any], tactic: int) -> str:
    """The outputs at full size against the reference in float64 on the same device, poisoned before."""
    dtype = args[0].dtype
    launch = bench.launcher.prepared(case.op, args, kwargs, tactic)
    for t in launch() if bench.launcher.asynchronous else ():
        t.fill_(float("nan"))
    got = launch()
    wide = [map_tensors(a, lambda t: t.double() if t.is_floating_point() else t) for a in args]
    want = case.op.reference(*wide, **kwargs)
    for k, (a, b) in enumerate(zip(got, want if isinstance(want, tuple) else (want,), strict=True)):
        error = float((a.double() - b).norm() / b.norm())
        if not error <= _LARGE_ERROR[dtype]:
            return f"{case.name} in {dtypes.name_of(dtype)}, tactic {tactic}, output {k}: ‖error‖ / ‖exact‖ = {error:.1e}"
    return ""
