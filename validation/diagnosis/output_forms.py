"""The right numbers in another form: axes permuted, order reversed, shifted, scaled, through another last operator.

Only arrays are looked at, nothing is run. A form must explain the error, and must differ from doing nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected, is_float
from ..record import Finding
from .residual import Explained, explained, failing, share_text

__all__ = ["explain"]

Array = npt.NDArray[Any]

_ENOUGH = 8  # elements: two numbers can always be fitted by a scale and an offset
_VISIBLE = 1e-3  # a scale or an offset below it is an epsilon or rounding, not a preprocessing
_MOST_AXES = 4
_PART = 0.25  # of the elements must differ, for a shift

Form = tuple[str, str, Array]  # kind, what the candidate's output is, the value it would have


def explain(got: list[Array], expected: list[Expected], names: Sequence[str]) -> Iterator[Finding]:
    """A finding for each failed output of which a form explains the error."""
    wrong = list(failing(got, expected))
    swapped = dict(_order(got, expected, names, wrong))
    for k, g, e in wrong:
        if k in swapped:
            yield swapped[k]
            continue
        found = _best(g, e)
        if found is not None:
            kind, text, share = found
            yield Finding(
                kind,
                "note",
                f"{names[k]} is the original's {text}: that explains {share_text(share)}",
                where=names[k],
                advice=_ADVICE[kind],
            )


_ADVICE = {
    "output order": "compare the order of the outputs in the file with that of the model, and name them",
    "layout": "compare the axes of the last nodes (Transpose, Reshape, axis=) with the model's",
    "scale": "compare constants, divisions and normalisation at the end of the file with the model's",
    "last operator": "compare the last nodes of the file with the model's: one activation more, less or other",
    "shift": "compare slices, paddings and windows: one is off by one along this axis",
    "sign": "compare the last subtraction or negation with the model's",
}


def _order(
    got: list[Array], expected: list[Expected], names: Sequence[str], wrong: list[tuple[int, Array, Expected]]
) -> Iterator[tuple[int, Finding]]:
    """Outputs that hold another output's values."""
    for k, g, _ in wrong:
        for j, other in enumerate(expected):
            if j == k or other.array.shape != g.shape or other.array.dtype != g.dtype:
                continue
            found = explained(g, expected[k], other.array)
            if found.convincing and found.exact and g.size:
                yield (
                    k,
                    Finding(
                        "output order",
                        "note",
                        f"{names[k]} has the values of the original's output {names[j]}: the order of the outputs differs",
                        where=names[k],
                        advice=_ADVICE["output order"],
                    ),
                )
                break


def _best(g: Array, e: Expected) -> tuple[str, str, Explained] | None:
    """The simplest form that explains all, else the one that explains most."""
    best: tuple[str, str, Explained] | None = None
    for kind, text, value in _forms(g, e.array):
        found = explained(g, e, value.astype(g.dtype) if value.dtype != g.dtype else value)
        if not found.convincing:
            continue
        if found.exact:
            return kind, text, found
        if best is None or found.share > best[2].share:
            best = kind, text, found
    return best


def _forms(g: Array, want: Array) -> Iterator[Form]:
    if g.size < 2 or g.size != want.size:
        return
    yield from _arranged(g, want)
    if g.shape != want.shape:
        return
    yield from _shifted(g, want)
    if is_float(want):
        wide = want.astype(np.float64)
        yield "sign", "with the other sign", -wide
        with np.errstate(all="ignore"):
            yield from _through_another_operator(wide)
            yield from _softmax_axes(g, wide)
            yield from _affine(g, wide)


def _arranged(g: Array, want: Array) -> Iterator[Form]:
    axes = range(want.ndim)
    if 2 <= want.ndim <= _MOST_AXES:
        for order in itertools.permutations(axes):
            if order == tuple(axes):
                continue
            moved = want.transpose(order)
            if moved.shape == g.shape:
                yield "layout", f"with its axes in the order {list(order)}", moved
            else:
                yield (
                    "layout",
                    f"with its axes in the order {list(order)}, read as {list(g.shape)} (a reshape where a transpose is meant)",
                    moved.reshape(g.shape),
                )
            if g.shape == want.shape and moved.shape != g.shape:
                back = want.reshape(moved.shape).transpose(np.argsort(order))
                yield "layout", f"read as {list(moved.shape)}, then its axes moved", back
    if g.shape != want.shape:
        yield "layout", f"read as {list(g.shape)}", want.reshape(g.shape)
        return
    for axis in axes:
        if want.shape[axis] > 1:
            yield "layout", f"reversed along axis {axis}", np.flip(want, axis)


