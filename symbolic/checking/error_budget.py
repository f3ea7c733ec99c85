"""How far an implementation may be from the reference: the budget of bodies and of kernels.

The budget is relative to what torch itself loses in that dtype: with the reference in float64 as the truth,
the error may be four times torch's, or a few units in the last place. An error is measured against the
element's own size plus the median size of the output, so that one huge element hides nothing; an implementation
is allowed a few float32 units (float64 for float64) of the inputs' size. NaN and infinities must stand where the
truth, rounded to the dtype, or torch has them.

Kernels compute halves in float32 (`wide_t`) and round once: `faults(..., wide=True)` allows 16-bit results one unit in the
last place of the element itself, and beside it what float32 may lose on the way, not eight units of eps 2⁻⁷.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .sample_runs import SampleRun

__all__ = ["faults"]

_TIMES_TORCH = 4.0
_TIMES_ROUNDED = 2.0  # what torch loses in halves beyond one rounding
_ULPS = 8.0


def faults(
    run: SampleRun,
    got: Sequence[torch.Tensor],
    by_torch: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    *,
    wide: bool = False,
) -> Iterator[str | None]:
    """What is wrong with each output of an implementation; None where it is within the budget.

    `by_torch`: the reference in the run's dtype; `exact`: in float64. `wide`: the implementation computes 16-bit floats in
    float32 and rounds once.
    """
    noise = _ULPS * _input_size(run)
    own_errors = _torch_errors(run, by_torch, exact)
    wide_errors: list[float] | None = None
    for k, (mine, theirs, truth) in enumerate(zip(got, by_torch, exact, strict=True)):
        if not (wide and _is_half(theirs)) or theirs.shape != truth.shape:
            yield _fault(mine, theirs, truth, max(_ULPS, _TIMES_TORCH * own_errors[k]), noise)
            continue
        if wide_errors is None:
            wide_errors = _float32_errors(run, exact)
        in_float32 = max(_ULPS, _TIMES_TORCH * wide_errors[k]) * 2.0**-23 / _eps(theirs)
        # a reference that rounds on the way, too, leaves that to the kernel
        rounded = _TIMES_ROUNDED * _beyond_rounding(theirs, truth)
        yield _fault(mine, theirs, truth, in_float32 + rounded, noise, last_places=1.0)


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


def _float32_errors(run: SampleRun, exact: Sequence[torch.Tensor]) -> list[float]:
    """What torch loses in each output where it computes in float32 what halves went in, in units of float32."""
    import torch

    try:
        in_float32 = run.run(run.op.reference, lambda t: t.float() if t.is_floating_point() else t)
    except Exception:  # a reference of halves alone
        return [0.0] * len(exact)
    errors = []
    for theirs, truth in zip(in_float32, exact, strict=True):
        error = 0.0
        if theirs.dtype == torch.float32 and theirs.shape == truth.shape and theirs.numel():
            finite = torch.isfinite(theirs) & torch.isfinite(truth)
            lost = (theirs.double() - truth.double()).abs() / _weight(truth, finite, theirs.dtype)
            error = torch.where(finite, lost, 0.0).max().item() / _eps(theirs)
        errors.append(error)
    return errors


def _beyond_rounding(theirs: torch.Tensor, truth: torch.Tensor) -> float:
    """What torch loses in an output beyond its rounding, in units of the dtype, of an element's weight."""
    import torch

    if not theirs.numel():
        return 0.0
    finite = torch.isfinite(theirs) & torch.isfinite(truth)
    lost = ((theirs.double() - truth.double()).abs() - 0.5 * _last_place(truth, theirs.dtype)).clamp(min=0)
    error = torch.where(finite, lost / _weight(truth, finite, theirs.dtype), 0.0).max().item()
    return error / _eps(theirs)


def _last_place(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The unit in the last place of each element, as a number of `dtype`."""
    import torch

    info = torch.finfo(dtype)
    size = truth.double().abs().nan_to_num(0, 0, 0).clamp(min=info.tiny)
    # frexp, as log2 rounds the largest numbers up
    return torch.exp2(torch.frexp(size).exponent.double() - 1) * info.eps


def _is_half(t: torch.Tensor) -> bool:
    return t.is_floating_point() and t.element_size() == 2


def _eps(t: torch.Tensor) -> float:
    import torch

    return torch.finfo(t.dtype).eps


def _weight(truth: torch.Tensor, finite: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What an element's error is measured against: its own size and the output's median."""
    import torch

    size = truth.double().abs()
    own = size[finite & (size > 0)]
    return size + (own.median() if own.numel() else 0.0) + torch.finfo(dtype).tiny


def _fault(
    got: torch.Tensor,
    by_torch: torch.Tensor,
    exact: torch.Tensor,
    budget: float,
    noise: float,
    last_places: float = 0.0,
) -> str | None:
    """What is wrong with an output; None where it is within the budget.

    `budget` is in units of the dtype, of an element's weight; `noise` in float32 units at most, absolute;
    `last_places` in ULP of the element itself.
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
    dtype, eps = by_torch.dtype, torch.finfo(by_torch.dtype).eps
    ulp = _last_place(truth, dtype)
    allowed = budget * eps * _weight(truth, finite, dtype) + last_places * ulp
    allowed = allowed + noise * min(eps, torch.finfo(torch.float32).eps)
    error = (mine - truth).abs()
    ratio = torch.where(finite, error / allowed, 0.0).nan_to_num(torch.inf, torch.inf)
    worst = ratio.max().item()
    if worst <= 1:
        return None
    at = tuple((ratio == worst).nonzero()[0].tolist())
    return (
        f"{mine[at].item():.9g} at {list(at)}, where the reference in float64 has {truth[at].item():.9g}: "
        f"an error of {(error[at] / ulp[at]).item():.3g} ULP of that number, allowed are {(allowed[at] / ulp[at]).item():.3g}"
    )


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Both finite, both NaN, or the same infinity."""
    import torch

    return (torch.isfinite(a) & torch.isfinite(b)) | (torch.isnan(a) & torch.isnan(b)) | (a == b)
