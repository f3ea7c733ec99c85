"""Measure what two arrays differ by. No judgement here: `budget.py` says what may be, `judge.py` whether it is.

Each array is read once, in chunks, in float64, so that memory stays bounded whatever the output's size. Parts of a fixed
size are spread over two threads (numpy releases the lock in its loops) and joined in their order, so the numbers are
the same whatever the number of threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from .difference import LADDER, QUANTILES, Binade, Metrics, Worst, required_atol
from .float_types import FloatType, float_type
from .running import CHUNK, ROWS, STEPS, WORST, Tolerance, Totals

__all__ = [
    "CHUNK",
    "Binade",
    "FloatType",
    "Metrics",
    "Tolerance",
    "Worst",
    "float_type",
    "measure",
    "measure_exact",
    "required_atol",
]

Array = npt.NDArray[Any]

PART = 64 * CHUNK  # elements that one thread adds up before the results are joined
THREADS = 2
SAMPLED = 1 << 13  # elements in which equal values are looked for
BINADES = 24  # powers of two below the largest that keep a row of their own
FEWEST = 8  # elements of a row; fewer join the row below
BUCKETS = 24  # of the report's histogram
LOWEST = {True: -1074, False: -200}  # the histogram's lowest power of two: of float64, of narrower types


def measure(
    got: Array,
    original: Array,
    reference: Array | None = None,
    *,
    rtol: float = 0.0,
    atol: float = math.inf,
    tolerance: Tolerance | None = None,
    threads: int = THREADS,
) -> Metrics:
    """Measure `got` against `reference`; NaN and Inf positions against `original`.

    Args:
        got: the candidate's output, any floating dtype.
        original: PyTorch's output in the deployed dtype, same shape. It decides where NaN and Inf belong: a
            wider run may stay finite where the deployed dtype overflows.
        reference: the same output from the wider run; `original` where there is none, and element by element
            where it is not finite.
        rtol, atol: an element mismatches when |got - want| > atol + rtol * |want|.
        tolerance: instead of them, from `Budget.tolerance`.
        threads: for outputs of more than 2 million elements. 1 while anything is being timed.
    """
    if got.shape != original.shape or (reference is not None and reference.shape != original.shape):
        raise ValueError(f"measure needs equal shapes, got {got.shape} and {original.shape}")
    kind = float_type(original.dtype)
    allowed = tolerance or Tolerance(rtol, atol)
    flat = [None if a is None else a.reshape(-1) for a in (got, original, reference)]
    base = 1023 + LOWEST[kind.eps < 1e-10 or got.dtype.itemsize > 4]

    def part(start: int) -> Totals:
        found = Totals(base)
        stop = min(start + PART, got.size)
        with np.errstate(all="ignore"):
            for at in range(start, stop, CHUNK):
                g, o, r = (None if a is None else a[at : min(at + CHUNK, stop)] for a in flat)
                assert g is not None
                assert o is not None
                found.add(at, g, o, r, kind, allowed)
        return found

    sums = Totals(base)
    for found in _in_order(part, range(0, got.size, PART), threads):
        sums.join(found)
    return _metrics(sums, kind, original.shape, got.size, _sample(flat[1] if reference is None else flat[2]))


def _in_order(part: Callable[[int], Totals], starts: range, threads: int) -> Iterator[Totals]:
    if len(starts) < 2 or threads < 2:
        yield from map(part, starts)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Totals]] = deque()
        for start in starts:
            waiting.append(pool.submit(part, start))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def measure_exact(got: Array, want: Array) -> Metrics:
    """Compare integers or booleans: every element must be equal; no difference is tolerated."""
    if got.shape != want.shape:
        raise ValueError(f"measure_exact needs equal shapes, got {got.shape} and {want.shape}")
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    mismatches, worst, first = 0, list[tuple[int, int]](), None
    for start in range(0, flat_got.size, CHUNK):
        a, b = flat_got[start : start + CHUNK], flat_want[start : start + CHUNK]
        (where,) = np.nonzero(a != b)
        mismatches += where.size
        if where.size:
            # |a - b| wraps in int64 and does not exist for uint64 - int64: max - min in Python integers
            pairs = zip(a[where].tolist(), b[where].tolist(), (where + start).tolist(), strict=True)
            worst += [(-abs(int(x) - int(y)), i) for x, y, i in pairs]
            worst = sorted(worst)
            first = first or min(worst, key=lambda w: w[1])  # shown too, however small: a reader looks there
            worst = worst[:WORST] if first in worst[:WORST] else [*worst[: WORST - 1], first]
    if not worst:
        return Metrics(count=flat_got.size, compared=flat_got.size, equal=flat_got.size)
    return Metrics(
        count=flat_got.size,
        compared=flat_got.size,
        max_abs=float(-worst[0][0]),
        mismatches=mismatches,
        identical=False,
        equal=flat_got.size - mismatches,
        worst=tuple(
            Worst(_unravel(i, want.shape), float(flat_got[i]), float(flat_want[i])) for _, i in worst
        ),
    )


def _metrics(
    sums: Totals, kind: FloatType, shape: tuple[int, ...], count: int, distinct: dict[int, tuple[int, int]]
) -> Metrics:
    n = max(sums.compared, 1)
    norms = math.sqrt(sums.got2) * math.sqrt(sums.want2)
    both_zero = sums.got2 == 0 and sums.want2 == 0
    noisy = sums.sum_err2 > 0 and sums.want2 > 0
    gain = sums.err_want / sums.want2 if sums.want2 else 0.0
    spread = max(sums.err_want2 - sums.err_want**2 / n, 0.0)
    return Metrics(
        count=count,
        compared=sums.compared,
        max_abs=sums.max_abs,
        mean_abs=sums.sum_abs / n,
        rms=math.sqrt(sums.sum_err2 / n),
        max_rel=sums.max_rel,
        max_ulp=sums.max_ulp,
        cosine=1.0 if both_zero else (sums.dot / norms if norms else 0.0),
        snr=10 * (math.log10(sums.want2) - math.log10(sums.sum_err2)) if noisy else None,
        scale=sums.scale,
        scale_rms=math.sqrt(sums.want2 / n),
        eps=kind.eps,
        gain=gain if math.isfinite(gain) else 0.0,
        gain_error=math.sqrt(spread) / sums.want2 if sums.want2 and math.isfinite(spread) else 0.0,
        excess=sums.excess,
        over=sums.over,
        mismatches=sums.mismatches,
        nan=sums.nan,
        inf=sums.inf,
        overflow=sums.overflow,
        overflow_gap=sums.overflow_gap,
        overflowed=sums.overflowed,
        identical=sums.identical,
        equal=sums.equal,
        nonzero=sums.nonzero,
        coarse=sums.coarse,
        quantiles=_quantiles(sums) if sums.compared else (),
        histogram=_histogram(sums),
        required=tuple(zip(LADDER, sums.required.tolist(), strict=True)) if sums.compared else (),
        binades=_binades(sums, distinct),
        worst=tuple(Worst(_unravel(i, shape), g, w) for _, i, g, w in sums.worst),
    )


def _quantiles(sums: Totals) -> tuple[float, ...]:
    """The middle of the histogram's bin in which the quantile lies; 0 among the elements without error."""
    below = np.cumsum(sums.histogram)
    zeros = sums.equal
    found = []
    for q in QUANTILES:
        rank = min(max(math.ceil(q * sums.compared), 1), sums.compared)
        if rank <= zeros:
            found.append(0.0)
            continue
        at = int(np.searchsorted(below, rank))
        power, step = divmod(at, 1 << STEPS)
        middle = (1 + (step + 0.5) / (1 << STEPS)) * 2.0 ** (power + sums.base - 1023)
        found.append(min(middle, sums.max_abs))
    return tuple(found)


