"""Launchers called on torch tensors, in processes of their own, their kernels interpreted."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from ...errors import NotCheckedError
from ...native.jobs import processor_count
from ..emulation.calls import Call
from ..emulation.child_process import ChildEnded, ChildProcess
from ..emulation.faults import KernelFault
from .build import Interpretable
from .exchange import Answer, Request

__all__ = ["Interpreters"]

TIME_LIMIT = 300.0  # seconds for one call


class _Interpreter:
    """A process that interprets, started when it is needed and again after it has ended."""

    def __init__(self, time_limit: float) -> None:
        # each process keeps one processor busy
        variables = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._child = ChildProcess(
            f"{__package__}.worker", time_limit=time_limit, environment=lambda: variables
        )

    def ask(self, request: Request) -> Answer:
        """Raises KernelFault where the process ends, or does not answer in time."""
        try:
            answer = self._child.ask(request)
        except TimeoutError:
            raise KernelFault(
                f"it was not interpreted to its end within {self._child.time_limit:g} s"
            ) from None
        except ChildEnded as e:
            raise KernelFault(_ending(e)) from None
        assert isinstance(answer, Answer)
        return answer

    def close(self) -> None:
        self._child.close()


def _ending(end: ChildEnded) -> str:
    if end.code == -11:
        return "the launcher touches memory that is not its own, as that of the device"
    lines = end.said.strip().splitlines()
    return f"the process of the launcher ended with status {end.code}: {lines[-1] if lines else 'it said nothing'}"


class Interpreters:
    """Processes that interpret calls, several at once."""

    def __init__(self, count: int | None = None, *, time_limit: float = TIME_LIMIT) -> None:
        self.count = max(1, processor_count() if count is None else count)
        self._processes = [_Interpreter(time_limit) for _ in range(self.count)]
        self._idle: queue.SimpleQueue[_Interpreter] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="deployops ptx")

    def __enter__(self) -> Interpreters:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; calls that wait are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.close()

    def tactics(self, library: Interpretable) -> int:
        """How many ways a launcher has. Raises NotCheckedError where it cannot be loaded."""
        try:
            return self._ask(Request(str(library.path), library.symbol, None)).tactics
        except KernelFault as e:
            raise NotCheckedError(f"its launcher cannot be loaded: {e}") from None

    def kernels(self, library: Interpretable) -> tuple[str, ...]:
        """All kernels in the PTX that one of the processes has read."""
        found: dict[str, None] = {}
        for process in self._processes:
            with contextlib.suppress(KernelFault):
                found |= dict.fromkeys(process.ask(Request(str(library.path), library.symbol, None)).every)
        return tuple(found)

    def submit(self, library: Interpretable, call: Call) -> Future[Answer]:
        """Interpret a call; the future raises KernelFault where its process ends."""
        return self._pool.submit(self._ask, Request(str(library.path), library.symbol, call))

    def _ask(self, request: Request) -> Answer:
        with self._borrowed() as process:
            return process.ask(request)

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[_Interpreter]:
        process = self._idle.get()
        try:
            yield process
        finally:
            self._idle.put(process)
