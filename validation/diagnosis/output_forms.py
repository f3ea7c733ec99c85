"""The right numbers in another form: axes permuted, order reversed, shifted, scaled, through another last operator.

Only arrays are looked at, nothing is run. A form is undone on the candidate's output, which must then be within its budget,
on every sample; the simplest one that repairs it is named, and none that leaves a rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..original import Expected
from ..parity.float_types import is_float
from ..record import Finding
from .last_operators import Holds, last_operators
from .residual import (
    Elsewhere,
    Wrong,
    explains,
    failing,
    nowhere,
    promising,
    repairs,
)

__all__ = ["Form", "explain", "form_of"]

Array = npt.NDArray[Any]

_ENOUGH = 8  # elements: two numbers can always be fitted by a scale and an offset
_VISIBLE = 1e-3  # a scale or an offset below it is an epsilon or rounding, not a preprocessing
_MOST_AXES = 4
_PART = 0.25  # of the elements must differ, for a shift

Undo = Callable[[Array, Array], Array]  # of the candidate's output and the original's, as the latter would be


@dataclass(frozen=True, slots=True)
class Form:
    """`kind` and `text` of the finding; `holds` says of one output whether the form explains it within its budget: on the
    sample that failed, or, with `everywhere`, on another one, where it may be that nothing can be judged."""

    kind: str
    text: str
    holds: Holds


def explain(
    got: list[Array],
    expected: list[Expected],
    names: Sequence[str],
    elsewhere: Elsewhere = nowhere,
    wrong: Sequence[Wrong] | None = None,
) -> Iterator[Finding]:
    """A finding for each failed output of which a form explains the error on every sample."""
    wrong = list(failing(got, expected)) if wrong is None else wrong
    swapped = dict(_order(got, expected, names, wrong, elsewhere))
    for k, g, e in wrong:
        if k in swapped:
            yield swapped[k]
            continue
        found = form_of(k, g, e, elsewhere)
        if found is not None:
            yield Finding(
                found.kind,
                "note",
                f"{names[k]} is the original's {found.text}: that explains all of the difference",
                where=names[k],
                advice=_ADVICE[found.kind],
            )


def form_of(k: int, g: Array, e: Expected, elsewhere: Elsewhere = nowhere) -> Form | None:
    """The simplest form that repairs output `k` on every sample."""
    for form in _forms(g, e.array):
        if form.holds(g, e, False) and all(
            form.holds(others[k], wanted[k], True) for _, others, wanted in elsewhere()
        ):
            return form
    return None


_ADVICE = {
    "output order": "compare the order of the outputs in the file with that of the model, and name them",
    "layout": "compare the axes of the last nodes (Transpose, Reshape, axis=) with the model's",
    "scale": "compare constants, divisions and normalisation at the end of the file with the model's",
    "last operator": "compare the last nodes of the file with the model's: one activation more, less or other",
    "shift": "compare slices, paddings and windows: one is off by one along this axis",
    "sign": "compare the last subtraction or negation with the model's",
}


def _order(
    got: list[Array],
    expected: list[Expected],
    names: Sequence[str],
    wrong: Sequence[Wrong],
    elsewhere: Elsewhere,
) -> Iterator[tuple[int, Finding]]:
    """Outputs that hold another output's values."""
    for k, g, _ in wrong:
        for j, other in enumerate(expected):
            if j == k or other.array.shape != g.shape or other.array.dtype != g.dtype:
                continue
            if (
                g.size
                and explains(g, expected[k], other.array)
                and all(explains(o[k], w[k], w[j].array, True) for _, o, w in elsewhere())
            ):
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


def _forms(g: Array, want: Array) -> Iterator[Form]:
    """The simplest first: one number, then the order of the elements, then two numbers, then another operator."""
    if g.size < 2 or g.size != want.size:
        return
    floating = is_float(want) and g.shape == want.shape
    if floating:
        yield _undone("sign", "with the other sign", lambda g, _: -g)
        yield from _one_number(g, want)
    yield from _arranged(g, want)
    if g.shape != want.shape:
        return
    yield from _shifted(g, want)
    if floating:
        yield from _two_numbers(g, want)
        for text, holds in last_operators(want.ndim):
            yield Form("last operator", text, holds)


