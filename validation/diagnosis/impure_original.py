"""An original that is no function of its inputs' values: it goes by their place in memory, or by earlier calls.

A file always computes from the values, and as the first call does. Where the original does not, parity says little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from ...export.buffers import buffers_kept
from ...symbolic.memory_layouts import is_dense
from ..backends import Sample
from ..backends.torch import arrays_of, outputs_of
from ..operators_seen import Place, operators_seen
from ..original import Expected, Original, cloned
from ..parity.budget import HOPELESS
from ..parity.compare import compare_output
from ..parity.float_types import is_float
from ..parity.metrics import measure
from ..record import Finding

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
    operator = _operator(original, sample)
    if operator:
        yield Finding(
            "layout",
            "failed",
            f"{operator} gives other values for a non-contiguous argument: it goes by places in memory and not by values. So "
            f"the original is no reference for {sample.label}",
            where=operator,
            advice=f"call .contiguous() on the arguments of {operator}, or take their strides into account in it",
        )
        return
    yield Finding(
        "layout",
        "failed",
        f"the original {reason} for the inputs of {sample.label} when the same numbers lie one behind another in memory: it, or an "
        "operator of it, goes by places in memory and not by values, and so it is no reference for this sample",
        where=sample.label,
        advice="take strides into account in its operators, or call .contiguous() on their inputs",
    )


def _operator(original: Original, sample: Sample) -> str:
    """The first operator, not one of torch, that gives other values for the same numbers one behind another; empty without one."""
    import torch
    from torch.utils import _pytree

    found: list[str] = []

    def see(place: Place, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        own = getattr(func, "namespace", "aten") not in ("aten", "prims") and not func._schema.is_mutable
        if found or not own or all(is_dense(v) for v in _pytree.tree_leaves((args, kwargs))):
            return
        args, kwargs = _pytree.tree_map(lambda v: v if is_dense(v) else v.contiguous(), (args, kwargs))
        try:
            other = func(*args, **kwargs)
        except Exception:  # a refusal is no value
            return
        if any(
            a.shape != b.shape or not torch.allclose(a.double(), b.double(), rtol=1e-2, equal_nan=True)
            for a, b in zip(_pytree.tree_leaves(result), _pytree.tree_leaves(other), strict=True)
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and not a.is_complex()
        ):
            found.append(str(func.name()))

    try:
        with buffers_kept(original.source or original.model), operators_seen(see):
            original.call(sample)()
    except Exception:  # it ran before: then nothing is known of its operators
        return ""
    return found[0] if found else ""


def _same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Bit for bit."""
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(first, second, strict=True)
    )


def _apart(arrays: Sequence[Array], expected: Sequence[Expected], derived: bool) -> bool:
    """Whether they are farther from what is expected than a backend may be.

    Whole numbers may be near a tie. `derived`: a wider run tells; where it gives the same, they count. Where the wider run is
    far off itself, it may be that which is wrong: then a tenth is no rounding.
    """
    return len(arrays) != len(expected) or any(
        compare_output("", "", "", array, e).verdict == "failed"
        or (e.budget.hopeless and _a_tenth(array, e.array))
        for array, e in zip(arrays, expected, strict=True)
        if is_float(e.array) or (derived and e.undecided is None)
    )


def _a_tenth(array: Array, dense: Array) -> bool:
    """Whether they are more than a tenth apart, root mean squares."""
    found = measure(array, dense)
    return bool(found.nan or found.inf) or not found.rms <= HOPELESS * found.scale_rms
