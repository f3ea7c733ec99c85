"""Does a CUDA kernel index tensors of more than 2^31 elements rightly? They are mapped sparsely, and of the grid only the first
blocks and the last are run.

A sample is put behind rows of zeros along its first dim, as many as are needed. That is done with operators whose reference says
that rows of the result do not depend on each other: what comes out at the end is then what the sample alone gives. The same is
run with 2^29 elements first. Only where that is right, so that the last blocks compute the tensors' end, is it a fault of the
indices when it is wrong beyond 2^31.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import DeclarationError, DeployOpsError, NotCheckedError, UsageError
from ...symbolic.dtypes import torch_dtype
from .build import build
from .calls import LARGE, Call, Manner, Memory
from .check import Judge
from .faults import KernelFault, KernelRefusal
from .library import EmulatedLibrary
from .packing import Expected, packed, unpacked

if TYPE_CHECKING:
    import torch

    from ...symbolic.checking.sample_runs import SampleRun
    from ...symbolic.checking.tally import CheckResult, Tally
    from ...symbolic.operator import Operator

__all__ = ["Rows", "emulate_large", "enlarged"]

_CONTROL = 1 << 29
_SIZES = {"2^31": 1 << 31, "2^32": 1 << 32}  # where int overflows, and unsigned int
_TIME_LIMIT = 60.0  # seconds for one call
_MOST_FAULTS = 4
_ROWS = 3  # of zeros before a sample, where the reference is asked whether they matter


def emulate_large(
    operators: Sequence[Operator],
    *,
    cxx: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[CheckResult]:
    """Run the CUDA kernels of operators on tensors of a little over 2^31 and 2^32 elements, in their narrowest dtype; a result for
    each operator.

    An operator is "not checked" where no sample can be enlarged so, or where its blocks go round the tensors.

    Args and errors as for `emulate`.
    """
    from ...symbolic.checking.tally import Tally

    built = build(operators, large=True, cxx=cxx, jobs=jobs, progress=progress)
    results: list[CheckResult] = []
    with EmulatedLibrary(built, operators, time_limit=_TIME_LIMIT) as library:
        for done, op in enumerate(operators):
            tally = Tally(op.name, "emulated, 2^31 elements")
            error = built.failed.get(op.name)
            if isinstance(error, (UsageError, DeclarationError)):
                tally.unchecked.append(str(error))
            elif error is not None:
                tally.fail(str(error))
            elif op.stateful:
                tally.unchecked.append("stateful")
            else:
                _check(library, op, tally)
            results.append(tally.result())
            if progress is not None:
                progress(done + 1, len(operators), op.name)
    return results


@dataclass(frozen=True, slots=True)
class Rows:
    """Which tensors of a sample have the rows: those with so many, and at least so many dims."""

    count: int
    least_dims: int

    def __contains__(self, sizes: Sequence[int]) -> bool:
        return len(sizes) >= self.least_dims and sizes[0] == self.count and math.prod(sizes) > 0


def _check(library: EmulatedLibrary, op: Operator, tally: Tally) -> None:
    from ...symbolic.checking.sample_runs import accepted_dtypes, sound_runs

    try:
        tactics = library.tactics(op)
    except NotCheckedError as e:
        tally.unchecked.append(str(e))
        return
    narrowest = min(accepted_dtypes(op), key=lambda name: torch_dtype(name).itemsize)
    for run, by_torch in sound_runs(op, tally, (narrowest,)):
        try:
            exact = run.exact()
        except Exception as e:  # whatever the user's reference raises
            tally.unchecked.append(f"the reference fails in float64 ({type(e).__name__})")
            continue
        rows = _independent_rows(run, exact)
        if rows is None:
            tally.unchecked.append("no rows that do not depend on each other")
            continue
        judge = Judge(run, by_torch, exact)
        for tactic in range(tactics):
            _check_one(library, judge, rows, tactic, f"tactic {tactic}, " if tactics > 1 else "", tally)
            if sum(map(len, tally.faults.values())) >= _MOST_FAULTS:
                return


def _independent_rows(run: SampleRun, exact: Sequence[torch.Tensor]) -> Rows | None:
    """Along the first dim; None where zeros before a sample change more than that they are there."""
    import torch

    if not exact or any(o.dim() == 0 or not o.numel() for o in exact):
        return None
    for least_dims in dict.fromkeys((1, exact[0].dim())):
        rows = Rows(exact[0].shape[0], least_dims)

        def behind_zeros(t: torch.Tensor, rows: Rows = rows) -> torch.Tensor:
            return torch.cat([t.new_zeros((_ROWS, *t.shape[1:])), t]) if t.shape in rows else t

        try:
            longer = run.changed(behind_zeros).exact()
        except Exception:  # the reference does not take it
            continue
        if all(
            a.shape == (_ROWS + b.shape[0], *b.shape[1:])
            and b.shape in rows
            and torch.allclose(a[_ROWS:].double(), b.double(), rtol=1e-9, atol=1e-12, equal_nan=True)
            for a, b in zip(longer, exact, strict=True)
        ):
            return rows
    return None


def _check_one(
    library: EmulatedLibrary, judge: Judge, rows: Rows, tactic: int, way: str, tally: Tally
) -> None:
    run = judge.run
    args, kwargs = run.copies()
    manner = Manner(tactic, fill=LARGE)
    try:
        call, expected = packed(run.op, library.number(run.op), args, kwargs, manner, judge.by_torch)
    except DeployOpsError as e:
        tally.unchecked.append(str(e))
        return
    if expected.size_names:
        tally.unchecked.append("the data decides a size")
        return
    control, fault = _outcome(library, judge, enlarged(call, rows, _CONTROL), expected)
    if fault:
        tally.unchecked.append(f"with 2^29 elements, {fault}")
        return
    for name, elements in _SIZES.items():
        bigger = enlarged(call, rows, elements)
        blocks, fault = _outcome(library, judge, bigger, expected)
        if not fault:
            tally.passed += 1
        elif isinstance(fault, KernelRefusal):
            tally.unchecked.append(str(fault))
        elif isinstance(fault, KernelFault) or _alike(blocks / elements, control / _CONTROL):
            tally.fail(
                f"{fault}: an index that overflows?", f"{run}, {way}behind zeros up to {name} elements"
            )
        else:
            # another way for huge tensors, in which the last blocks need not compute the end
            tally.unchecked.append("it launches another number of blocks for each element than with 2^29")


def _alike(a: float, b: float) -> bool:
    """Blocks for each element."""
    return abs(a - b) <= 0.01 * b


def _outcome(
    library: EmulatedLibrary, judge: Judge, call: Call, expected: Expected
) -> tuple[int, DeployOpsError | str | None]:
    """How many blocks were launched, and what is wrong."""
    op = judge.run.op
    try:
        reply = library.answer(op, call)
        return reply.blocks, judge.fault(unpacked(op, reply.outputs, expected))
    except DeployOpsError as e:
        return 0, type(e)(str(e).removeprefix(f"{op.name}: "))


def enlarged(call: Call, rows: Rows, elements: int) -> Call:
    """A call whose tensors have zeros before their rows, so many that the largest has `elements` of them."""
    tensors = [m for m in (*call.inputs, *call.outputs) if isinstance(m, Memory) and m.sizes in rows]
    of_row = max(math.prod(m.sizes[1:]) for m in tensors)
    more = -(-elements // of_row)

    def longer(memory: Memory) -> Memory:
        zeros = more * (memory.size // rows.count)
        sizes = (memory.sizes[0] + more, *memory.sizes[1:])
        return replace(memory, sizes=sizes, size=memory.size + zeros, zeros=zeros)

    def all_of(memories: Sequence[Memory | int | None]) -> Iterator[Memory | int | None]:
        for m in memories:
            yield longer(m) if isinstance(m, Memory) and m.sizes in rows else m

    return replace(
        call,
        inputs=tuple(all_of(call.inputs)),  # type: ignore[arg-type]
        outputs=tuple(all_of(call.outputs)),  # type: ignore[arg-type]
        large=((more + rows.count) * of_row, rows.count * of_row),
    )
