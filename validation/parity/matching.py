"""Rows of two tables that belong together, whatever their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["matched"]

Array = npt.NDArray[Any]


def matched(got: Array, want: Array, slack: Array) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Pair each row of `want` with the nearest unused row of `got` in which every element is within `slack`.

    Args:
        got: (M, D).
        want, slack: (N, D). Integers are compared exactly, whatever their slack; NaN belongs to NaN.

    Returns:
        (want row, got row) pairs, the rows of `want` without a partner, those of `got`.

    Rows are found by the column that spreads most, so the work grows with N log N where values differ.
    """
    exact = want.dtype.kind in "iub"
    if exact:
        return _equal(got, want)
    g, w = got.astype(np.float64), want.astype(np.float64)
    if not w.size or not g.size:
        count = min(len(g), len(w)) if w.shape[1] == 0 else 0
        return [(i, i) for i in range(count)], list(range(count, len(w))), list(range(count, len(g)))
    finite = np.where(np.isfinite(w), w, 0.0)
    spread = finite.std(0) / np.maximum(slack.max(0), 1e-300)
    column = int(np.argmax(spread))
    keys = np.nan_to_num(g[:, column], nan=np.inf)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    used = np.zeros(len(g), bool)
    pairs: list[tuple[int, int]] = []
    lost: list[int] = []
    for i in range(len(w)):
        key = np.nan_to_num(w[i, column], nan=np.inf)
        first = int(np.searchsorted(ordered, key - slack[i, column], "left"))
        last = int(np.searchsorted(ordered, key + slack[i, column], "right"))
        near = order[first:last]
        near = near[~used[near]]
        if near.size:
            rows = g[near]
            with np.errstate(invalid="ignore"):
                gaps = np.abs(rows - w[i])
                fits = (gaps <= slack[i]) | (rows == w[i]) | (np.isnan(rows) & np.isnan(w[i]))
            near, gaps = near[fits.all(1)], np.nan_to_num(gaps[fits.all(1)], nan=0.0, posinf=0.0)
        if near.size:
            best = int(near[np.argmin(gaps.max(1))])
            used[best] = True
            pairs.append((i, best))
        else:
            lost.append(i)
    return pairs, lost, np.flatnonzero(~used).tolist()


def _equal(got: Array, want: Array) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    places: dict[tuple[int, ...], list[int]] = {}
    for i in range(len(got) - 1, -1, -1):
        places.setdefault(tuple(got[i].tolist()), []).append(i)
    pairs, lost = [], []
    for i, row in enumerate(want.tolist()):
        where = places.get(tuple(row))
        if where:
            pairs.append((i, where.pop()))
        else:
            lost.append(i)
    return pairs, lost, sorted(i for rest in places.values() for i in rest)
