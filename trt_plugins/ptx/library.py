"""Launchers called on torch tensors, in processes of their own, their kernels interpreted."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO

from ...errors import NotCheckedError
from ...native.jobs import processor_count
from ..emulation.calls import Call
from ..emulation.faults import KernelFault
from .build import Interpretable
from .exchange import Answer, Request

__all__ = ["Interpreters"]

TIME_LIMIT = 300.0  # seconds for one call
_PACKAGE = Path(__file__).resolve().parents[2]


class _Process:
    """A process that interprets, started when it is needed and again after it has ended."""

    def __init__(self, time_limit: float) -> None:
        self._time_limit = time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def ask(self, request: Request) -> Answer:
        """Raises KernelFault where the process ends, or does not answer in time."""
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(request, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            if not select.select([process.stdout], [], [], self._time_limit)[0]:
                self.close()
                raise KernelFault(f"it was not interpreted to its end within {self._time_limit:g} s")
            answer = pickle.load(process.stdout)  # from our own process  # noqa: S301
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise KernelFault(self._ended()) from None
        assert isinstance(answer, Answer)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115
            code = (
                "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
                f"runpy.run_module('{__package__}.worker', run_name='__main__', alter_sys=True)"
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(_import_root())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                # each process keeps one processor busy
                env={
                    **os.environ,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
            )
        return self._process

    def _ended(self) -> str:
        process, said = self._process, self._said
        assert process is not None
        assert said is not None
        code = process.wait()
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
        self.close()
        if code == -11:
            return "the launcher touches memory that is not its own, as that of the device"
        last = text.splitlines()[-1] if text else "it said nothing"
        return f"the process of the launcher ended with status {code}: {last}"

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.kill()
        process.wait()
        if self._said is not None:
            self._said.close()


def _import_root() -> Path:
    """The folder that has to be on the path for this package to be found under the name it has."""
    module = sys.modules[(__package__ or "").split(".")[0]]
    found = getattr(module, "__file__", None)
    return Path(found).parent.parent if found else _PACKAGE.parent


class Interpreters:
    """Processes that interpret calls, several at once."""

    def __init__(self, count: int | None = None, *, time_limit: float = TIME_LIMIT) -> None:
        self.count = max(1, processor_count() if count is None else count)
        self._processes = [_Process(time_limit) for _ in range(self.count)]
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
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
    def _borrowed(self) -> Iterator[_Process]:
        process = self._idle.get()
        try:
            yield process
        finally:
            self._idle.put(process)
