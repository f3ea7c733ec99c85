"""Many jobs at once: threads that wait for programs. The first failure ends the rest."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..errors import DeployOpsError
from .processes import Processes, Stopped

__all__ = ["JobsError", "processor_count", "run_all"]

T = TypeVar("T")


class JobsError(DeployOpsError):
    """Several jobs failed. `failures`: the error of each, by its name."""

    def __init__(self, failures: Sequence[tuple[str, DeployOpsError]]) -> None:
        self.failures = dict(failures)
        self.exit_code = max(error.exit_code for error in self.failures.values())
        # One mistake in a kernel fails at every level alike, and is told once.
        names: dict[str, list[str]] = {}
        for name, error in failures:
            names.setdefault(str(error), []).append(name)
        super().__init__("\n\n".join(f"{', '.join(who)}: {text}" for text, who in names.items()))


def processor_count() -> int:
    """How many programs to run at once: the processors that this process may use, by affinity and by container quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return count


def run_all(
    tasks: Sequence[tuple[str, Callable[[], T]]],
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[T]:
    """Run tasks on threads and return their results, in the order of the tasks.

    A task runs its programs through `processes.run`. When one fails, or on Ctrl-C, these programs are ended and
    tasks that have not begun are left out.

    Args:
        tasks: name and function; started in their order.
        workers: how many at once; None: `processor_count()`.
        progress: called in this thread as tasks end well: how many have, of how many, and which did.

    Raises:
        DeployOpsError: the failure, where one task failed, or several alike; JobsError with all of them, where they differ.
        Exception: anything else that a task raised is a fault of ours, and comes as it is.
    """
    batch = Processes()
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    for index in range(len(tasks)):
        waiting.put(index)

    def work() -> None:
        with batch.adopting_thread():
            while not batch.stopped:
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    ended.put((index, tasks[index][1](), None))
                except BaseException as error:
                    ended.put((index, None, error))
                    batch.stop()

    count = min(len(tasks), processor_count() if workers is None else max(1, workers))
    # Daemons: if a second Ctrl-C cuts the waiting short, they do not hold up the end of the process.
    threads = [threading.Thread(target=work, name=f"deployops job {k}", daemon=True) for k in range(count)]
    results: dict[int, T] = {}
    failures: list[tuple[int, BaseException]] = []

    def collect(index: int, result: T | None, error: BaseException | None) -> None:
        if error is None:
            results[index] = result  # type: ignore[assignment]
        elif not isinstance(error, Stopped):
            failures.append((index, error))

    try:
        for thread in threads:
            thread.start()
        while len(results) < len(tasks) and not failures:
            collect(*(got := ended.get()))
            if got[2] is None and progress is not None:
                progress(len(results), len(tasks), tasks[got[0]][0])
    finally:
        batch.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    while not ended.empty():
        collect(*ended.get())
    if failures:
        _raise([(tasks[index][0], error) for index, error in sorted(failures, key=lambda f: f[0])])
    return [results[index] for index in range(len(tasks))]


def _raise(failures: list[tuple[str, BaseException]]) -> None:
    known = [(name, error) for name, error in failures if isinstance(error, DeployOpsError)]
    for _, error in failures:
        if not isinstance(error, DeployOpsError):
            raise error
    if len({(type(error), str(error)) for _, error in known}) == 1:  # a kernel fails alike for each processor
        raise known[0][1]
    raise JobsError(known)
