"""Does the fake kernel say what the reference does, and does the shape rule derived from it hold?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import dims, dtypes
from ..shapes import ShapeError, TensorInfo, infer
from .sample_runs import SampleRun, runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator

__all__ = ["check_fake", "check_shape_rule"]


def check_fake(op: Operator) -> CheckResult:
    """Number, shapes and dtypes of the fake outputs against the reference's: every sample in every dtype."""
    tally = Tally(op.name, "fake")
    for run in runs(op):
        if run.undeclared:
            continue  # the declaration check says so
        try:
            real = run.reference()
        except Exception as e:
            tally.unchecked.append(f"the reference fails ({type(e).__name__})")
            continue
        fault = _fake_fault(run, real)
        if fault:
            tally.failures.append(f"{run}: {fault}")
        else:
            tally.passed += 1
    return tally.result()


def _fake_fault(run: SampleRun, real: Sequence[torch.Tensor]) -> str | None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv())
    try:
        arguments = run.copies(lambda t: mode.from_tensor(t, static_shapes=True))
        with mode:
            fake = run.call(run.op.overload, *arguments)
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
    """The inferred expressions, evaluated at each sample's sizes, against the reference's shapes.

    Every sample in the first dtype, one in each other: that dtypes do not change shapes, `check_fake` has seen.
    """
    tally = Tally(op.name, "shape rule")
    known = total = 0
    for run in runs(op):
        if run.undeclared or (run.dtype != op.types.drawn[0] and run.index > 0):
            continue
        try:
            real = run.reference()
        except Exception as e:
            tally.unchecked.append(f"the reference fails ({type(e).__name__})")
            continue
        bound = op.interface.bind((), run.arguments)
        sizes = {f"n{s}": s for t in run.sample.tensors() for s in t.shape}
        try:
            inferred = infer(op, {n: _symbolic(v) for n, v in bound.tensors.items()}, bound.attributes)
        except ShapeError as e:
            tally.failures.append(f"{run}: {e}: the fake kernel must accept symbolic sizes")
            continue
        fault = _rule_fault(inferred, real, sizes)
        if fault:
            tally.failures.append(f"{run}: {fault}")
            continue
        tally.passed += 1
        known += sum(d is not None for info in inferred for d in info.dims or ())
        total += sum(t.dim() for t in real)
    note = f"{known} of {total} output dims have a formula" if known < total else ""
    return tally.result("shape", note)


def _symbolic(value: Any) -> Any:
    """A tensor argument with a symbol for each size: `n3` stands for 3, wherever it occurs."""
    import torch

    if isinstance(value, torch.Tensor):
        # A size of 0 or 1 is special to broadcasting, and a formula for it would be none for the others.
        return TensorInfo(dtypes.name_of(value.dtype), tuple(f"n{s}" if s > 1 else s for s in value.shape))
    return [_symbolic(v) for v in value] if isinstance(value, (list, tuple)) else value


def _rule_fault(
    inferred: Sequence[TensorInfo], real: Sequence[torch.Tensor], sizes: dict[str, int]
) -> str | None:
    if inferred and len(inferred) != len(real):
        return f"the rule gives {len(inferred)} outputs, the reference {len(real)}"
    for k, (info, r) in enumerate(zip(inferred, real, strict=False)):
        if info.dtype is not None and info.dtype != dtypes.name_of(r.dtype):
            return f"output {k} is {info.dtype} by the rule, {dtypes.name_of(r.dtype)} by the reference"
        if info.dims is None:
            continue
        found = [dims.evaluate(d, sizes) if isinstance(d, str) else d for d in info.dims]
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
