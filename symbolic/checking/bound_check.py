"""Do declared upper bounds, and sizes read off shape inputs, hold for what the reference returns?

And can a library follow them: are they formulas of the inputs' sizes, and sizes for empty tensors too?
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...errors import DeployOpsError
from .. import dtypes
from ..bounded_outputs import bounded_outputs
from ..data_sizes import FORMULA_ADVICE, BoundError, size_number
from ..fake_run import ShapeError, TensorInfo, run_fake
from ..shapes import infer
from .sample_runs import accepted_dtypes, runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator
    from .sample_runs import SampleRun

__all__ = ["bound_fault", "check_bound"]

_MOST_CALLS = 8  # whose attributes are tried
_DECLARED: tuple[Literal["bound", "usual"], ...] = ("bound", "usual")


def check_bound(op: Operator) -> CheckResult:
    """The sizes that the reference returns against `@op.bound`, for every sample in every dtype.

    For the samples in the first dtype also what a library makes of `@op.bound` and `@op.usual`: formulas.
    """
    from .sample_runs import sound_runs

    tally = Tally(op.name, "bound")
    first = accepted_dtypes(op)[0]
    for run, real in sound_runs(op, tally):
        fault = _fault(run, real) or (_formula_fault(run) if run.dtype == first else None)
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
    except BoundError as e:
        return e.fault.removeprefix(f"{run.op.name}: ")
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


def _formula_fault(run: SampleRun) -> str | None:
    """What hinders a library to follow the declared sizes, with the sample's sizes or with empty dims."""
    op = run.op
    if op.shape_inputs:
        return None  # of values, which are not there to be varied
    call = op.interface.bind((), run.arguments)
    given = {name: _infos(value) for name, value in call.tensors.items()}
    try:
        named = run_fake(op, given, call.attributes, {}, "named").outputs
        decided = [
            (k, axis)
            for k, info in enumerate(named)
            for axis, dim in enumerate(info.dims or ())
            if size_number(dim) is not None
        ]
        for which in _DECLARED if op.usual_function is not None else _DECLARED[:1]:
            try:
                largest = run_fake(op, given, call.attributes, {}, which).outputs
            except BoundError as e:
                return e.fault.removeprefix(f"{op.name}: ")
            if other := _beyond_sizes(op, which, given, call.attributes, largest, {k for k, _ in decided}):
                return other
            for tensors in _with_empty_dims(given):
                with contextlib.suppress(ShapeError):  # refused, by the fake kernel or by what is declared
                    run_fake(op, tensors, call.attributes, {}, which)
            found = infer(op, _symbolic(given), call.attributes, which)
            for k, axis in decided:
                dims = found[k].dims if k < len(found) else None
                if dims is not None and dims[axis] is None:
                    return (
                        f"@op.{which} is no formula of the inputs' sizes, for dim {axis} of `{op.interface.outputs[k].name}`: it "
                        f"says one thing for some sizes and another for others. {FORMULA_ADVICE}"
                    )
    except DeployOpsError as e:
        return str(e).removeprefix(f"{op.name}: ")
    return None


def _beyond_sizes(
    op: Operator,
    which: Literal["bound", "usual"],
    given: Mapping[str, Any],
    attributes: Mapping[str, Any],
    largest: Sequence[TensorInfo],
    decided: Collection[int],
) -> str | None:
    """What a declared size depends on besides the sizes of single inputs: a library follows nothing else."""
    names = [o.name for o in op.interface.outputs]
    for name, other in _other_attributes(op, attributes):
        try:
            varied = run_fake(op, given, other, {}, which).outputs
        except (BoundError, ShapeError):  # of a value that the operator does not take
            continue
        for k in sorted(decided):
            if k < len(varied) and varied[k].dims != largest[k].dims:
                return (
                    f"the size of `{names[k]}` at @op.{which} depends on the attribute `{name}`: a library follows formulas of the "
                    "inputs' sizes alone. Give sizes that are enough for each of its values"
                )
    if any(i.form == "variadic" for i in op.interface.inputs):
        for k in sorted(decided):
            if not _like_an_input(op, which, given, attributes, k):
                return (
                    f"the size of `{names[k]}` at @op.{which} is not always that of one input, and a library follows no formula "
                    "where an input is a list of tensors. Join the list in the model (torch.cat), so that the operator takes one "
                    "tensor"
                )
    return None


def _like_an_input(
    op: Operator,
    which: Literal["bound", "usual"],
    given: Mapping[str, Any],
    attributes: Mapping[str, Any],
    k: int,
) -> bool:
    """Whether an output has the size of one and the same input, at other ranks too, where the operator takes them."""
    alike = set(given)
    single = {n: t for n, t in given.items() if isinstance(t, TensorInfo)}
    more = [{**given, n: TensorInfo(t.dtype, (2, *(t.dims or ())))} for n, t in single.items()]
    for tensors in (given, *more):
        with contextlib.suppress(ShapeError):
            dims = run_fake(op, tensors, attributes, {}, which).outputs[k].dims
            first = {n: t[0] if isinstance(t, list) and t else t for n, t in tensors.items()}
            alike &= {n for n, t in first.items() if isinstance(t, TensorInfo) and t.dims == dims}
    return bool(alike)


def _other_attributes(op: Operator, attributes: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The attributes with another value of one of them: those of the samples, and neighbours."""
    for a in op.interface.attributes:
        now = attributes.get(a.name)
        others = [call.get(a.name) for _, call in op.sample_calls()[:_MOST_CALLS]]
        if a.kind == "bool" and not a.is_list and isinstance(now, int):
            others.append(1 - now)
        elif isinstance(now, (int, float)):
            others += [now + 1, now * 2]
        elif isinstance(now, list) and now and not isinstance(now[0], str):
            others += [[v + 1 for v in now], [*now, now[-1]]]
        for n, other in enumerate(others):
            if other is not None and other != now and other not in others[:n]:
                yield a.name, {**attributes, a.name: other}


def _infos(value: Any) -> Any:
    """What is known of a tensor argument: its dtype and sizes."""
    if value is None or isinstance(value, (list, tuple)):
        return None if value is None else [_infos(t) for t in value]
    return TensorInfo(dtypes.name_of(value.dtype), tuple(value.shape))


def _with_empty_dims(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same inputs, each dim of each in turn 0, and the dims of one size together."""
    single = {n: t for n, t in given.items() if isinstance(t, TensorInfo)}
    for name, info in single.items():
        sizes = list(info.dims or ())
        for axis in range(len(sizes)):
            yield {**given, name: TensorInfo(info.dtype, (*sizes[:axis], 0, *sizes[axis + 1 :]))}
    for size in sorted({d for t in single.values() for d in t.dims or () if isinstance(d, int)}):
        yield {
            **given,
            **{
                n: TensorInfo(t.dtype, tuple(0 if d == size else d for d in t.dims or ()))
                for n, t in single.items()
            },
        }


def _symbolic(given: Mapping[str, Any]) -> dict[str, Any]:
    """A symbol for every dim of every tensor."""

    def named(name: str, info: TensorInfo) -> TensorInfo:
        return TensorInfo(info.dtype, tuple(f"{name}_{axis}" for axis in range(len(info.dims or ()))))

    return {
        name: [named(f"d{n}_{k}", t) for k, t in enumerate(info)]
        if isinstance(info, list)
        else None
        if info is None
        else named(f"d{n}", info)
        for n, (name, info) in enumerate(given.items())
    }
