"""Do declared upper bounds, and sizes read off shape inputs, hold for what the reference returns?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import DeployOpsError
from ..bounded_outputs import bounded_outputs
from .sample_runs import runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from ..operator import Operator
    from .sample_runs import SampleRun

__all__ = ["bound_fault", "check_bound"]


def check_bound(op: Operator) -> CheckResult:
    """The sizes that the reference returns against `@op.bound`, for every sample in every dtype."""
    from .sample_runs import sound_runs

    tally = Tally(op.name, "bound")
    for run, real in sound_runs(op, tally):
        fault = _fault(run, real)
        if fault:
            tally.fail(fault, run)
        else:
            tally.passed += 1
    return tally.result("run", "held on the samples only; of other inputs nothing is proved")


def bound_fault(op: Operator) -> str | None:
    """The first sample, of those in the first dtype that the reference takes, whose outputs exceed the bound.

    A library that allocates by a bound that is too small writes beyond its memory: it is not built.
    """
    if op.bound_function is None and not op.shape_inputs:
        return None
    for run in runs(op, op.types.drawn[:1]):
        try:
            real = run.reference()
        except Exception:  # `ops check` says so
            continue
        fault = _fault(run, real)
        if fault:
            return f"{run}: {fault}"
    return None


def _fault(run: SampleRun, real: Sequence[torch.Tensor]) -> str | None:
    try:
        largest = bounded_outputs(run.op, run.op.interface.bind((), run.arguments))
    except DeployOpsError as e:
        return str(e).removeprefix(f"{run.op.name}: ")
    for output, info, tensor in zip(run.op.interface.outputs, largest, real, strict=False):
        for dim, (most, size) in enumerate(zip(info.dims or (), tensor.shape, strict=False)):
            if run.op.shape_inputs and size != most:
                return (
                    f"dim {dim} of `{output.name}` is {size} by the reference, and {most} by the fake kernel, from the values of "
                    f"{', '.join(run.op.shape_inputs)}: correct whichever is wrong"
                )
            if isinstance(most, int) and size > most:
                return (
                    f"dim {dim} of `{output.name}` is {size} by the reference, and at most {most} by @op.bound: correct whichever "
                    "is wrong"
                )
    return None
