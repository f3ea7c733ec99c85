"""Does a reference that is called with float64 compute in float64? If not it is no truth to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sample_runs import SampleRun

__all__ = ["IN_FLOAT32", "computes_in_float32"]

IN_FLOAT32 = (
    "the reference computes in float32 even in float64 (its results are all float32 numbers), so it cannot judge: "
    "replace `x.float()` by `x.to(torch.promote_types(x.dtype, torch.float32))`"
)


def computes_in_float32(run: SampleRun) -> bool:
    """Whether all float64 results are float32 numbers, and not for being whole or copied from the inputs."""
    import torch

    def narrow(t: torch.Tensor) -> torch.Tensor:
        return (t.float().double() == t) | ~torch.isfinite(t)

    wide = [t for t in run.sample.tensors() if t.dtype == torch.float64]
    if not any(bool((~narrow(t)).any()) for t in wide):
        return False
    results = [t for t in run.exact() if t.dtype == torch.float64]
    telling = [t for t in results if bool((torch.isfinite(t) & (t != t.round())).any())]
    return bool(telling) and all(bool(narrow(t).all()) for t in telling)
