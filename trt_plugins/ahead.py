"""What of a plugin library is compiled while the declarations are still being read.

What is the same for all operators from the beginning, the largest kernel as soon as its source is known.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from ..native.jobs import processor_count
from ..native.processes import Processes

__all__ = ["Ahead"]

_Work = Callable[[], Path]


class Ahead:
    """Begins work beside its caller, where there are processors for it.

    As a context: what is still running when the block ends is ended.
    """

    def __init__(self, workers: int | None) -> None:
        self._alone = (processor_count() if workers is None else workers) < 2
        self._batches: list[Processes] = []
        self._pool = ThreadPoolExecutor(thread_name_prefix="deployops ahead")

    def begin(self, work: _Work) -> _Work:
        """Begin it; returns the function that waits for it, and raises what it raised.

        Returns when a program runs, or none is needed: until then the thread would have to share Python with the caller.
        """
        if self._alone:
            return work
        batch = Processes()
        self._batches.append(batch)

        def in_batch() -> Path:
            with batch.adopting_thread():
                return work()

        future = self._pool.submit(in_batch)
        future.add_done_callback(lambda _: batch.begun.set())
        batch.begun.wait()
        return future.result

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for batch in self._batches:
            batch.stop()
        self._pool.shutdown(cancel_futures=True)
