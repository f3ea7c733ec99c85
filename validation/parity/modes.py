"""Outputs that are decisions: class labels, the best K, rows in any order, boxes after non-maximum suppression.

Where two candidates are closer together than the budget of the scores, either choice is right, and the cell says that
it was a tie. `--output NAME:MODE` chooses:

    values    element by element, the default
    argmax    the index of the largest along the last axis
    topk:K    the set of the K largest along the last axis; of an integer output, its first K as a set
    set       the rows along the first axis (of each item, where there are three axes) in any order
    boxes     as `set`, but rows may be missing on either side where their score is near the lowest one kept;
              boxes:C says that column C is the score, else it is column 4, or the last of fewer
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ...errors import UsageError
from .budget import Budget
from .difference import Metrics, Worst
from .matching import matched
from .metrics import measure, measure_exact

if TYPE_CHECKING:
    from ..original import Expected

__all__ = ["MODES", "allowed", "compared_as", "parse"]

Array = npt.NDArray[Any]
Judged = tuple[Literal["passed", "failed", "not checked"], str, "Metrics | None"]

MODES = ("values", "argmax", "topk:K", "set", "boxes", "boxes:COLUMN")


def parse(text: str) -> tuple[str, str]:
    """`NAME:MODE` as (output, mode). Output names may hold colons. Raises UsageError."""
    for cut in (i for i, c in enumerate(text) if c == ":"):
        name, mode = text[:cut], text[cut + 1 :]
        if name and _valid(mode):
            return name, mode
    raise UsageError(f"--output {text!r}: expected NAME:MODE, with MODE one of {', '.join(MODES)}")


def _valid(mode: str) -> bool:
    if mode in ("values", "argmax", "set", "boxes"):
        return True
    kind, _, number = mode.partition(":")
    if not (number.isascii() and number.isdigit()):
        return False
    return kind == "boxes" or (kind == "topk" and int(number) > 0)


def allowed(want: Array, budget: Budget) -> Array:
    """What each element may differ by, float64, in the shape of `want`."""
    size = np.abs(want.astype(np.float64))
    tolerance = budget.tolerance()
    if tolerance.rows is None:
        atol: Any = 0.0 if budget.exact else tolerance.atol
    else:
        rows = want.astype(np.float64).view(np.int64) >> 52 if want.shape else np.zeros((), np.int64)
        atol = tolerance.rows[rows & (tolerance.rows.size - 1)]
    found: Array = np.nan_to_num(atol + tolerance.rtol * size, nan=0.0, posinf=0.0)
    return found


def compared_as(mode: str, got: Array, want: Array, expected: Expected, budget: Budget) -> Judged:
    """The verdict, why, and the metrics where the elements correspond."""
    kind, _, number = mode.partition(":")
    if not _valid(mode) or kind == "values":
        raise UsageError(f"no way to compare an output as {mode!r}: expected one of {', '.join(MODES)}")
    floating = not budget.exact
    wide = expected.wide if floating and expected.wide is not None else want
    if kind in ("set", "boxes"):
        column = None if kind == "set" else int(number or 4)
        return _rows(kind, column, got, want, wide, budget)
    if not want.shape:
        raise UsageError(f"an output without axes cannot be compared as {mode!r}")
    metrics = (
        measure(got, want, expected.wide, tolerance=budget.tolerance())
        if floating
        else measure_exact(got, want)
    )
    count = 1 if kind == "argmax" else int(number)
    if floating and want.size and count >= want.shape[-1]:
        return (
            "not checked",
            f"{mode} of {want.shape[-1]} along the last axis is the same whatever the values are: nothing can differ",
            metrics,
        )
    if not want.size or metrics.identical:
        return "passed", "identical" if want.size else "equal (empty)", metrics
    if not floating:
        return *_integers(kind, count, got, want, expected.undecided), metrics
    if metrics.nan or metrics.inf:
        return "failed", f"{metrics.nan} NaN and {metrics.inf} Inf on one side only", metrics
    return *_chosen(count, got, want, wide, budget), metrics


def _integers(
    kind: str, count: int, got: Array, want: Array, other: Array | None
) -> tuple[Literal["passed", "failed"], str]:
    """Labels and indices: equal, or what the original gives in a wider dtype."""
    if kind == "topk":
        got, want, other = (None if a is None else np.sort(a[..., :count], -1) for a in (got, want, other))  # type: ignore[assignment]
    differ = got != want
    ties = int(differ.sum())
    if other is not None:
        differ &= got != other
    wrong = int(differ.sum())
    if wrong:
        return "failed", f"{wrong} of {want.size} decisions differ from the original's"
    return (
        "passed",
        f"{ties} of {want.size} are ties: the original decides so in a wider dtype" if ties else "",
    )


def _chosen(
    count: int, got: Array, want: Array, wide: Array, budget: Budget
) -> tuple[Literal["passed", "failed"], str]:
    """The indices of the `count` largest, as a set; two scores closer than both their budgets are a tie."""
    depth = want.shape[-1]
    count = min(count, depth)
    flat_got = got.astype(np.float64).reshape(-1, depth)
    flat_wide = np.where(np.isfinite(wide), wide, want).astype(np.float64).reshape(-1, depth)
    margin = allowed(flat_wide, budget)
    mine = _first(flat_got, count)
    ours = _first(flat_wide, count)
    ties = 0
    for row in np.flatnonzero((mine != ours).any(1)).tolist():
        lost, new = set(ours[row].tolist()), set(mine[row].tolist())
        lost, new = lost - new, new - lost
        if not lost:
            continue
        values, slack = flat_wide[row], margin[row]
        low = min(new, key=lambda i: (values[i] + slack[i], i))
        high = max(lost, key=lambda i: (values[i] - slack[i], -i))
        # NaN compares false: a NaN on both sides that moved is a difference
        if not values[low] + slack[low] >= values[high] - slack[high]:
            what = "the largest is" if count == 1 else f"among the {count} largest is"
            gap = values[high] - values[low]
            return "failed", (
                f"row {row}: {what} element {low}, the original's {high}, which is larger by {gap:.3g}; "
                f"{slack[low] + slack[high]:.2g} would be a tie"
            )
        ties += 1
    return "passed", f"{ties} of {len(flat_wide)} rows are ties within the budget" if ties else ""


def _first(scores: Array, count: int) -> Array:
    """The indices of the `count` largest in each row, sorted; NaN counts as the largest, as in torch."""
    order = np.argsort(-np.nan_to_num(scores, nan=math.inf, posinf=math.inf), axis=-1, kind="stable")
    # NaN before Inf
    if np.isnan(scores).any():
        keys = np.where(np.isnan(scores), 1, 0)
        order = np.lexsort(
            (np.broadcast_to(np.arange(scores.shape[1]), scores.shape), -scores, -keys), axis=-1
        )
    return np.sort(order[:, :count], -1)


def _rows(kind: str, column: int | None, got: Array, want: Array, wide: Array, budget: Budget) -> Judged:
    if got.ndim != want.ndim:
        return "failed", f"shape {list(got.shape)}, the original returns {list(want.shape)}", None
    if want.ndim not in (1, 2, 3):
        raise UsageError(
            f"an output of shape {list(want.shape)} has no rows: {kind} needs (N, ...) or (B, N, D)"
        )
    if got.shape[-1] != want.shape[-1] and want.ndim > 1:
        return "failed", f"rows of {got.shape[-1]} values, the original's have {want.shape[-1]}", None
    batches = want.shape[0] if want.ndim == 3 else 1
    if want.ndim == 3 and got.shape[0] != batches:
        return "failed", f"shape {list(got.shape)}, the original returns {list(want.shape)}", None
    matches = missing = extra = 0
    for item in range(batches):
        g, w, f = (
            a[item] if a.ndim == 3 else a.reshape(len(a), a.shape[1] if a.ndim > 1 else 1)
            for a in (got, want, wide)
        )
        f = np.where(np.isfinite(f), f, w) if f.dtype.kind not in "iub" else f
        slack = allowed(f, budget)
        pairs, lost, new = matched(g, f, slack)
        matches += len(pairs)
        missing, extra = missing + len(lost), extra + len(new)
        where = f"item {item}: " if batches > 1 else ""
        if column is None:
            if lost or new:
                return (
                    "failed",
                    f"{where}{_unmatched(lost, f)} have no equal row among the backend's",
                    _worst(g, f, lost, new),
                )
            continue
        at = min(column, f.shape[1] - 1)
        kept = [float(v) for v in f[:, at]]
        if not (lost or new):
            continue
        # where nothing matches, nothing tells that the rows are at the threshold
        lowest = min(kept) if pairs else -math.inf
        margin = float(slack[:, at].max(initial=0.0)) if pairs else 0.0
        far = [i for i in lost if float(f[i, at]) > lowest + 2 * margin]
        far_new = [i for i in new if float(g[i, at]) > lowest + 2 * margin]
        if far or far_new:
            text = (
                f"{where}{len(far)} boxes of the original are missing and {len(far_new)} are new, "
                f"with scores more than {2 * margin:.2g} above the lowest kept"
            )
            return "failed", text, _worst(g, f, far, far_new)
        if max(kept, default=0.0) <= lowest + 2 * margin or len(lost) + len(new) >= len(pairs):
            return (
                "not checked",
                f"{where}{len(lost)} boxes are missing and {len(new)} are new beside {len(pairs)} that match, and the scores "
                "do not tell them from those at the threshold",
                None,
            )
    if column is not None and (missing or extra):
        return (
            "passed",
            f"{matches} boxes match; {missing} missing and {extra} new ones are at the threshold",
            None,
        )
    return "passed", f"{matches} rows match, in any order", None


def _unmatched(lost: list[int], rows: Array) -> str:
    return f"{len(lost)} of {len(rows)} rows of the original"


def _worst(got: Array, want: Array, lost: list[int], new: list[int]) -> Metrics:
    """The first rows that have no counterpart, as what is to be shown: their first elements."""
    shown = [Worst((i,), math.nan, float(want[i].flat[0])) for i in lost[:3]]
    shown += [Worst((i,), float(got[i].flat[0]), math.nan) for i in new[:2]]
    return Metrics(count=int(want.size), identical=False, mismatches=len(lost) + len(new), worst=tuple(shown))