def _undone(kind: str, text: str, undo: Undo) -> Form:
    def holds(g: Array, e: Expected, everywhere: bool) -> bool:
        try:
            with np.errstate(all="ignore"):
                undone = undo(g, e.array)
        except ValueError:  # another rank, or a size that the form cannot have
            return False
        if not everywhere and not promising(undone, g, e.array):
            return False
        return repairs(undone, e, everywhere)

    return Form(kind, text, holds)


def _arranged(g: Array, want: Array) -> Iterator[Form]:
    axes = range(want.ndim)
    if 2 <= want.ndim <= _MOST_AXES:
        for order in itertools.permutations(axes):
            if order == tuple(axes):
                continue
            shape = tuple(want.shape[a] for a in order)
            text = f"with its axes in the order {list(order)}"
            if shape != g.shape:
                text += f", read as {list(g.shape)} (a reshape where a transpose is meant)"
            yield _undone("layout", text, partial(_transposed_back, order))
            if g.shape == want.shape and shape != g.shape:
                yield _undone(
                    "layout", f"read as {list(shape)}, then its axes moved", partial(_read_back, order)
                )
    if g.shape != want.shape:
        yield _undone("layout", f"read as {list(g.shape)}", lambda g, want: g.reshape(want.shape))
        return
    for axis in axes:
        if want.shape[axis] > 1:
            yield _undone("layout", f"reversed along axis {axis}", partial(_flipped, axis))


def _transposed_back(order: Sequence[int], g: Array, want: Array) -> Array:
    shape = [want.shape[a] for a in order]
    back: Array = g.reshape(shape).transpose(np.argsort(order))
    return back


def _read_back(order: Sequence[int], g: Array, want: Array) -> Array:
    back: Array = g.transpose(order).reshape(want.shape)
    return back


def _flipped(axis: int, g: Array, want: Array) -> Array:
    return np.flip(g, axis)


def _shifted(g: Array, want: Array) -> Iterator[Form]:
    """Off by one along an axis; what was shifted in is nobody's, and what was shifted out is not in the candidate."""
    if not _everywhere(g, want):
        return
    for axis in range(want.ndim):
        if want.shape[axis] >= 4:
            for step in (1, -1):
                yield _undone(
                    "shift", f"shifted by {step:+d} along axis {axis}", partial(_moved_back, axis, step)
                )


def _moved_back(axis: int, step: int, g: Array, want: Array) -> Array:
    moved = np.roll(g, -step, axis)
    edge = [slice(None)] * want.ndim
    edge[axis] = slice(-1, None) if step == 1 else slice(0, 1)
    moved[tuple(edge)] = want[tuple(edge)]
    return moved


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


def _one_number(g: Array, want: Array) -> Iterator[Form]:
    """The best scale, then the best offset, where they are large enough to be meant."""
    found = _finite(g, want)
    if found is None:
        return
    x, y, size = found
    factor = float(np.dot(x, y) / np.dot(x, x))
    if abs(factor - 1) > _VISIBLE and factor:
        yield _undone("scale", f"times {factor:.6g}", partial(_unscaled, factor, 0.0))
    offset = float(np.mean(y - x))
    if abs(offset) > _VISIBLE * size:
        yield _undone("scale", f"plus {offset:.6g}", partial(_unscaled, 1.0, offset))


def _two_numbers(g: Array, want: Array) -> Iterator[Form]:
    found = _finite(g, want)
    if found is None:
        return
    x, y, size = found
    spread = float(np.var(x))
    if spread < 1e-12 * size * size:
        return
    slope = float(np.mean((x - x.mean()) * (y - y.mean())) / spread)
    shift = float(y.mean() - slope * x.mean())
    if abs(slope - 1) > _VISIBLE and abs(shift) > _VISIBLE * size and slope:
        yield _undone("scale", f"times {slope:.6g} plus {shift:.6g}", partial(_unscaled, slope, shift))


def _unscaled(factor: float, offset: float, g: Array, want: Array) -> Array:
    result: Array = (g.astype(np.float64) - offset) / factor
    return result


def _finite(g: Array, want: Array) -> tuple[Array, Array, float] | None:
    """The elements to fit numbers to, and the root mean square of the original's; None where there are too few."""
    x, y = want.astype(np.float64).reshape(-1), g.astype(np.float64).reshape(-1)
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    if x.size < _ENOUGH:
        return None
    with np.errstate(all="ignore"):
        size = float(np.sqrt(np.mean(x * x)))
    return (x, y, size) if 0 < size < math.inf else None
