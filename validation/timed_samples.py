"""Which samples are timed: those whose shapes differ, and of an operator alone the largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .expectations import Expectation

__all__ = ["largest", "of_each_shape"]

# Elements of an operator's sample, in and out, below which a call's overhead is most of its time.
_TELLING = 16_384


def of_each_shape(expectations: Sequence[Expectation], most: int) -> list[Expectation]:
    """The first of each set of input shapes."""
    found: dict[Any, Expectation] = {}
    for expectation in expectations:
        shapes = tuple((n, tuple(getattr(v, "shape", ()))) for n, v in expectation.inputs)
        found.setdefault(shapes, expectation)
    return list(found.values())[:most]


def largest(expectations: Sequence[Expectation], subject: str) -> tuple[list[Expectation], list[str]]:
    """The sample with the most elements, and what to say of it; none where all are empty."""

    def elements(expectation: Expectation) -> int:
        inputs = sum(getattr(v, "numel", lambda: 1)() for _, v in expectation.inputs)
        return int(inputs) + sum(o.array.size for o in expectation.outputs)

    full = [e for e in expectations if any(o.array.size for o in e.outputs)]
    if not full:
        return [], [f"{subject} is not timed where all of its samples are empty"] if expectations else []
    chosen = max(full, key=elements)
    count = elements(chosen)
    if count >= _TELLING:
        return [chosen], []
    return [chosen], [
        f"{subject}: the largest declared sample that is timed has {count} elements, so that its time is mostly the "
        "overhead of a call: declare a larger one (`@operator.samples`)"
    ]
