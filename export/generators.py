"""The random generators outside torch, Python's and numpy's: seeded for a run, put back after it, watched."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from .user_code import is_library

__all__ = ["Drawn", "drawing_line", "generators_seeded"]


@dataclass(slots=True)
class Drawn:
    """Which generators a run drew from: `random`, `numpy.random`; filled in at its end."""

    names: tuple[str, ...] = ()


@contextlib.contextmanager
def generators_seeded(seed: int) -> Iterator[Drawn]:
    """Within, Python's and numpy's generators start from `seed`, torch's from 0; afterwards they are as before."""
    import numpy as np
    import torch

    drawn = Drawn()
    kept = _states()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            random.seed(seed)
            np.random.seed(seed)
            start = _states()
            yield drawn
            now = _states()
            drawn.names = tuple(n for n in start if not _same(start[n], now[n]))
    finally:
        random.setstate(kept["random"])
        np.random.set_state(kept["numpy.random"])


@contextlib.contextmanager
def drawing_line() -> Iterator[list[str]]:
    """Yields a list that holds, afterwards, the first line of the user's code that drew from one of them.

    Their states are compared at each line of the user's, which is slow: for one run of a model that is known to draw.
    """
    found: list[str] = []
    before: dict[str, Any] = {}
    last: list[tuple[str, int, str]] = []
    theirs: dict[str, bool] = {}

    def look() -> None:
        if not found and last and any(not _same(before[n], now) for n, now in _states().items()):
            file, line, scope = last[-1]
            found.append(f"{PurePath(file).name}:{line} in {scope}")

    def trace(frame: Any, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in theirs:
            theirs[file] = not is_library(file)
        if found or not theirs[file]:
            return None
        if not before:
            before.update(_states())
        look()
        code = frame.f_code
        last.append((file, frame.f_lineno, getattr(code, "co_qualname", code.co_name)))
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        yield found
    finally:
        sys.settrace(previous)
        look()


def _states() -> dict[str, Any]:
    import numpy as np

    return {"random": random.getstate(), "numpy.random": np.random.get_state()}


def _same(a: Any, b: Any) -> bool:
    """Python's state is a tuple of numbers, numpy's holds an array."""
    import numpy as np

    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
