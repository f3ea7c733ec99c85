"""An original that is no function of its inputs' values: it goes by their place in memory, or by earlier calls.

A file always computes from the values, and as the first call does. Where the original does not, parity says little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...export.buffers import buffers_kept
from ...symbolic.memory_layouts import is_dense
from ..backends import Sample
from ..backends.torch import arrays_of, outputs_of
from ..original import Expected, Original, cloned
from ..parity.compare import compare_output
from ..parity.float_types import is_float
from ..record import Finding

if TYPE_CHECKING:
    pass

__all__ = ["in_layout", "in_state"]

Array = npt.NDArray[Any]

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
    if _same(first, second):
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
    if all(is_dense(v) for v in _pytree.tree_leaves(given)) or any(e.unsteady for e in outputs):
        return
    args, kwargs = _pytree.tree_map(lambda v: v if is_dense(v) else v.contiguous(), given)
    derived = original.atol is None and original.rtol is None
    dense, arrays = replace(sample, args=args, kwargs=kwargs), [e.array for e in outputs]
    try:
        if _same(arrays, original.arrays(dense)) or not _apart(arrays, original.expected(dense), derived):
            return
        reason = "gives other values"
    except Exception as error:
        reason = f"raises {type(error).__name__}"
    yield Finding(
        "layout",
        "failed",
        f"the original {reason} for the inputs of {sample.label} when the same numbers lie one behind another in memory: it, or an "
        "operator of it, goes by places in memory and not by values, and so it is no reference for this sample",
        where=sample.label,
        advice="take strides into account in its operators, or call .contiguous() on their inputs",
    )


def _same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Bit for bit."""
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(first, second, strict=True)
    )


def _apart(arrays: Sequence[Array], expected: Sequence[Expected], derived: bool) -> bool:
    """Whether they are farther from what is expected than a backend may be.

    Whole numbers may be near a tie. `derived`: a wider run tells; where it gives the same, they count.
    """
    return len(arrays) != len(expected) or any(
        compare_output("", "", "", array, e).verdict == "failed"
        for array, e in zip(arrays, expected, strict=True)
        if is_float(e.array) or (derived and e.undecided is None)
    )
