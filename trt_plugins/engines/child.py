"""The child process in which TensorRT works, seen from ours: what it was asked, what it said, how it ended.

It ends with everything that it started when this process is interrupted or gone, and when its time is over.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ...native.processes import Processes, environment
from .flavor import TensorRT

__all__ = ["BEFORE_BUILDER", "Said", "WorkerEnd", "ask_worker"]

# Seconds in which TensorRT is to be loaded, with the plugins, and the model parsed: seconds for most, and only a model or a
# library that means harm takes for ever. The builder itself may take hours.
BEFORE_BUILDER = 600.0

# -I keeps the working directory and the environment out of sys.path; this process's own is handed over.
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
_LOG_BYTES = 16_000
_MOST_SAID = 10_000

Said = tuple[str, str]  # "error" or "warning", and TensorRT's text


@dataclass(slots=True)
class WorkerEnd:
    """How a request ended.

    Attributes:
        outcome: what the worker answered; "crashed" where it ended without, "late" where it was ended.
        details: of the answer.
        said: TensorRT's messages, in order.
        step: what it was doing last. phase: of the builder, where it was at it.
        in_builder: it had come to the builder, or further.
        ending: of a crash: `SIGSEGV`, `exit code 134`.
        log: the end of what was written on its standard error.
    """

    outcome: str = "crashed"
    details: Mapping[str, Any] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    step: str = "starting"
    phase: str = ""
    in_builder: bool = False
    ending: str = ""
    log: str = ""


def ask_worker(
    tensorrt: TensorRT,
    request: Mapping[str, Any],
    progress: Callable[[str], None] | None = None,
    *,
    limit: float | None = None,
) -> WorkerEnd:
    """Start a worker, ask it, and wait for its end.

    Args:
        progress: called with what is being done.
        limit: seconds, after which it is ended with all that it started. None: `BEFORE_BUILDER` for all that comes before
            the builder, which may take as long as it wants.
    """
    with tempfile.TemporaryDirectory(prefix="deployops-", ignore_cleanup_errors=True) as folder:
        links = Path(folder) / "links"
        links.mkdir()
        start = _START.format(module=f"{__package__}.worker")
        command = [sys.executable, "-I", "-c", start, json.dumps(sys.path)]
        variables = {**environment(Path(folder)), **tensorrt.environment(links)}
        variables["PWD"] = os.getcwd()  # `environment` hides it from compilers
        line = json.dumps(
            {"name": tensorrt.name, "module": tensorrt.module, "flavor": tensorrt.flavor, **request}
        )
        processes = Processes()
        with processes.started(command, None, variables) as process:
            return _conversation(processes, process, line, progress, limit)


def _conversation(
    processes: Processes,
    process: subprocess.Popen[bytes],
    line: str,
    progress: Callable[[str], None] | None,
    limit: float | None,
) -> WorkerEnd:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    started = time.monotonic()
    log, answers = _Tail(process.stderr), _Lines(process.stdout)
    end = WorkerEnd()
    try:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()  # and stays open: its end tells the worker that nobody waits any more
    except BrokenPipeError:
        pass  # it ended before it read
    try:
        while answer := answers.next(_time_left(started, limit, end)):
            if answer.endswith(b"\n"):  # else it ended in the middle
                _take(answer, end, progress)
        code = process.wait(_time_left(started, limit, end))
    except (_TooLate, subprocess.TimeoutExpired):
        processes.stop()
        with suppress(subprocess.TimeoutExpired):  # a driver may hold it up, whatever it was sent
            process.wait(10)
        end.outcome, code = "late", 0
    end.log = log.text()
    if end.outcome == "crashed":
        end.ending = _ending(code)
    for stream in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):  # unsent bytes to a process that is gone
            stream.close()
    return end


class _TooLate(Exception):
    """Nothing came in time."""


def _time_left(started: float, limit: float | None, end: WorkerEnd) -> float | None:
    if limit is None and end.in_builder:
        return None
    return max(0.0, started + (BEFORE_BUILDER if limit is None else limit) - time.monotonic())


class _Lines:
    """The lines of a stream, read on a thread, so that waiting for one can end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._read: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._to_end, daemon=True).start()

    def _to_end(self) -> None:
        with suppress(OSError, ValueError):  # closed by us
            for line in self._stream:
                self._read.put(line)
        self._read.put(b"")

    def next(self, wait: float | None) -> bytes:
        """The next one; empty at the end. Raises _TooLate."""
        try:
            return self._read.get(timeout=wait)
        except queue.Empty:
            raise _TooLate from None


def _take(answer: bytes, end: WorkerEnd, progress: Callable[[str], None] | None) -> None:
    event = json.loads(answer)
    if "outcome" in event:
        end.outcome = event.pop("outcome")
        end.details = event
    elif "said" in event:
        if len(end.said) < _MOST_SAID:
            kind, text = event["said"]
            end.said.append((kind, text))
    elif "step" in event:
        end.step, end.phase = event["step"], ""
        end.in_builder |= event.get("builder", False)
        if progress is not None:
            progress(end.step)
    elif "phase" in event:
        count = f", {event['done']} of {event['of']}" if event["of"] > 1 else ""
        end.phase = f"{event['phase'].strip()}{count}"
        if progress is not None:
            progress(end.phase)


class _Tail:
    """Reads a stream to its end on a thread, and keeps the last of it: a full pipe would hold the process up."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._kept = b""
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := self._stream.read1(4096):  # type: ignore[attr-defined]
            self._kept = (self._kept + chunk)[-_LOG_BYTES:]

    def text(self) -> str:
        self._thread.join(5)  # what it started may hold the pipe open
        return self._kept.decode(errors="replace").replace("\r\n", "\n")


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
