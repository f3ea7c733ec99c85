"""Attention whose mask leaves nothing of a row: every score is −Inf, and runtimes disagree on what comes out.

A softmax over nothing but −Inf is 0/0. `torch.softmax` gives NaN, and so does ONNX's Softmax as it is defined;
`scaled_dot_product_attention` of torch 2.5 and later gives 0 for such a row; a fused kernel may give 0, NaN, or the mean
of the values. Neither side is out of a budget: the row has no value, and the model has to give it one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..backends import Sample
from ..original import Expected, Original
from ..parity.float_types import is_float
from ..record import Finding

if TYPE_CHECKING:
    import onnx

__all__ = ["explain"]

Array = npt.NDArray[Any]

_ADVICE = (
    "give such rows a value of your own, on both sides the same: mask with a large finite number (-1e4 in float16) instead "
    "of -inf, let every row see one position, or multiply the result by a mask of the rows that see any"
)


def explain(
    original: Original,
    sample: Sample,
    got: Sequence[Array],
    expected: Sequence[Expected],
    graph: onnx.GraphProto,
) -> list[Finding]:
    """A finding where outputs are NaN on one side only and the original has rows that are wholly masked."""
    if len(got) != len(expected):
        return []
    outputs = [o.name for o in graph.output]
    names = outputs if len(outputs) == len(expected) else [f"output {k}" for k in range(len(expected))]
    apart = [
        (name, _nan(g), _nan(e.array))
        for name, g, e in zip(names, got, expected, strict=True)
        if g.shape == e.array.shape and is_float(g) and is_float(e.array)
    ]
    apart = [(name, ours, theirs) for name, ours, theirs in apart if bool((ours != theirs).any())]
    if not apart:
        return []
    watch = _watching()
    try:
        with watch:
            original.arrays(sample)
    except Exception:  # a model that does not run under a mode of torch: then this is not known
        return []
    if not watch.rows:
        return []
    name, ours, theirs = apart[0]
    mine, file = int((theirs & ~ours).sum()), int((ours & ~theirs).sum())
    has = f"the original has NaN in {mine} elements of {name} where the file has numbers" if mine else ""
    also = f"the file has NaN in {file} elements of {name} where the original has numbers" if file else ""
    return [
        Finding(
            "masked row",
            "note",
            f"{watch.rows} of {watch.all_rows} rows of an attention see nothing: every score is masked with -inf, and the "
            f"softmax of such a row is 0/0, which is NaN or 0 as the implementation pleases. Here "
            f"{' and '.join(p for p in (has, also) if p)}",
            where=name,
            advice=_ADVICE,
        )
    ]


def _nan(array: Array) -> Array:
    found: Array = np.isnan(array.astype(np.float64))
    return found


def _watching() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        """Counts the rows that nothing is seen in, in the first softmax or attention that has any."""

        rows = 0
        all_rows = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = func.name().partition("::")[2].partition(".")[0]
            if not self.rows and "softmax" in name and "backward" not in name:
                self._softmax(args)
            elif not self.rows and "scaled_dot_product" in name and "backward" not in name:
                self._attention(args, kwargs)
            return func(*args, **kwargs)

        def _softmax(self, args: Any) -> None:
            scores, axis = args[0], args[1] if len(args) > 1 else -1
            if isinstance(axis, int) and scores.dim() and scores.is_floating_point():
                self._count((scores == -torch.inf).all(axis))

        def _attention(self, args: Any, kwargs: Any) -> None:
            # by whatever name a kernel has it: the mask is the tensor after query, key and value
            masks = (*args[3:], kwargs.get("attn_mask"), kwargs.get("attn_bias"))
            mask = next((m for m in masks if isinstance(m, torch.Tensor) and m.dim() >= 2), None)
            if mask is not None:
                hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
                self._count(hidden.all(-1))

        def _count(self, hidden: torch.Tensor) -> None:
            count = int(hidden.sum())
            if count:
                self.rows, self.all_rows = count, hidden.numel()

    return Watching()  # type: ignore[no-untyped-call,unused-ignore]
