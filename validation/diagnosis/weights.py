"""A weight that the file holds transposed: square matrices fit either way, and nothing complains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from ..backends import Sample
from ..original import Expected, Original, cloned
from ..record import Finding
from .residual import Elsewhere, Wrong, explains, failing, nowhere

__all__ = ["MOST_WEIGHTS", "explain"]

Array = npt.NDArray[Any]

MOST_WEIGHTS = 24


def explain(
    original: Original,
    sample: Sample,
    got: list[Array],
    expected: list[Expected],
    names: Sequence[str],
    elsewhere: Elsewhere = nowhere,
    wrong: Sequence[Wrong] | None = None,
) -> Iterator[Finding]:
    """A finding for the square weight whose transpose explains every failed output on every sample, where there is one."""
    import torch

    model = original.model
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        return
    square = [
        (n, p)
        for n, p in model.named_parameters()
        if p.dim() >= 2 and p.shape[-1] == p.shape[-2] > 1 and p.is_floating_point()
    ]
    wrong = list(failing(got, expected)) if wrong is None else wrong
    for name, weight in square[:MOST_WEIGHTS]:
        turned = {name: weight.detach().transpose(-1, -2).contiguous()}
        arrays = _outputs(model, turned, sample, len(got))
        if not wrong or not arrays or not all(explains(g, e, arrays[k]) for k, g, e in wrong):
            continue
        if all(
            len(there := _outputs(model, turned, other, len(gave))) == len(gave)
            and all(explains(g, e, a, True) for g, e, a in zip(gave, wanted, there, strict=True))
            for other, gave, wanted in elsewhere()
        ):
            yield Finding(
                "transposed weight",
                "note",
                f"the outputs are those of the original with `{name}` transposed: that explains all of the difference",
                where=name,
                advice="Gemm and MatMul take the weight the other way round than torch's Linear: check transB, or the copy",
            )
            return


def _outputs(model: Any, weights: dict[str, Any], sample: Sample, count: int) -> list[Array]:
    """Of a run with these weights; none where they are tied or packed: then it is not the explanation."""
    import torch

    from ..backends.torch import arrays_of

    try:
        with torch.no_grad():
            result = torch.func.functional_call(
                model, weights, cloned(sample.args), cloned(dict(sample.kwargs))
            )
        arrays = arrays_of(result)
    except Exception:  # whatever torch raises
        return []
    return arrays if len(arrays) == count else []
