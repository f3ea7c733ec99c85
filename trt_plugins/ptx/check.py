"""Does what nvcc made of a kernel compute what the reference does? Its PTX, interpreted, on samples, dtypes and tactics.

Judged as emulated kernels are: against the reference in float64. Beside it, how the results agree with those of the
emulation, which compiles the same source with another compiler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...errors import DeclarationError, DeployOpsError, NotCheckedError, UsageError
from ...native.nvcc_output import readable_names
from ...symbolic.checking.tally import CheckResult, Tally
from ..emulation.calls import LARGE, LOW, NAN, ZERO, Layout, Manner
from ..emulation.fault_text import with_kernel_names
from ..emulation.faults import KernelFault
from ..emulation.library import EmulatedLibrary, emulated_library
from .build import Interpretable, build
from .exchange import Answer
from .library import Interpreters

if TYPE_CHECKING:
    import torch

    from ...symbolic.checking.sample_runs import SampleRun
    from ...symbolic.operator import Operator
    from ..emulation.packing import Expected

__all__ = ["PtxResult", "as_check_results", "interpret", "render_ptx"]

_MOST_FAULTS = 6  # after so many of one operator, the rest of its runs tell no more
_EMULATE = "`deployops emulate` says why"
# Where tensors lie, and what is in memory that nobody has written. One with each run, another one with the next; aligned
# tensors with every other, for kernels that only few samples launch.
_MANNERS = (
    (Layout(16), NAN),
    (Layout(1), LARGE),
    (Layout(16), LOW),
    (Layout(16, inputs=1), ZERO),
    (Layout(16), LARGE),
    (Layout(16, inputs=0, outputs=1), NAN),
)


@dataclass(frozen=True, slots=True)
class PtxResult:
    """What was found of an operator in a dtype.

    Attributes:
        runs: samples and tactics that were interpreted and passed.
        same: of those that the emulation computed too, how many had the same bits; `compared`: how many those are.
        largest: the largest difference between the two, in ULP of the output's dtype; 0 where all bits agree.
        detail: what is wrong, or was not checked and why.
    """

    operator: str
    dtype: str
    status: Literal["passed", "failed", "not checked"]
    runs: int
    compared: int
    same: int
    largest: float
    detail: str


@dataclass(slots=True)
class _Dtype:
    tally: Tally
    compared: int = 0
    same: int = 0
    largest: float = 0.0


@dataclass(slots=True)
class _Pending:
    """A call that is on its way, and what it is to be held against."""

    run: SampleRun
    where: str
    call: Future[Answer]
    expected: Expected
    judge: Callable[[Sequence[torch.Tensor]], str | None]
    emulated: Sequence[torch.Tensor] | None


@dataclass(slots=True)
class _State:
    """An operator while it is checked."""

    op: Operator
    dtypes: dict[str, _Dtype] = field(default_factory=dict)
    launched: set[str] = field(default_factory=set)  # kernels, by their names in the PTX
    stopped: bool = False

    def of(self, dtype: str) -> _Dtype:
        return self.dtypes.setdefault(dtype, _Dtype(Tally(self.op.name, dtype)))


def interpret(
    operators: Sequence[Operator],
    *,
    nvcc: str | None = None,
    cxx: str | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[PtxResult]:
    """Interpret the PTX for compute_80 of operators' CUDA kernels; a result for each operator and dtype.

    The launchers run as nvcc compiled them. Each launch is interpreted with its own grid, block, shared memory and
    arguments. Found on the way: accesses beyond a tensor or shared memory, misaligned ones, shared memory that is
    read before it is written, accesses to it by two warps without a barrier between, deadlocks, lanes that a mask
    leaves out, launches larger than a kernel promises.

    Args:
        nvcc, cxx: the compilers, see `find_nvcc` and `find_cxx`.
        jobs: compilers, and then interpreters, at once; None: one for each processor.
        progress: called as objects are compiled, and then as operators are checked: how many, of how many, which.

    An operator without a kernel for CUDA is "not checked", and so is a kernel with an instruction that is not interpreted.

    Raises NotCheckedError where there is no nvcc or no C++ compiler, UsageError where the one asked for will not do.
    """
    built = build(operators, nvcc=nvcc, cxx=cxx, jobs=jobs, progress=progress)
    results: list[PtxResult] = []
    emulated = emulated_library(operators, cxx=cxx, jobs=jobs)
    with Interpreters(jobs) as interpreters, emulated:
        for done, op in enumerate(operators):
            state = _State(op)
            error = built.failed.get(op.name)
            if error is not None:
                unchecked = isinstance(error, (UsageError, DeclarationError, NotCheckedError))
                status: Literal["failed", "not checked"] = "not checked" if unchecked else "failed"
                results.append(PtxResult(op.name, "", status, 0, 0, 0, 0.0, str(error)))
            elif op.stateful:
                results.append(PtxResult(op.name, "", "not checked", 0, 0, 0, 0.0, "stateful"))
            else:
                _check(state, built.libraries[op.name], interpreters, emulated)
                results += [_result(state, dtype) for dtype in state.dtypes]
                results += _never_launched(state, interpreters.kernels(built.libraries[op.name]))
            if progress is not None:
                progress(done + 1, len(operators), op.name)
    return results


def _result(state: _State, dtype: str) -> PtxResult:
    found = state.dtypes[dtype]
    made = found.tally.result()
    return PtxResult(
        state.op.name,
        dtype,
        made.status,
        found.tally.passed,
        found.compared,
        found.same,
        found.largest,
        made.detail,
    )


def _never_launched(state: _State, every: Sequence[str]) -> list[PtxResult]:
    """A row for kernels that no sample led to; none where there are none."""
    left = [name for name in every if name not in state.launched]
    if not left or state.stopped:
        return []
    names = readable_names(tuple(left))
    shown = "; ".join(names[name] for name in left[:3]) + ("; …" if len(left) > 3 else "")
    detail = f"{len(left)} of {len(every)} kernels, which no sample launches: {shown}"
    return [PtxResult(state.op.name, "", "not checked", 0, 0, 0, 0.0, detail)]


def _check(
    state: _State, library: Interpretable, interpreters: Interpreters, emulated: EmulatedLibrary
) -> None:
    try:
        tactics = interpreters.tactics(library)
    except NotCheckedError as e:
        state.of("").tally.unchecked.append(str(e))
        return
    waiting: deque[_Pending] = deque()
    for pending in _calls(state, library, interpreters, emulated, tactics):
        waiting.append(pending)
        # as many on their way as keep the interpreters busy
        while len(waiting) > 2 * interpreters.count:
            _judge(state, waiting.popleft())
    while waiting:
        _judge(state, waiting.popleft())


def _calls(
    state: _State, library: Interpretable, interpreters: Interpreters, emulated: EmulatedLibrary, tactics: int
) -> Iterator[_Pending]:
    """Every sample in every dtype, with one tactic after another and every manner in turn."""
    from ...symbolic.checking.sample_runs import accepted_dtypes, sound_runs
    from ..emulation.check import FILLS, LAYOUTS, Judge
    from ..emulation.packing import packed

    op = state.op
    number = 0
    for dtype in accepted_dtypes(op):
        for run, by_torch in sound_runs(op, state.of(dtype).tally, (dtype,)):
            try:
                exact = run.exact()
            except Exception as e:  # whatever the user's reference raises
                state.of(dtype).tally.unchecked.append(f"the reference fails in float64 ({type(e).__name__})")
                continue
            judge = Judge(run, by_torch, exact)
            number += 1
            for tactic in range(tactics):
                if state.stopped:
                    return
                # another one for the same tactic with the next sample
                layout, fill = _MANNERS[(number + tactic) % len(_MANNERS)]
                where = f"{run}, tactic {tactic}, {LAYOUTS[layout]}, {FILLS[fill]}"
                manner = Manner(tactic, layout=layout, fill=fill)
                args, kwargs = run.copies()
                try:
                    call, expected = packed(op, 0, args, kwargs, manner, by_torch)
                except UsageError as e:
                    state.of(dtype).tally.unchecked.append(str(e))
                    continue
                except DeployOpsError as e:
                    state.of(dtype).tally.fail(str(e), where)
                    continue
                future = interpreters.submit(library, call)
                yield _Pending(
                    run,
                    where,
                    future,
                    expected,
                    judge.fault,
                    _emulated(emulated, run, manner, by_torch),
                )


def _emulated(
    library: EmulatedLibrary, run: SampleRun, manner: Manner, like: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor] | None:
    """What the emulation computes; None where it does not: `deployops emulate` says why."""
    if run.op.name in library.built.failed:
        return None
    args, kwargs = run.copies()
    try:
        return library.run(
            run.op, args, kwargs, tactic=manner.tactic, layout=manner.layout, fill=manner.fill, like=like
        )
    except DeployOpsError:
        return None


def _judge(state: _State, pending: _Pending) -> None:
    from ..emulation.packing import unpacked

    found = state.of(pending.run.dtype)
    try:
        answer = pending.call.result()
        state.launched.update(answer.kernels)
        if answer.outcome == "not interpreted":
            found.tally.unchecked.append(f"`{answer.text}` is not interpreted")
            return
        if answer.outcome != "done":
            found.tally.fail(with_kernel_names(answer.text), pending.where)
        else:
            outputs = unpacked(state.op, answer.outputs, pending.expected)
            fault = pending.judge(outputs)
            if fault:
                found.tally.fail(fault, pending.where)
            else:
                found.tally.passed += 1
            if pending.emulated is not None:
                found.compared += 1
                difference = max(
                    (_difference(a, b) for a, b in zip(outputs, pending.emulated, strict=True)), default=0.0
                )
                found.same += difference == 0
                found.largest = max(found.largest, difference)
                if not fault and difference == float("inf"):
                    found.tally.unchecked.append(f"the emulation computes something else ({_EMULATE})")
            elif not fault:
                found.tally.unchecked.append(f"the emulation gives no result ({_EMULATE})")
    except KernelFault as e:
        found.tally.fail(str(e), pending.where)
    if sum(map(len, found.tally.faults.values())) >= _MOST_FAULTS:
        state.stopped = True


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference in ULP of the dtype, at the size of the largest number; 0 where all bits are the same.

    NaN beside NaN is no difference, and what is infinite in one only is an infinite one.
    """
    import torch

    if a.numel() == 0 or torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)):
        return 0.0
    if not a.is_floating_point():
        return float((a.double() - b.double()).abs().max())
    x, y = a.double(), b.double()
    apart = (x - y).abs()
    apart = torch.where((x == y) | (x.isnan() & y.isnan()), torch.zeros_like(apart), apart)
    if not bool(apart.isfinite().all()):
        return float("inf")
    info = torch.finfo(a.dtype)
    scale = torch.maximum(x.abs(), y.abs()).nan_to_num(0, 0, 0).clamp(min=info.tiny)
    ulp = torch.exp2(scale.log2().floor()) * info.eps
    return float((apart / ulp).max())


def as_check_results(results: Sequence[PtxResult]) -> list[CheckResult]:
    """For the exit code, and for readers of the other checks."""
    return [
        CheckResult(
            r.operator, f"interpreted PTX, {r.dtype}" if r.dtype else "interpreted PTX", r.status, r.detail
        )
        for r in results
    ]


def render_ptx(results: Sequence[PtxResult]) -> str:
    """A table for people: a row for each operator and dtype."""
    rows = [("operator", "dtype", "PTX for compute_80", "as emulated")]
    for r in results:
        what = f"{r.status}, {r.runs} runs" if r.status == "passed" else r.status
        agree = "" if not r.compared else f"{r.same} of {r.compared} bit for bit"
        if r.compared and r.same < r.compared:
            agree += f", else {r.largest:.3g} ULP"
        rows.append((r.operator, r.dtype, what, agree))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    lines = ["  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    told = [
        f"{r.operator}{f', {r.dtype}' if r.dtype else ''}: {r.status}: {r.detail}"
        for r in results
        if r.status != "passed" or "not checked" in r.detail
    ]
    return "\n".join([*lines, *told])
