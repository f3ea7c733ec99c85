"""Outputs that somebody vouches for, against what both sides say.

Parity cannot see a mistake that both sides share: the wrong channel order before the model gives the same wrong
answer twice. An expected output, stored with the real sample, can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from ..backends import Sample
from ..original import Expected
from ..parity.budget import Budget
from ..parity.compare import compare_output
from ..parity.float_types import is_float
from ..record import Cell

__all__ = ["golden_cells", "golden_expected"]

Array = npt.NDArray[Any]

# The stored value and the side that is judged may each be off by a budget, in opposite directions.
_TWO_SIDES = 2.0


def golden_cells(
    sample: Sample,
    outputs: Sequence[str],
    got: Sequence[Array],
    expected: Sequence[Expected],
    backend: str,
) -> list[Cell]:
    """A cell, judged as "golden", for each output of the sample that has an expected value.

    Args:
        outputs: names in the ONNX graph, in the order of `got` and `expected`.
        got: what `backend` gave; for "pytorch" the original's own arrays.
        expected: of the original: they bring the budget, not the values.
    """
    cells = []
    for name, array, own in zip(outputs, got, expected, strict=True):
        if name not in sample.golden:
            continue
        cell = compare_output(sample.label, name, backend, array, golden_expected(sample.golden[name], own))
        reason = cell.reason
        if cell.verdict == "failed":
            reason = f"not the golden output: {reason}"
        cells.append(replace(cell, reason=reason, judged_as="golden"))
    unknown = [n for n in sample.golden if n not in outputs]
    if unknown:
        raise UsageError(
            f"sample {sample.label!r} has expected values for {', '.join(unknown)}; the outputs are {', '.join(outputs)}"
        )
    return cells


def golden_expected(golden: Array, own: Expected) -> Expected:
    """The golden value in the place of the original's, with twice the budget."""
    array = np.asarray(golden)
    wide = None
    if is_float(own.array) and array.dtype.kind == "f" and array.dtype != own.array.dtype:
        with np.errstate(over="ignore"):
            wide, array = array.astype(np.float64), array.astype(own.array.dtype)
    elif (
        own.array.dtype.kind in "iub" and array.dtype.kind in "iub" and _same_integers(array, own.array.dtype)
    ):
        array = array.astype(own.array.dtype)  # class 3 is class 3 in any integer type
    return replace(
        own,
        array=array,
        wide=wide,
        budget=_doubled(own.budget),
        unsteady="",
        note="",
        undecided=None,
        again=None,
    )


def _doubled(budget: Budget) -> Budget:
    if budget.exact:
        return budget
    two = _TWO_SIDES
    return replace(
        budget,
        atol=two * budget.atol,
        rtol=two * budget.rtol,
        rms=two * budget.rms,
        gain=two * budget.gain,
        lean=(),
        bands=tuple(
            replace(b, atol=two * b.atol, rms=two * b.rms, bias=two * b.bias, lean=math.inf)
            for b in budget.bands
        ),
        source=f"twice {budget.source}",
    )


def _same_integers(array: Array, dtype: Any) -> bool:
    return bool((array.astype(dtype) == array).all())
