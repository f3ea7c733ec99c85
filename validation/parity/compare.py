"""One output of a backend against what the original says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected
from ..record import Cell, Verdict
from .budget import Budget
from .float_types import is_float
from .judge import judge
from .metrics import Metrics, Worst, float_type, measure, measure_exact
from .modes import compared_as
from .running import WORST

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
    beyond = 0
    lost: Metrics | None = None
    if expected.apart and is_float(got) and is_float(want) and got.shape == want.shape:
        lost = _lost(got, expected)
        if got.dtype.itemsize > want.dtype.itemsize:
            got, beyond = _rounded(got, want.dtype)
        elif got.dtype != want.dtype:
            with np.errstate(all="ignore"):
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
    if lost is not None:  # in a type that has no such number, both would be Inf
        return cell("failed", _overflowed(lost, want.dtype), lost)
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
    if verdict == "not checked" and used.hopeless and expected.overflows:
        return cell(verdict, f"{expected.overflows}: in {want.dtype.name} it is no reference", metrics, used)
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


def _lost(got: Array, expected: Expected) -> Metrics | None:
    """The elements that are Inf or NaN where the original's, in a wider run or as it is, are finite; None where none is.

    What may round to the largest number of the type that is judged in, or to Inf, is none of them.
    """
    true = expected.array if expected.wide is None else expected.wide
    lost = ~np.isfinite(got) & np.isfinite(true)
    kind = float_type(expected.array.dtype if expected.wide is not None else got.dtype)
    if got.dtype.itemsize <= expected.array.dtype.itemsize and lost.any():
        with np.errstate(all="ignore"):
            gap = np.abs(np.abs(true.astype(np.float64)) - kind.largest)
            edge = np.isinf(got) & (np.sign(got) == np.sign(true))
        lost &= ~(edge & (gap <= expected.budget.atol + expected.budget.rtol * kind.largest))
    if not lost.any():
        return None
    places = [tuple(int(i) for i in at) for at in np.argwhere(lost)[:WORST]]
    nan = int(np.count_nonzero(lost & np.isnan(got)))
    count = int(np.count_nonzero(lost))
    return Metrics(
        count=got.size,
        compared=0,
        eps=kind.eps,
        mismatches=count,
        nan=nan,
        inf=count - nan,
        identical=False,
        worst=tuple(Worst(at, float(got[at]), float(true[at])) for at in places),
    )


def _overflowed(lost: Metrics, dtype: Any) -> str:
    first = lost.worst[0]
    largest = float_type(dtype).largest
    beyond = f", beyond {largest:,.6g}, the largest {dtype.name}" if abs(first.want) > largest else ""
    cure = "float32, or take bfloat16" if dtype.name == "float16" else "a wider type"
    return (
        f"{lost.mismatches} of {lost.count} elements Inf or NaN, and finite in the original: {first.got} at {list(first.index)}, "
        f"where it is {first.want:,.6g}{beyond}. In {dtype.name} something overflows, or becomes 0 and is divided by: keep that "
        f"part of the file in {cure}"
    )


def _rounded(array: Array, dtype: Any) -> tuple[Array, int]:
    """The array in a narrower dtype, and how many of its finite elements that has no number for."""
    with np.errstate(all="ignore"):
        narrow = array.astype(dtype)
        lost = int(np.count_nonzero(np.isinf(narrow) & np.isfinite(array)))
    return narrow, lost


def _beyond(metrics: Metrics) -> bool:
    return bool(metrics.nan or metrics.inf) or metrics.rms > BEYOND * metrics.scale_rms > 0
