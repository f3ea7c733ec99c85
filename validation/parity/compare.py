"""One output of a backend against what the original says of it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from ..original import Expected, is_float
from ..record import Cell, Verdict
from .judge import judge
from .metrics import measure, measure_exact

__all__ = ["compare_output"]

Array = npt.NDArray[Any]


def compare_output(sample: str, output: str, backend: str, got: Array, expected: Expected) -> Cell:
    """The cell of one output: shape and dtype first, then the values."""
    want, budget = expected.array, expected.budget
    if expected.apart and got.dtype != want.dtype and is_float(got) and is_float(want):
        want = want.astype(got.dtype)

    def cell(verdict: Verdict, reason: str, metrics: Any = None) -> Cell:
        return Cell(sample, output, backend, verdict, reason, want.dtype.name, want.shape, metrics, budget)

    if got.dtype != want.dtype:
        return cell("failed", f"dtype {got.dtype.name}, the original returns {want.dtype.name}")
    if got.shape != want.shape:
        return cell("failed", f"shape {list(got.shape)}, the original returns {list(want.shape)}")
    if expected.unsteady:
        return cell("not checked", expected.unsteady)
    metrics = (
        measure(got, want, expected.wide, rtol=budget.rtol, atol=budget.atol)
        if is_float(want)
        else measure_exact(got, want)
    )
    verdict, reason = judge(metrics, budget)
    if verdict == "failed" and expected.note:
        reason += f"; {expected.note}"
    if verdict == "failed" and backend.endswith("optimiser off"):
        reason = f"with the runtime's optimiser off: {reason}"
    return cell(verdict, reason, metrics)
