"""The parts of a plugin library that are the same for all operators, compiled while the declarations are still being read."""

from __future__ import annotations

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
    """Compiles jobs one after another on a thread, where there is a processor for it.

    As a context: what is still running when the block ends is ended.

    Attributes:
        tasks: name and function that waits for the object, for `run_all`. The function raises what the compiler did.
    """

    def __init__(self, cache: Cache, jobs: list[CompileJob], workers: int | None) -> None:
        self._batch = Processes()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="deployops parts")
        self.tasks: list[tuple[str, Callable[[], Path]]]
        if (processor_count() if workers is None else workers) < 2:
            self.tasks = [(job.name, _later(cache, job)) for job in jobs]
        else:
            self.tasks = [(job.name, self._pool.submit(self._compile, cache, job).result) for job in jobs]

    def _compile(self, cache: Cache, job: CompileJob) -> Path:
        with self._batch.adopting_thread():
            return cache.compile(job)

    def __enter__(self) -> PartsAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._batch.stop()
        self._pool.shutdown(cancel_futures=True)


def _later(cache: Cache, job: CompileJob) -> Callable[[], Path]:
    return lambda: cache.compile(job)
