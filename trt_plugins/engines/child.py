"""The child process in which TensorRT works, seen from ours: what it was asked, what it said, how it ended.

It ends with everything that it started when this process is interrupted or gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ...native.processes import Processes, environment
from .flavor import TensorRT

__all__ = ["Said", "WorkerEnd", "ask_worker"]

# -I keeps the working directory and the environment out of sys.path; this process's own is handed over.
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; main()"
_LOG_BYTES = 16_000
_MOST_SAID = 10_000

Said = tuple[str, str]  # "error" or "warning", and TensorRT's text


@dataclass(slots=True)
class WorkerEnd:
    """How a request ended.

    Attributes:
        outcome: what the worker answered; "crashed" where it ended without.
        details: of the answer.
        said: TensorRT's messages, in order.
        step: what it was doing last.
        ending: of a crash: `SIGSEGV`, `exit code 134`.
        log: the end of what was written on its standard error.
    """

    outcome: str = "crashed"
    details: Mapping[str, Any] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    step: str = "starting"
    ending: str = ""
    log: str = ""


def ask_worker(
    tensorrt: TensorRT, request: Mapping[str, Any], progress: Callable[[str], None] | None = None
) -> WorkerEnd:
    """Start a worker, ask it, and wait for its end. `progress`: called with what is being done."""
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
        with Processes().started(command, None, variables) as process:
            return _conversation(process, line, progress)


def _conversation(
    process: subprocess.Popen[bytes], line: str, progress: Callable[[str], None] | None
) -> WorkerEnd:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    log = _Tail(process.stderr)
    end = WorkerEnd()
    try:
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()  # and stays open: its end tells the worker that nobody waits any more
        for answer in process.stdout:
            if answer.endswith(b"\n"):  # else it ended in the middle
                _take(answer, end, progress)
    except BrokenPipeError:
        pass  # it ended before it read
    code = process.wait()
    end.log = log.text()
    if end.outcome == "crashed":
        end.ending = _ending(code)
    for stream in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):  # unsent bytes to a process that is gone
            stream.close()
    return end


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
        end.step = event["step"]
        if progress is not None:
            progress(end.step)
    elif progress is not None and "phase" in event:
        count = f", {event['done']} of {event['of']}" if event["of"] > 1 else ""
        progress(f"{event['phase'].strip()}{count}")


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
