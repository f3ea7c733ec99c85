"""Child processes that end: with a time limit, with the batch they belong to, and with everything they started."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import DeployOpsError

__all__ = ["TIME_LIMIT", "Finished", "ProcessError", "Processes", "Stopped", "environment", "run"]

TIME_LIMIT = 600.0  # seconds

# They make a compiler write files of its own, or say the same thing in another form.
_DROPPED = (
    "DEPENDENCIES_OUTPUT",
    "SUNPRO_DEPENDENCIES",
    "GCC_COMPARE_DEBUG",
    "GCC_COLORS",
    "GCC_EXTRA_DIAGNOSTIC_OUTPUT",
    "GCC_URLS",
    "LANGUAGE",
)


class ProcessError(DeployOpsError):
    """A program that cannot be started, or did not end in time."""


class Stopped(DeployOpsError):
    """Not done, because something else failed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program left behind: its exit status (negative: the signal that ended it) and what it wrote."""

    code: int
    out: str
    err: str


class Processes:
    """The programs that run for one batch of jobs, so that they can be ended together.

    Attributes:
        begun: set once the first of them was started.
    """

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @contextmanager
    def started(
        self, command: Sequence[str], cwd: Path | None, env: Mapping[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A running program, in a process group of its own; none of the group is left after the block."""
        pipe = subprocess.PIPE
        with self._lock:
            if self._stopped:
                raise Stopped("stopped, as another job failed")
            process = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
            self._running.add(process)
        self.begun.set()
        try:
            yield process
        except BaseException:
            _kill(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=5)
            raise
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    @property
    def stopped(self) -> bool:
        return self._stopped

    @contextmanager
    def adopting_thread(self) -> Iterator[None]:
        """What this thread runs inside the block belongs to the batch."""
        before = _batch()
        _of_thread.batch = self
        try:
            yield
        finally:
            _of_thread.batch = before


_of_thread = threading.local()
_unbatched = Processes()


def _batch() -> Processes:
    batch: Processes = getattr(_of_thread, "batch", _unbatched)
    return batch


def _kill(process: subprocess.Popen[bytes]) -> None:
    # The whole group: a compiler driver leaves its compiler running when it is killed. Not SIGTERM, which a
    # hung program may ignore: what is left behind lies in folders that we remove.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def environment(temporary: Path | None = None) -> dict[str, str]:
    """The environment of every program we run: messages in English, no file written that was not asked for.

    Args:
        temporary: where the program puts its temporary files.
    """
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    # `ccache` behind the name of a compiler would answer from a cache with other rules than ours.
    env |= {"LC_ALL": "C", "CCACHE_DISABLE": "1"}
    if temporary is not None:
        # Compilers write the current folder into debug information, as PWD names it.
        env |= {"TMPDIR": str(temporary), "PWD": "/proc/self/cwd"}
    return env


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text: str = "",
    limit: float = TIME_LIMIT,
) -> Finished:
    """Run a program, without a shell, and wait for its end.

    Args:
        text: what it reads on its standard input.
        limit: seconds, after which it is ended with all that it started.

    Raises:
        ProcessError: it cannot be started, or the limit passed.
        Stopped: the batch of jobs of this thread was stopped.
    """
    words = [str(word) for word in command]
    batch = _batch()
    try:
        with batch.started(words, cwd, environment() if env is None else env) as process:
            out, err = process.communicate(text.encode(), timeout=limit)
    except subprocess.TimeoutExpired:
        raise ProcessError(
            f"{words[0]} did not end within {limit:g} s and was stopped. The command: {shlex.join(words)}"
        ) from None
    except OSError as error:
        raise ProcessError(f"{words[0]} cannot be run: {error.strerror or error}") from None
    if batch.stopped and process.returncode < 0:
        raise Stopped(f"{words[0]} was stopped, as another job failed")
    return Finished(process.returncode, _decoded(out), _decoded(err))


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace").replace("\r\n", "\n")
