"""How long each step of an export took, told as it goes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

__all__ = ["Clock"]


class Clock:
    """``with clock("trace"): ...`` adds to `seconds["trace"]` and announces the step."""

    def __init__(self, announce: Callable[[str], None] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._announce = announce

    @contextlib.contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        if self._announce is not None:
            self._announce(step)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - start
