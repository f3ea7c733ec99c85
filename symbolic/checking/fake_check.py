"""Does the fake kernel say what the reference does, and does the shape rule derived from it hold?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DeployOpsError
from .. import dims, dtypes
from ..shapes import ShapeError, TensorInfo, infer
from ..torch_logs import quiet
from .other_sizes import OtherSizes, other_sizes
from .sample_runs import SampleRun, accepted_dtypes, sound_runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator

__all__ = ["check_fake", "check_shape_rule"]

_MOST_TRIES = 100  # sizes for one operator; each runs the reference and the fake kernel


def check_fake(op: Operator) -> CheckResult:
    """Number, shapes and dtypes of the fake outputs against the reference's: every sample in every dtype.

    And in the first dtype at other sizes than the samples', as far as the reference accepts them.
    """
    tally = Tally(op.name, "fake")
    first = accepted_dtypes(op)[0]
    shapes = _Shapes()
    for run, real in sound_runs(op, tally):
        shapes.add(run)
        fault = _fake_fault(run, real)
        if fault:
            tally.fail(fault, run)
            continue
        tally.passed += 1
        if run.dtype != first:
            continue
        for other, result in _accepted_sizes(run, shapes):
            fault = _fake_fault(other.run, result)
            if fault:
                tally.fail(f"at other sizes ({other.run.described()}) {fault}", run)
                break
    return tally.result(note=shapes.note())


class _Shapes:
    """Which input shapes were compared: a rule that was seen at one alone may hold there alone."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.tries = self.others = 0

    def add(self, run: SampleRun) -> bool:
        """Whether these shapes (with these attributes) are new."""
        label = run.described()
        known = label in self.seen
        self.seen.add(label)
        return not known

    def note(self) -> str:
        return (
            "" if self.others else "only at the samples' sizes (others not checked: the reference takes none)"
        )


def _accepted_sizes(run: SampleRun, shapes: _Shapes) -> Iterator[tuple[OtherSizes, list[torch.Tensor]]]:
    """The run at other sizes, not seen before, that the reference accepts."""
    for alternatives in other_sizes(run):
        for other in alternatives:
            if shapes.tries >= _MOST_TRIES:
                return
            if not shapes.add(other.run):
                break
            shapes.tries += 1
            try:
                result = other.run.reference()
            except Exception:
                continue
            shapes.others += 1
            yield other, result
            break


def _fake_fault(run: SampleRun, real: Sequence[torch.Tensor]) -> str | None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    try:
        arguments = run.copies(lambda t: mode.from_tensor(t, static_shapes=True))
        with mode, quiet():
            fake = run.call(run.op.overload, *arguments)
    except DeployOpsError as e:
        return str(e).removeprefix(f"{run.op.name}: ")
    except Exception as e:
        return (
            f"the fake kernel raises {type(e).__name__}: {_first_line(e)}; the reference accepts this sample"
        )
    if len(fake) != len(real):
        return f"the fake kernel returns {len(fake)} tensors, the reference {len(real)}: return as many"
    for k, (f, r) in enumerate(zip(fake, real, strict=True)):
        name = f"output {k}"
        if f.dtype != r.dtype:
            return (
                f"{name} is {dtypes.name_of(f.dtype)} by the fake kernel, {dtypes.name_of(r.dtype)} by the "
                "reference: correct whichever is wrong"
            )
        if f.dim() != r.dim() or not all(_fits(a, b) for a, b in zip(f.shape, r.shape, strict=True)):
            return (
                f"{name} is {_shape(f)} by the fake kernel, {_shape(r)} by the reference: correct the former"
            )
    return None


def _fits(fake: Any, real: int) -> bool:
    """A data-dependent size (an unbacked symbol) fits any real one."""
    return fake == real if isinstance(fake, int) else True


def _shape(t: torch.Tensor) -> str:
    return f"({', '.join('?' if not isinstance(s, int) else str(s) for s in t.shape)})"


def check_shape_rule(op: Operator) -> CheckResult:
    """The inferred expressions, evaluated at each sample's sizes and at others, against the reference's shapes.

    Every sample in the first dtype, one in each other: that dtypes do not change shapes, `check_fake` has seen.
    """
    tally = Tally(op.name, "shape rule")
    first = accepted_dtypes(op)[0]
    shapes = _Shapes()
    known = total = 0
    for run, real in sound_runs(op, tally):
        if run.dtype != first and run.index > 0:
            continue
        shapes.add(run)
        bound = op.interface.bind((), run.arguments)
        sizes = {s: s for t in run.sample.tensors() for s in t.shape}
        try:
            inferred = infer(op, {n: _symbolic(v) for n, v in bound.tensors.items()}, bound.attributes)
        except ShapeError as e:
            tally.fail(f"{e}: the fake kernel must accept symbolic sizes", run)
            continue
        fault = _rule_fault(inferred, real, sizes)
        if fault:
            tally.fail(fault, run)
            continue
        tally.passed += 1
        known += sum(d is not None for info in inferred for d in info.dims or ())
        total += sum(t.dim() for t in real)
        for other, result in _accepted_sizes(run, shapes) if run.dtype == first else ():
            if other.sizes is None:  # sizes that the rule has one symbol for are no longer equal
                continue
            fault = _rule_fault(inferred, result, sizes | dict(other.sizes))
            if fault:
                tally.fail(f"at other sizes ({other.run.described()}) {fault}", run)
                break
    note = f"{known} of {total} output dims have a formula" if known < total else ""
    return tally.result("shape", "; ".join(filter(None, [note, shapes.note()])))


def _symbolic(value: Any) -> Any:
    """A tensor argument with a symbol for each size: `n3` stands for 3, wherever it occurs."""
    import torch

    if isinstance(value, torch.Tensor):
        # A size of 0 or 1 is special to broadcasting, and a formula for it would be none for the others.
        return TensorInfo(dtypes.name_of(value.dtype), tuple(f"n{s}" if s > 1 else s for s in value.shape))
    return [_symbolic(v) for v in value] if isinstance(value, (list, tuple)) else value


def _rule_fault(
    inferred: Sequence[TensorInfo], real: Sequence[torch.Tensor], sizes: Mapping[int, int]
) -> str | None:
    by_name = {f"n{old}": new for old, new in sizes.items()}
    if inferred and len(inferred) != len(real):
        return f"the rule gives {len(inferred)} outputs, the reference {len(real)}"
    for k, (info, r) in enumerate(zip(inferred, real, strict=False)):
        if info.dtype is not None and info.dtype != dtypes.name_of(r.dtype):
            return f"output {k} is {info.dtype} by the rule, {dtypes.name_of(r.dtype)} by the reference"
        if info.dims is None:
            continue
        found = [dims.evaluate(d, by_name) if isinstance(d, str) else d for d in info.dims]
        if len(found) != r.dim() or any(
            f is not None and f != s for f, s in zip(found, r.shape, strict=True)
        ):
            return (
                f"output {k} is ({', '.join('?' if d is None else str(d) for d in info.dims)}) by the rule, "
                f"{tuple(r.shape)} by the reference: correct the fake kernel"
            )
    return None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
