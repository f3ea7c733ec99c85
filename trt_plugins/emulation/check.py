"""Does a CUDA kernel compute what the reference does, and touch nothing else? On every sample, dtype, tactic, and under
several schedules, on a machine without a GPU.

Judged as bodies and CPU kernels are, halves more strictly (`symbolic.checking.error_budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import DeclarationError, DeployOpsError, NotCheckedError, UsageError
from .build import Sanitizer
from .calls import LARGE, LOW, NAN, ZERO, Layout
from .faults import EmulationError
from .library import EmulatedLibrary, emulated_library

if TYPE_CHECKING:
    import torch

    from ...symbolic.checking.sample_runs import SampleRun
    from ...symbolic.checking.tally import CheckResult, Tally
    from ...symbolic.operator import Operator

__all__ = ["Judge", "emulate"]

_NAMES: dict[Sanitizer | None, str] = {
    None: "emulated",
    "address": "emulated, address sanitizer",
    "thread": "emulated, races",
}
_MOST_FAULTS = 6  # after so many of one operator, the rest of its runs tell no more


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one run is made: the order of threads, where tensors lie, and what is in memory that nobody has written."""

    seed: int
    layout: Layout
    fill: int

    def __str__(self) -> str:
        order = "threads in their order" if self.seed == 0 else f"schedule {self.seed}"
        return f"{order}, {LAYOUTS[self.layout]}, {FILLS[self.fill]}"


# For messages.
LAYOUTS = {
    Layout(16): "aligned tensors",
    Layout(1): "unaligned tensors",
    Layout(0): "tensors behind a guard",
    Layout(16, inputs=1): "unaligned inputs",
    Layout(16, inputs=0, outputs=1): "unaligned outputs",
}
FILLS = {
    NAN: "unwritten memory NaN",
    LARGE: "unwritten memory large",
    LOW: "unwritten memory large and negative",
    ZERO: "unwritten memory 0",
}
_ALIKE = tuple(
    _Plan(seed, layout, fill)
    for seed, (layout, fill) in enumerate(zip(list(LAYOUTS)[:3], (NAN, LARGE, LOW), strict=True))
)
# Inputs that begin elsewhere than outputs.
_MIXED = tuple(
    _Plan(seed, layout, fill)
    for seed, (layout, fill) in enumerate(zip(list(LAYOUTS)[3:], (ZERO, NAN), strict=True), len(_ALIKE))
)


def emulate(
    operators: Sequence[Operator],
    *,
    sanitize: Sanitizer | None = None,
    cxx: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[CheckResult]:
    """Run the CUDA kernels (`NAME.cuh`) of operators on their samples; a result for each operator.

    Every run finds writes beside a tensor, accesses beyond dynamic shared memory, writes into inputs, misaligned
    accesses, threads that miss a barrier, lanes that miss a shuffle, deadlocks, launches that no device takes, and those
    on another stream than the one given. Memory that is used unwritten shows in the results: it begins as NaN, as large
    numbers of either sign, or as 0, by turns; and tensors lie elsewhere in memory, inputs and outputs alike or not.

    Args:
        sanitize: "address": besides, AddressSanitizer (static shared memory, local arrays) and
            UndefinedBehaviorSanitizer. "thread": besides, races between threads, of a block or of two blocks.
        cxx, jobs: the C++ compiler; how many at once.
        progress: called as objects are compiled, and then as operators are checked: how many, of how many, which.

    An operator without a kernel for CUDA is "not checked"; one whose kernel does not compile has "failed".

    Raises UsageError for an unknown sanitizer, NotCheckedError where there is no compiler.
    """
    from ...symbolic.checking.tally import Tally

    library = emulated_library(operators, sanitize=sanitize, cxx=cxx, jobs=jobs, progress=progress)
    results: list[CheckResult] = []
    with library:
        for done, op in enumerate(operators):
            tally = Tally(op.name, _NAMES[sanitize])
            error = library.built.failed.get(op.name)
            if isinstance(error, (UsageError, DeclarationError)):
                tally.unchecked.append(str(error))
            elif error is not None:
                tally.fail(str(error))
            elif op.stateful:
                tally.unchecked.append("stateful")
            else:
                _check(library, op, tally, sanitize)
            results.append(tally.result())
            if progress is not None:
                progress(done + 1, len(operators), op.name)
    return results


def _check(library: EmulatedLibrary, op: Operator, tally: Tally, sanitize: Sanitizer | None) -> None:
    from ...symbolic.checking.sample_runs import sound_runs

    try:
        tactics = library.tactics(op)
    except NotCheckedError as e:
        tally.unchecked.append(str(e))
        return
    for number, (run, by_torch) in enumerate(sound_runs(op, tally)):
        try:
            exact = run.exact()
        except Exception as e:  # whatever the user's reference raises
            tally.unchecked.append(f"the reference fails in float64 ({type(e).__name__})")
            continue
        judge = Judge(run, by_torch, exact)
        for tactic, plan in _plans(tactics, number, sanitize):
            _check_one(library, judge, tactic, tactics, plan, tally)
            if sum(map(len, tally.faults.values())) >= _MOST_FAULTS:
                return


def _plans(tactics: int, number: int, sanitize: Sanitizer | None) -> Iterator[tuple[int, _Plan]]:
    for tactic in range(tactics):
        if sanitize is not None:  # they see the same whatever the schedule
            plans = (*_ALIKE, *_MIXED)
            yield tactic, plans[(number + tactic) % len(plans)]
            continue
        # Both of the mixed ones for each sample, and in turn for its tactics.
        mixed = _MIXED if tactics == 1 else (_MIXED[(number + tactic) % len(_MIXED)],)
        for plan in (*_ALIKE, *mixed):
            yield tactic, plan


class Judge:
    """Compares outputs with the reference; the same outputs once."""

    def __init__(
        self, run: SampleRun, by_torch: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
    ) -> None:
        self.run, self.by_torch, self._exact = run, by_torch, exact
        self._seen: list[tuple[Sequence[torch.Tensor], str | None]] = []

    def fault(self, got: Sequence[torch.Tensor]) -> str | None:
        from ...symbolic.checking.error_budget import faults

        for seen, verdict in self._seen:
            if all(_same_bits(a, b) for a, b in zip(got, seen, strict=True)):
                return verdict
        found = None
        for k, fault in enumerate(faults(self.run, got, self.by_torch, self._exact, wide=True)):
            if fault and found is None:
                found = f"output {k}: {fault}"
        self._seen.append((got, found))
        return found


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return (
        torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)) if a.numel() else True
    )


def _check_one(
    library: EmulatedLibrary, judge: Judge, tactic: int, tactics: int, plan: _Plan, tally: Tally
) -> None:
    run = judge.run
    where = f"tactic {tactic}, {plan}" if tactics > 1 else str(plan)
    try:
        args, kwargs = run.copies()
        got = library.run(
            run.op,
            args,
            kwargs,
            tactic=tactic,
            seed=plan.seed,
            layout=plan.layout,
            fill=plan.fill,
            like=judge.by_torch,
        )
    except EmulationError as e:
        tally.fail(str(e).removeprefix(f"{run.op.name}: "), f"{run}, {where}")
        return
    except DeployOpsError as e:
        tally.fail(str(e), f"{run}, {where}")
        return
    fault = judge.fault(got)
    if fault:
        tally.fail(fault, f"{run}, {where}")
        return
    tally.passed += 1
