"""A weight that the file holds transposed: square matrices fit either way, and nothing complains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from ..backends import Sample
from ..original import Expected, Original, cloned
from ..record import Finding
from .residual import explained, failing, share_text

__all__ = ["MOST_WEIGHTS", "explain"]

Array = npt.NDArray[Any]

MOST_WEIGHTS = 24


def explain(
    original: Original, sample: Sample, got: list[Array], expected: list[Expected], names: Sequence[str]
) -> Iterator[Finding]:
    """A finding for the square weight whose transpose explains every failed output, where there is one."""
    import torch

    from ..backends.torch import arrays_of

    model = original.model
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return
    square = [
        (n, p)
        for n, p in model.named_parameters()
        if p.dim() >= 2 and p.shape[-1] == p.shape[-2] > 1 and p.is_floating_point()
    ]
    wrong = list(failing(got, expected))
    for name, weight in square[:MOST_WEIGHTS]:
        turned = {name: weight.detach().transpose(-1, -2).contiguous()}
        try:
            with torch.no_grad():
                result = torch.func.functional_call(
                    model, turned, cloned(sample.args), cloned(dict(sample.kwargs))
                )
            arrays = arrays_of(result)
        except Exception:  # weights that are tied or packed: then it is not the explanation
            continue
        if len(arrays) != len(got):
            continue
        shares = [explained(g, e, arrays[k]) for k, g, e in wrong]
        if shares and all(s.convincing for s in shares):
            yield Finding(
                "transposed weight",
                "note",
                f"the outputs are those of the original with `{name}` transposed: that explains "
                f"{share_text(min(shares, key=lambda s: s.share))}",
                where=name,
                advice="Gemm and MatMul take the weight the other way round than torch's Linear: check transB, or the copy",
            )
            return
