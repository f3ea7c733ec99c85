"""Pause Python's cycle collector while a large graph is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """No collection inside the block.

    A graph is many small objects, all alive: each pass of the collector walks them for nothing, which takes
    a fifth of the time of tracing or translating a deep model.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