def _shifted(g: Array, want: Array) -> Iterator[Form]:
    """Off by one along an axis; what was shifted in is taken from the candidate, it is nobody's."""
    if not _everywhere(g, want):
        return
    for axis in range(want.ndim):
        size = want.shape[axis]
        if size < 4:
            continue
        for step in (1, -1):
            moved = np.roll(want, step, axis)
            edge = [slice(None)] * want.ndim
            edge[axis] = slice(0, 1) if step == 1 else slice(size - 1, size)
            moved[tuple(edge)] = g[tuple(edge)]
            yield "shift", f"shifted by {step:+d} along axis {axis}", moved


def _everywhere(g: Array, want: Array) -> bool:
    """Whether a good part of the elements differ visibly: a step that moved by one changes a few, a shift nearly all."""
    with np.errstate(all="ignore"):
        a, b = g.astype(np.float64), want.astype(np.float64)
        size = (
            float(np.sqrt(np.nanmean(np.where(np.isfinite(b), b * b, np.nan))))
            if np.isfinite(b).any()
            else 0.0
        )
        return bool((~(np.abs(a - b) <= _VISIBLE * size)).mean() >= _PART)


def _through_another_operator(wide: Array) -> Iterator[Form]:
    positive = bool((wide >= 0).all())
    yield "last operator", "after one more sigmoid", _sigmoid(wide)
    yield "last operator", "after one more tanh", np.tanh(wide)
    if not positive:
        yield "last operator", "after one more ReLU", np.maximum(wide, 0)
    if float(wide.max()) < 80:
        yield "last operator", "after one more exp (or without its log)", np.exp(wide)
    if positive and bool((wide > 0).all()):
        yield "last operator", "after one more log (or without its exp)", np.log(wide)
        if bool((wide < 1).all()):
            yield "last operator", "without its sigmoid", np.log(wide / (1 - wide))
    if bool((np.abs(wide) < 1).all()):
        yield "last operator", "without its tanh", np.arctanh(wide)
    for axis in range(wide.ndim):
        if wide.shape[axis] > 1:
            powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
            yield (
                "last operator",
                f"after one more softmax along axis {axis}",
                powers / powers.sum(axis=axis, keepdims=True),
            )


def _softmax_axes(g: Array, wide: Array) -> Iterator[Form]:
    """The softmax of the same scores along another axis.

    Scores are known from a softmax up to a constant for each of its rows. So the logarithms of both sides differ by a
    constant for each row of the one plus a constant for each row of the other.
    """
    other_side = g.astype(np.float64)
    if wide.ndim < 2 or not bool((wide > 0).all() and (other_side > 0).all()):
        return
    gap = np.log(wide) - np.log(other_side)
    for axis, other in itertools.permutations(range(wide.ndim), 2):
        if min(wide.shape[axis], wide.shape[other]) < 3 or _normalised(other_side, axis):
            continue
        if _normalised(wide, axis) and _normalised(other_side, other):
            rows = gap.mean(axis=axis, keepdims=True) + gap.mean(axis=other, keepdims=True)
            fit = rows - gap.mean(axis=(axis, other), keepdims=True)
            yield (
                "last operator",
                f"with its softmax along axis {other} instead of {axis}",
                np.exp(np.log(wide) - fit),
            )


def _normalised(array: Array, axis: int) -> bool:
    return bool(np.allclose(array.sum(axis=axis), 1, atol=1e-2))


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, e, 1.0) / (1 + e)
    return result


def _affine(g: Array, wide: Array) -> Iterator[Form]:
    """The best scale, the best offset, then both; where they are large enough to be meant."""
    finite = np.isfinite(wide) & np.isfinite(g.astype(np.float64))
    x, y = wide[finite], g.astype(np.float64)[finite]
    if x.size < _ENOUGH:
        return
    size = float(np.sqrt(np.mean(x * x)))
    spread = float(np.var(x))
    if size == 0 or not math.isfinite(size) or spread < 1e-12 * size * size:
        return
    factor = float(np.dot(x, y) / np.dot(x, x))
    if abs(factor - 1) > _VISIBLE:
        yield "scale", f"times {factor:.6g}", factor * wide
    offset = float(np.mean(y - x))
    if abs(offset) > _VISIBLE * size:
        yield "scale", f"plus {offset:.6g}", wide + offset
    slope = float(np.mean((x - x.mean()) * (y - y.mean())) / spread)
    shift = float(y.mean() - slope * x.mean())
    if abs(slope - 1) > _VISIBLE and abs(shift) > _VISIBLE * size:
        yield "scale", f"times {slope:.6g} plus {shift:.6g}", slope * wide + shift
