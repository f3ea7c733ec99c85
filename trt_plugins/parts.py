"""What of a plugin library is compiled while the declarations are still being read.

The parts that are the same for all operators from the beginning, the largest kernel as soon as its source is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from ..native.compile_job import CompileJob
from ..native.jobs import processor_count
from ..native.object_cache import Cache
from ..native.processes import Processes

__all__ = ["PartsAhead"]


class PartsAhead:
    """Compiles jobs one after another on a thread, and one more beside them, where there are processors for it.

    As a context: what is still running when the block ends is ended.

    Attributes:
        tasks: name and function that waits for the object, for `run_all`. The function raises what the compiler did.
    """

    def __init__(self, cache: Cache, jobs: list[CompileJob], workers: int | None) -> None:
        self._batch = Processes()
        self._alone = (processor_count() if workers is None else workers) < 2
        self._parts = ThreadPoolExecutor(1, thread_name_prefix="deployops parts")
        self._other = ThreadPoolExecutor(1, thread_name_prefix="deployops kernel")
        self.tasks = [
            (job.name, self._begun(self._parts, functools.partial(cache.compile, job))) for job in jobs
        ]

    def begin(self, work: Callable[[], Path]) -> Callable[[], Path]:
        """Begin beside the parts; returns the function that waits for it, and raises what it raised."""
        return self._begun(self._other, work)

    def _begun(self, pool: ThreadPoolExecutor, work: Callable[[], Path]) -> Callable[[], Path]:
        return work if self._alone else pool.submit(self._in_batch, work).result

    def _in_batch(self, work: Callable[[], Path]) -> Path:
        with self._batch.adopting_thread():
            return work()

    def __enter__(self) -> PartsAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._batch.stop()
        for pool in (self._parts, self._other):
            pool.shutdown(cancel_futures=True)
