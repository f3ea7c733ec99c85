"""PyTorch's own error on a sample: the original in the deployed dtype against itself in a wider one.

Twice: a first look, cheap, on which a sound runtime usually passes; and, where a backend fails on it, a second one that
knows the error from more runs and from the least accurate sound way of computing the same (`rounded`). A fault fails on
both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from .backends.torch import nudged
from .parity import budget as parity
from .parity.budget import Budget
from .parity.groups import either, pooled
from .parity.metrics import Metrics, measure

__all__ = ["Again", "OwnError"]

Array = npt.NDArray[Any]
Run = Callable[[Any, Any], "list[Array]"]

# The first look: at least this many elements, by repeating the sample with its floating inputs nudged by an ULP or two;
# more repetitions than this are not worth their time.
ENOUGH_ELEMENTS = 64
MOST_REPETITIONS = 8
# The second look: runs besides the first; one where an output has so many elements that a run shows what errors there are.
MORE_RUNS = 4
MANY_ELEMENTS = 1 << 20


class OwnError:
    """The errors of one sample's outputs, by output; an empty `Metrics` where an output is not floating.

    `narrow`, `wide` and `stepwise` run the original: as it is, in the wider dtype, every step rounded. `reverse`: the
    "wider" run is float32, because nothing is wider than float64, and its error is 2**29 times larger.
    """

    def __init__(
        self,
        call: tuple[Any, Any],
        outputs: tuple[list[Array], list[Array]],
        runs: tuple[Run, Run, Run | None],
        floats: Sequence[int],
        seed: int,
        reverse: bool,
    ) -> None:
        self.args, self.kwargs = call
        self.narrow, self.wide, self.stepwise = runs
        self.floats, self.seed, self.reverse = floats, seed, reverse
        # no array is kept: the second look may come after those of many samples have gone to the disk
        self._kinds = [(a.shape, a.dtype) for a in outputs[0]]
        self._plain = {i: [_own(outputs[0][i], outputs[1][i])] for i in floats}
        self._steps: dict[int, list[Metrics]] = {i: [] for i in floats}
        self._turns = 0

    def first(self) -> list[Metrics]:
        sizes = [n for i in self.floats if (n := math.prod(self._kinds[i][0]))]
        self._repeat(min(MOST_REPETITIONS, -(-ENOUGH_ELEMENTS // min(sizes)) - 1) if sizes else 0)
        return self._joined(longer=False)

    def second(self) -> list[Metrics]:
        """Raises nothing: what does not run adds nothing."""
        if self.stepwise is not None:
            with suppress(Exception):  # it ran before; should it not now, the nudged runs say what they can
                self._step(self.args, self.kwargs, self.wide(self.args, self.kwargs))
        many = all(math.prod(self._kinds[i][0]) >= MANY_ELEMENTS for i in self.floats)
        runs = 1 if many else max(MORE_RUNS, self._turns, MOST_REPETITIONS if self._turns else 0)
        self._repeat(runs, stepwise=True)
        return self._joined(longer=True)

    def _joined(self, longer: bool) -> list[Metrics]:
        found = [Metrics(0) for _ in self._kinds]
        for i in self.floats:
            factor = 2.0**-29 if self.reverse and self._kinds[i][1] == np.float64 else 1.0
            found[i] = pooled(self._plain[i], factor)
            if longer:
                # the worst of the runs: errors that many elements share differ from run to run
                for run in (*self._plain[i], *self._steps[i]):
                    found[i] = either(found[i], pooled([run], factor))
        return found

    def _repeat(self, turns: int, stepwise: bool = False) -> None:
        for _ in range(turns):
            moved = _moved(self.args, self.kwargs, self.seed + self._turns)
            if moved is None:
                return
            self._turns += 1
            args, kwargs = moved
            try:
                p, w = self.narrow(args, kwargs), self.wide(args, kwargs)
            except Exception:  # a value that must be exact was nudged: do without
                return
            if [x.shape for x in p] != [shape for shape, _ in self._kinds] or len(w) != len(p):
                return
            for i in self.floats:
                if w[i].shape == p[i].shape:
                    self._plain[i].append(_own(p[i], w[i]))
            if stepwise:
                self._step(args, kwargs, w)

    def _step(self, args: Any, kwargs: Any, wide: list[Array]) -> None:
        if self.stepwise is None:
            return
        try:
            p = self.stepwise(args, kwargs)
        except Exception:  # a decomposition that does not run: then nothing is known from it
            return
        for i in self.floats:
            if i < len(p) and p[i].shape == wide[i].shape and p[i].dtype == self._kinds[i][1]:
                self._steps[i].append(_own(p[i], wide[i]))


class Again:
    """The budget of one output after the second look, made when first asked for. It does not travel to other processes:
    there it is None."""

    def __init__(self, look: Callable[[], list[Budget]], output: int) -> None:
        self._look, self._output = look, output

    def __call__(self) -> Budget:
        return self._look()[self._output]

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()


def _nothing() -> None:
    return None


def _moved(args: Any, kwargs: Any, seed: int) -> tuple[Any, Any] | None:
    """`nudged`; zeros, which a relative nudge leaves as they are, become about an ULP of one where all are zero."""
    import torch
    from torch.utils import _pytree

    generator = torch.Generator().manual_seed(seed)

    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize < 2:
            return value
        if value.any():
            return value
        noise = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 4 - 2
        return (noise * torch.finfo(value.dtype).eps).to(value.dtype)

    moved = nudged(args, kwargs, seed)
    return None if moved is None else _pytree.tree_map(move, moved)


def _own(p: Array, w: Array) -> Metrics:
    return measure(p, p, w, rtol=parity.own_rtol(p.dtype))
