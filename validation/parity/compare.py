"""One output of a backend against what the original says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected, is_float
from ..record import Cell, Verdict
from .budget import Budget
from .judge import judge
from .metrics import Metrics, measure, measure_exact
from .modes import compared_as

__all__ = ["compare_output"]

Array = npt.NDArray[Any]

# An output whose error is this part of it needs no longer look.
BEYOND = 0.25


def compare_output(
    sample: str,
    output: str,
    backend: str,
    got: Array,
    expected: Expected,
    mode: str = "values",
    subject: str = "",
) -> Cell:
    """The cell of one output: shape and dtype first, then the values, as `mode` says (see `modes.parse`)."""
    want, budget = expected.array, expected.budget
    beyond = lost = 0
    if expected.apart and got.dtype != want.dtype and is_float(got) and is_float(want):
        if got.dtype.itemsize > want.dtype.itemsize:
            lost = _lost(got, expected.wide)
            got, beyond = _rounded(got, want.dtype)
        else:
            want = want.astype(got.dtype)

    def cell(
        verdict: Verdict, reason: str, metrics: Metrics | None = None, used: Budget | None = None
    ) -> Cell:
        return Cell(
            sample,
            output,
            backend,
            verdict,
            reason,
            want.dtype.name,
            want.shape,
            metrics,
            used or budget,
            subject,
            mode,
        )

    if got.dtype != want.dtype:
        return cell("failed", f"dtype {got.dtype.name}, the original returns {want.dtype.name}")
    if got.shape != want.shape and not mode.startswith("boxes"):
        return cell("failed", f"shape {list(got.shape)}, the original returns {list(want.shape)}")
    if expected.unsteady:
        return cell("not checked", expected.unsteady)
    if lost:  # rounded to a type that has no such number, both would be Inf
        return cell(
            "failed",
            f"{lost} of {want.size} elements Inf or NaN, and finite in the original: the file overflows inside",
        )
    looks = [lambda: budget, *([expected.again] if expected.again is not None else [])]
    for look in looks:
        used = look()
        metrics: Metrics | None
        if mode != "values":
            verdict, reason, metrics = compared_as(mode, got, want, expected, used)
        else:
            metrics = (
                measure(got, want, expected.wide, tolerance=used.tolerance())
                if is_float(want)
                else measure_exact(got, want)
            )
            verdict, reason = judge(metrics, used)
        if verdict != "failed" or (metrics is not None and _beyond(metrics)):
            break
    if verdict == "passed" and beyond:
        kind = want.dtype.name
        return cell(
            "not checked",
            f"{beyond} of {want.size} elements are beyond the largest {kind}, in which the outputs are judged: what {kind} may "
            "cost there is not known. Give the tolerance that you accept (--atol, --rtol)",
            metrics,
            used,
        )
    if verdict == "failed" and expected.note:
        reason += f"; {expected.note}"
    if verdict == "failed" and backend.endswith("optimiser off"):
        reason = f"with the runtime's optimiser off: {reason}"
    return cell(verdict, reason, metrics, used)


def _lost(got: Array, wide: Array | None) -> int:
    """How many elements are Inf or NaN where the original's, in a wider run, are finite."""
    if wide is None or wide.shape != got.shape:
        return 0
    return int(np.count_nonzero(~np.isfinite(got) & np.isfinite(wide)))


def _rounded(array: Array, dtype: Any) -> tuple[Array, int]:
    """The array in a narrower dtype, and how many of its finite elements that has no number for."""
    with np.errstate(all="ignore"):
        narrow = array.astype(dtype)
        lost = int(np.count_nonzero(np.isinf(narrow) & np.isfinite(array)))
    return narrow, lost


def _beyond(metrics: Metrics) -> bool:
    return bool(metrics.nan or metrics.inf) or metrics.rms > BEYOND * metrics.scale_rms > 0