def _histogram(sums: Totals) -> tuple[tuple[int, int], ...]:
    """By powers of two, the elements without error left out."""
    fine = sums.histogram.copy()
    fine[0] -= sums.equal
    fine = np.concatenate([fine, np.zeros(-fine.size % (1 << STEPS), np.int64)])
    counts = fine.reshape(-1, 1 << STEPS).sum(1)
    (used,) = np.nonzero(counts)
    if not used.size:
        return ()
    top = int(used[-1])
    low = max(int(used[0]), top - BUCKETS + 1)
    pairs = [(k + sums.base - 1023, int(counts[k])) for k in range(low, top + 1)]
    pairs[0] = (pairs[0][0], int(counts[: low + 1].sum()))
    return tuple(pairs)


def _binades(sums: Totals, distinct: dict[int, tuple[int, int]]) -> tuple[Binade, ...]:
    half = ROWS // 2
    (used,) = np.nonzero(sums.counts)
    if not used.size:
        return ()
    low = int(max(used % half)) - BINADES + 1
    found: list[Binade] = []
    for sign, rows in ((1, used[used < half]), (-1, used[used >= half])):
        members: list[int] = []
        groups: list[list[int]] = []
        for row in rows[::-1].tolist():
            members.append(row)
            if row % half > low and int(sums.counts[members].sum()) >= FEWEST:
                groups.append(members)
                members = []
        if members and groups and int(sums.counts[members].sum()) < FEWEST:
            groups[-1] += members
        elif members:
            groups.append(members)
        found += [_binade(sign, g, max(g[-1] % half, low), sums, distinct) for g in groups]
    return tuple(found)


def _binade(
    sign: int, members: list[int], power: int, sums: Totals, distinct: dict[int, tuple[int, int]]
) -> Binade:
    counts = sums.counts[members]
    count = int(counts.sum())
    seen = sum(distinct.get(m, (0, 0))[0] for m in members)
    different = sum(distinct.get(m, (0, 0))[1] for m in members)
    powers = np.array([m % (ROWS // 2) for m in members])
    sizes = np.where(powers > 0, np.ldexp(1.5, np.clip(powers, 500, 1500) - 1023), 0.0)
    return Binade(
        sign=sign,
        exponent=power - 1023,
        size=math.sqrt(float((counts * sizes**2).sum()) / count),
        count=count,
        # repeated values in the sample: their number is all that is known to differ
        distinct=count if different >= 0.9 * seen else different,
        excess=max(float(sums.excesses[members].max()), 0.0),
        rms=math.sqrt(float(sums.squares[members].sum()) / count),
        bias=sign * float(sums.errors[members].sum()) / count,
        more=int(sums.more[members].sum()),
        less=int(sums.less[members].sum()),
    )


def _sample(flat: Array | None) -> dict[int, tuple[int, int]]:
    """For each row, of a sample of elements: how many there are, and how many differ."""
    assert flat is not None
    if not flat.size:
        return {}
    step = max(flat.size // SAMPLED, 1)
    step += 1 - step % 2  # odd, so that it does not follow one column of a usual width
    values, counts = np.unique(flat[::step].astype(np.float64), return_counts=True)
    values, counts = values[np.isfinite(values)], counts[np.isfinite(values)]
    rows = (values.view(np.int64) >> 52) & (ROWS - 1)
    seen = np.bincount(rows, weights=counts, minlength=1)
    different = np.bincount(rows, minlength=1)
    return {int(r): (int(seen[r]), int(different[r])) for r in np.unique(rows)}


def _unravel(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
