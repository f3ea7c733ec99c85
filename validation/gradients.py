"""The gradient of a declared operator: by finite differences, and against autograd through the reference.

`symbolic.checking.gradient_check` has the finite differences (gradcheck, in float64). Here the gradients that the operator
gives are outputs like any other: those of autograd through the reference are the original, run in the dtype and in
float64, and the budget follows from that, in every declared dtype.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..ort_ops.arrays import to_array
from ..symbolic import dtypes as dtype_names
from ..symbolic.adopted_gradient import why_no_gradient
from ..symbolic.checking.gradient_check import check_gradient, check_gradient_dtypes
from ..symbolic.checking.sample_runs import SampleRun, accepted_dtypes, map_tensors, runs
from ..symbolic.torch_logs import quiet
from .backends import Sample
from .backends.torch import described
from .finite_differences import slope, slope_by
from .original import Original, OriginalFailed
from .parity.compare import compare_output
from .record import FAILED, NOT_CHECKED, Cell, Verdict

if TYPE_CHECKING:
    import torch

    from ..symbolic.checking.tally import CheckResult
    from ..symbolic.operator import Operator

__all__ = ["check"]

GRADIENT = "gradient"


def check(op: Operator, dtypes: Sequence[str] | None = None, seed: int = 0) -> list[Cell]:
    """A cell for gradcheck, one for the dtypes of the gradients, and one for each gradient of each smooth sample.

    Nothing is compared where the gradient is autograd through the reference already: there gradcheck says what is to say.
    """
    cells = [_summed(op, check_gradient(op), "gradcheck"), _summed(op, check_gradient_dtypes(op), "dtypes")]
    if why_no_gradient(op) is not None:
        return cells
    if op.custom_op is not None and not op.has_backward:
        return cells
    wanted = [d for d in dtypes or accepted_dtypes(op) if d in dtype_names.FLOATS]
    for dtype in wanted:
        try:
            every = list(runs(op, (dtype,)))
        except Exception as error:  # the user's function
            reason = f"the samples cannot be drawn: {described(error)}"
            cells.append(
                Cell(dtype, "*", "pytorch", NOT_CHECKED, reason, subject=op.name, judged_as=GRADIENT)
            )
            continue
        for run in every:
            cells += _compared(run, seed)
    return cells


def _summed(op: Operator, result: CheckResult, what: str) -> Cell:
    """What a check of the declaration found, as a cell; `CheckResult` has the three verdicts' own names."""
    verdict: Verdict = result.status
    return Cell(what, "*", "pytorch", verdict, result.detail, subject=op.name, judged_as=GRADIENT)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A floating input: its name, and where it is among the arguments."""

    name: str
    argument: str
    item: int | None


def _compared(run: SampleRun, seed: int) -> list[Cell]:
    label = f"{run.dtype}, sample {run.index} ({run.described()})"

    def whole(verdict: Verdict, reason: str) -> list[Cell]:
        return [Cell(label, "*", "pytorch", verdict, reason, subject=run.op.name, judged_as=GRADIENT)]

    if run.misfit:
        return whole(NOT_CHECKED, run.misfit)
    if not run.sample.smooth:
        return whole(NOT_CHECKED, "the sample is declared not smooth, or holds NaN or Inf")
    places = _leaves(run)
    if not places:
        return whole(NOT_CHECKED, "no floating-point input")
    try:
        outputs = [o for o in run.reference() if o.is_floating_point()]
    except Exception as error:
        return whole(NOT_CHECKED, f"the reference does not run: {described(error)}")
    leaves = [_value(run, p) for p in places]
    weights = [_weight(o, k, seed) for k, o in enumerate(outputs)]
    sample = Sample(label, (*leaves, *weights))
    try:
        with quiet():
            expected = Original(_gradients_of(run, places, run.op.reference)).expected(sample)
    except OriginalFailed as error:
        return whole(NOT_CHECKED, f"autograd does not go through the reference: {error}")
    try:
        with quiet():
            got = _gradients_of(run, places, run.op.overload)(*sample.args)
    except Exception as error:
        return whole(FAILED, f"the gradient raises {described(error)}")
    cells = []
    for k, (place, gradient, one) in enumerate(zip(places, got, expected, strict=True)):
        cell = compare_output(label, f"gradient of {place.name}", "pytorch", to_array(gradient), one)
        if cell.verdict == FAILED and _reference_is_wrong(run, places, sample, k):
            reason = (
                "autograd through the reference is wrong at this point (it is written with a kink there): finite "
                "differences agree with the backward"
            )
            cell = replace(cell, verdict=NOT_CHECKED, reason=reason)
        cells.append(replace(cell, subject=run.op.name, judged_as=GRADIENT))
    return cells


def _reference_is_wrong(run: SampleRun, places: Sequence[_Leaf], sample: Sample, which: int) -> bool:
    """Whether finite differences side with the operator's own gradient of a leaf, and against the reference's."""
    import torch

    wide = [v.double() for v in sample.args]
    leaves, weights = wide[: len(places)], wide[len(places) :]
    generator = torch.Generator().manual_seed(which)
    direction = torch.randn(leaves[which].shape, generator=generator, dtype=torch.float64)
    try:
        with quiet():
            true = slope(_floats_of(run, places), leaves, weights, which, direction)
            own, reference = (
                slope_by(_gradients_of(run, places, f)(*wide)[which], direction)
                for f in (run.op.overload, run.op.reference)
            )
    except Exception:  # no float64: then nobody can tell
        return False
    near = 1e-5 + 1e-4 * abs(true)
    return abs(own - true) <= near < 10 * near < abs(reference - true)


def _floats_of(run: SampleRun, places: Sequence[_Leaf]) -> Any:
    """The floating outputs of the reference as a function of the leaves."""

    def outputs(*leaves: torch.Tensor) -> list[torch.Tensor]:
        found = run.call(run.op.reference, [], _arguments(run, places, leaves))
        return [o for o in found if o.is_floating_point()]

    return outputs


def _arguments(run: SampleRun, places: Sequence[_Leaf], leaves: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The sample's arguments by name with other leaves; defaults are left out, the reference has the same ones."""
    at = {(p.argument, p.item): k for k, p in enumerate(places)}

    def given(name: str, value: Any) -> Any:
        if (name, None) in at:
            return leaves[at[name, None]]
        if isinstance(value, (list, tuple)):
            return [leaves[at[name, k]] if (name, k) in at else v for k, v in enumerate(value)]
        return map_tensors(value, lambda t: t.clone())

    return {n: given(n, v) for n, v in run.arguments.items()}


