"""A child process of our own, from its start to its end: no terminal, no zombie, nothing left of it.

Its standard input carries messages to it, its standard output answers; what it prints goes to a log. It runs in a
session of its own, and is ended with everything that it started: when it is closed, when this process ends, and, by
`prologue`, when this process is killed. Its temporary files go into a folder that is removed with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from .endings import Ending, ending_of, oom_kills

__all__ = ["Child"]

# -I keeps the working directory and the environment out of sys.path; the parent's own is handed over.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import {function}; {function}()"
)
_LOG_BYTES = 16_000


class Child:
    """`function` of `module`, which begins with `prologue.begin`, in a new interpreter.

    Args:
        memory: bytes that it may allocate; None: no limit.
        environment: variables besides those of this process.
    """

    def __init__(
        self,
        module: str,
        function: str,
        *,
        memory: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        options = {
            "memory": memory,
            "parent": os.getpid(),
            # the signal comes at the end of the thread that starts the child: of this process only for the main one
            "signal_at_end": threading.current_thread() is threading.main_thread(),
        }
        start = _START.format(module=module, function=function)
        command = [sys.executable, "-I", "-c", start, json.dumps(sys.path), json.dumps(options)]
        self._oom_before = oom_kills()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close(); it has no name on the disk
        self._folder = tempfile.TemporaryDirectory(prefix="deployops-", ignore_cleanup_errors=True)
        places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), self._folder.name)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**os.environ, **places, **(environment or {})},
                start_new_session=True,
            )
        except BaseException:
            self._log.close()
            self._folder.cleanup()
            raise
        self._finalizer = weakref.finalize(self, _end, self._process)

    @property
    def requests(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def kill(self) -> None:
        """End it and all that it started, at once."""
        _kill(self._process)

    def wait(self, limit_s: float) -> int | None:
        """Its exit status, or None where it still runs after the limit."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def ending(self, late_s: float | None = None) -> Ending:
        """How it ended; it is ended first where it has not yet. `late_s`: the limit that it was ended for."""
        code = self.wait(5)
        if code is None:
            self.kill()
            code = self._process.wait()
        return ending_of(code, self.log(), oom_before=self._oom_before, late_s=late_s)

    def log(self) -> str:
        """The end of what it has printed so far."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _LOG_BYTES, 0))
        return self._log.read().decode(errors="replace")

    def close(self, patience_s: float = 1) -> Ending | None:
        """Let it end by itself, as it does when its input ends, and end it where it does not.

        Returns how it ended where it did so by itself, and badly: when its libraries were unloaded.
        """
        last = None
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # unsent bytes to a process that is gone
                    stream.close()
        if patience_s and (code := self.wait(patience_s)):
            last = ending_of(code, self.log(), oom_before=self._oom_before)
        self._finalizer()
        self._log.close()
        self._folder.cleanup()
        return last


def _end(process: subprocess.Popen[Any]) -> None:
    _kill(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _kill(process: subprocess.Popen[Any]) -> None:
    # The whole group, though its leader may be gone: what it started (compilers, workers) is in it.
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
