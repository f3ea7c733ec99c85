"""An original that is no function of its inputs' values: it goes by their place in memory, or by earlier calls.

A file always computes from the values, and as the first call does. Where the original does not, parity says little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...export.buffers import buffers_kept
from ..backends import Sample
from ..backends.torch import arrays_of, outputs_of
from ..original import Expected, Original, cloned, is_float
from ..record import Finding

if TYPE_CHECKING:
    import torch

__all__ = ["in_layout", "in_state"]

Array = npt.NDArray[Any]

# Of the largest value: what another order of summation may change, and no misread number stays below.
_SAME = {2: 0.05, 4: 1e-3, 8: 1e-6}
_SHOWN = 3


def in_state(original: Original, sample: Sample, outputs: Sequence[Expected]) -> Iterator[Finding]:
    """Where the original has written into its buffers (`Original.written`): does a second call give something else?"""
    if not original.written or any(e.unsteady for e in outputs):
        return
    try:
        with buffers_kept(original.source or original.model):
            first = arrays_of(cloned(outputs_of(original.call(sample)())))
            second = arrays_of(cloned(outputs_of(original.call(sample)())))
    except Exception:  # it ran before: of a second call nothing is known then
        return
    if _alike(first, second):
        return
    names = sorted(original.written)
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    yield Finding(
        "state",
        "not checked",
        f"the original writes into its buffers ({listed}), and a second call on the same inputs gives other values. An ONNX file "
        "keeps no state: it computes as the first call does, and only that was compared",
        where=names[0],
        advice="make the state an input and an output of the model, or do not write it in eval mode",
    )


def in_layout(original: Original, sample: Sample, outputs: Sequence[Expected]) -> Iterator[Finding]:
    """Whether the original gives the same for the same values one behind another in memory."""
    from torch.utils import _pytree

    given = (sample.args, dict(sample.kwargs))
    if all(_dense(v) for v in _pytree.tree_leaves(given)) or any(e.unsteady for e in outputs):
        return
    args, kwargs = _pytree.tree_map(lambda v: v if _dense(v) else v.contiguous(), given)
    try:
        dense = original.arrays(replace(sample, args=args, kwargs=kwargs))
    except Exception as error:
        dense, reason = [], f"raises {type(error).__name__}"
    else:
        reason = "gives other values"
    settled = [k for k, e in enumerate(outputs) if e.undecided is None and k < len(dense)]
    if len(dense) == len(outputs) and _alike(
        [outputs[k].array for k in settled], [dense[k] for k in settled]
    ):
        return
    yield Finding(
        "layout",
        "failed",
        f"the original {reason} for the inputs of {sample.label} when the same numbers lie one behind another in memory: it, or an "
        "operator of it, goes by places in memory and not by values, and so it is no reference for this sample",
        where=sample.label,
        advice="take strides into account in its operators, or call .contiguous() on their inputs",
    )


def _dense(value: Any) -> bool:
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return True
    tensor: torch.Tensor = value
    return tensor.is_contiguous()


def _alike(first: Sequence[Array], second: Sequence[Array]) -> bool:
    if len(first) != len(second) or any(a.shape != b.shape for a, b in zip(first, second, strict=True)):
        return False
    for a, b in zip(first, second, strict=True):
        if not is_float(a):
            if not bool((a == b).all()):
                return False
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if not bool(((x == y) | finite | (np.isnan(x) & np.isnan(y))).all()):
            return False
        largest = float(np.abs(x[finite]).max(initial=0.0))
        if (
            float(np.abs(x - y, where=finite, out=np.zeros_like(x)).max(initial=0.0))
            > _SAME[a.dtype.itemsize] * largest
        ):
            return False
    return True
