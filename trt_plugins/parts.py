"""What of a plugin library is compiled while the declarations are still being read.

The parts that are the same for all operators from the beginning, the largest kernel as soon as its source is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
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
        self._alone = (processor_count() if workers is None else workers) < 2
        self._batches = Processes(), Processes()
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix="deployops ahead") for _ in self._batches]
        self.tasks: list[tuple[str, Callable[[], Path]]] = []
        for job in jobs:
            work = functools.partial(cache.compile, job)
            self.tasks.append((job.name, work if self._alone else self._submit(0, work).result))

    def begin(self, work: Callable[[], Path]) -> Callable[[], Path]:
        """Begin beside the parts; returns the function that waits for it, and raises what it raised.

        Returns when the program runs, or is not needed: until then the thread would have to share Python with the caller.
        """
        if self._alone:
            return work
        future = self._submit(1, work)
        begun = self._batches[1].begun
        future.add_done_callback(lambda _: begun.set())
        begun.wait()
        return future.result

    def _submit(self, number: int, work: Callable[[], Path]) -> Future[Path]:
        def in_batch() -> Path:
            with self._batches[number].adopting_thread():
                return work()

        return self._pools[number].submit(in_batch)

    def __enter__(self) -> PartsAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for batch in self._batches:
            batch.stop()
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)