def _leaves(run: SampleRun) -> list[_Leaf]:
    import torch

    found = []
    for name, value in run.arguments.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            found.append(_Leaf(name, name, None))
        elif isinstance(value, (list, tuple)):
            found += [
                _Leaf(f"{name}[{k}]", name, k)
                for k, v in enumerate(value)
                if isinstance(v, torch.Tensor) and v.is_floating_point()
            ]
    return found


def _value(run: SampleRun, place: _Leaf) -> torch.Tensor:
    value = run.arguments[place.argument]
    found: torch.Tensor = value if place.item is None else value[place.item]
    return found.detach()


def _weight(output: torch.Tensor, number: int, seed: int) -> torch.Tensor:
    """What flows in from above: random, for a gradient of ones hides errors that cancel in the sum (softmax)."""
    import torch

    generator = torch.Generator().manual_seed((zlib.crc32(f"gradient {number}".encode()) << 16) + seed)
    return torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)


def _gradients_of(run: SampleRun, places: Sequence[_Leaf], function: Any) -> Any:
    """The gradients as a function of the leaves and of what flows in; zeros where nothing depends on a leaf."""
    import torch

    def gradients(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            leaves = [v.detach().clone().requires_grad_() for v in values[: len(places)]]
            weights = values[len(places) :]
            outputs = run.call(function, [], _arguments(run, places, leaves))
            floats = [o for o in outputs if o.is_floating_point()]
            pairs = [(o, w.to(o.dtype)) for o, w in zip(floats, weights, strict=True) if o.requires_grad]
            if not pairs:
                return tuple(torch.zeros_like(leaf) for leaf in leaves)
            found = torch.autograd.grad(
                [o for o, _ in pairs], leaves, [w for _, w in pairs], allow_unused=True
            )
        return tuple(
            torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)
        )

    return gradients
