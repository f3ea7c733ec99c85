"""How far an implementation may be from the reference: the budget of bodies and of kernels.

The budget is relative to what torch itself loses in that dtype: with the reference in float64 as the truth,
the error may be four times torch's, or a few units in the last place. An error is measured against the
element's own size plus the median size of the output, so that one huge element hides nothing; an implementation
is allowed a few float32 units (float64 for float64) of the inputs' size. NaN and infinities must stand where the
truth, rounded to the dtype, or torch has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .sample_runs import SampleRun

__all__ = ["faults"]

_TIMES_TORCH = 4.0
_ULPS = 8.0


def faults(
    run: SampleRun,
    got: Sequence[torch.Tensor],
    by_torch: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
) -> Iterator[str | None]:
    """What is wrong with each output of an implementation; None where it is within the budget.

    `by_torch`: the reference in the run's dtype; `exact`: in float64.
    """
    noise = _ULPS * _input_size(run)
    own_errors = _torch_errors(run, by_torch, exact)
    for mine, theirs, truth, lost in zip(got, by_torch, exact, own_errors, strict=True):
        yield _fault(mine, theirs, truth, max(_ULPS, _TIMES_TORCH * lost), noise)


def _input_size(run: SampleRun) -> float:
    """The median size of the floating-point inputs, at most 1."""
    import torch

    sizes = [t.detach().double().abs().flatten() for t in run.sample.tensors() if t.is_floating_point()]
    values = torch.cat(sizes) if sizes else torch.zeros(0)
    values = values[torch.isfinite(values)]
    return min(1.0, values.median().item()) if values.numel() else 0.0


def _torch_errors(
    run: SampleRun, by_torch: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> list[float]:
    """What torch itself loses in each output, in units of the dtype.

    In float64 torch is the truth, and how ill-conditioned the sample is shows in float32.
    """
    import torch

    if run.dtype == "float64":
        by_torch = run.run(run.op.reference, lambda t: t.float() if t.is_floating_point() else t)
        exact = run.run(run.op.reference, lambda t: t.float().double() if t.is_floating_point() else t)
    errors = []
    for theirs, truth in zip(by_torch, exact, strict=True):
        error = 0.0
        if theirs.is_floating_point() and theirs.shape == truth.shape and theirs.numel():
            finite = torch.isfinite(theirs) & torch.isfinite(truth)
            lost = (theirs.double() - truth.double()).abs() / _weight(truth, finite, theirs.dtype)
            error = torch.where(finite, lost, 0.0).max().item() / torch.finfo(theirs.dtype).eps
        errors.append(error)
    return errors


def _weight(truth: torch.Tensor, finite: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What an element's error is measured against: its own size and the output's median."""
    import torch

    size = truth.double().abs()
    own = size[finite & (size > 0)]
    return size + (own.median() if own.numel() else 0.0) + torch.finfo(dtype).tiny


def _fault(
    got: torch.Tensor, by_torch: torch.Tensor, exact: torch.Tensor, budget: float, noise: float
) -> str | None:
    """What is wrong with an output; None where it is within the budget.

    `budget` is in units of the dtype, of an element's weight; `noise` in float32 units at most, absolute.
    """
    import torch

    if got.shape != by_torch.shape:
        return f"its shape is {tuple(got.shape)}, the reference's {tuple(by_torch.shape)}"
    if not got.is_floating_point():
        wrong = int((got != by_torch).sum())
        return f"{wrong} of {got.numel()} values differ" if wrong else None
    rounded = exact.to(by_torch.dtype).double()
    mine, theirs, truth = got.double(), by_torch.double(), exact.double()
    misplaced = ~(_same_kind(mine, rounded) | _same_kind(mine, theirs))
    if misplaced.any():
        at = tuple(misplaced.nonzero()[0].tolist())
        return f"{mine[at].item()} at {list(at)}, where the reference has {theirs[at].item()}"
    finite = torch.isfinite(mine) & torch.isfinite(truth)
    if not finite.any():
        return None
    eps = torch.finfo(by_torch.dtype).eps
    excess = ((mine - truth).abs() - noise * min(eps, torch.finfo(torch.float32).eps)).clamp(min=0)
    error = torch.where(finite, excess / (_weight(truth, finite, by_torch.dtype) * eps), 0.0)
    worst = error.max().item()
    if worst <= budget:
        return None
    at = tuple((error == worst).nonzero()[0].tolist())
    return (
        f"{mine[at].item():.9g} at {list(at)}, where the reference in float64 has {truth[at].item():.9g}: "
        f"an error of {worst:.3g} ULP, allowed are {budget:.3g}"
    )


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Both finite, both NaN, or the same infinity."""
    import torch

    return (torch.isfinite(a) & torch.isfinite(b)) | (torch.isnan(a) & torch.isnan(b)) | (a == b)
