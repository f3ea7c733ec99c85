"""How a process ended, told from its exit status, its last lines and the kernel's counters.

Texts and logs go into reports that must be the same for the same run: addresses, folders and times are taken out.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Ending", "EndingKind", "ending_of", "is_out_of_memory", "oom_kills", "steady"]

EndingKind = Literal["crash", "hang", "out of memory"]

_LOG_LINES = 30
_LINE_LENGTH = 300

# How C++, torch, ONNX Runtime, CUDA and Python say it.
_NO_MEMORY = re.compile(
    r"std::bad_alloc|bad allocation|MemoryError|[Cc]annot allocate memory|can't allocate memory|not enough memory"
    r"|[Ff]ailed to allocate memory|[Uu]nable to allocate|CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|\bOutOfMemory\b|OutOfMemoryError"
)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?\s*")
_FOLDERS = re.compile(r"(?<![\w.:/])(?:/[^\s/:\"'<>]+)+/(?=[^\s/:\"'<>])")
_PROCESS = re.compile(r"\b(pid|PID|process|Process|thread|Thread)([ =:]+)\d+")


@dataclass(frozen=True, slots=True)
class Ending:
    """`text` is for a sentence ("crash, SIGSEGV"), `words` the last line that the process wrote, `log` the last ones."""

    kind: EndingKind
    text: str
    words: str = ""
    log: str = ""


def ending_of(code: int, log: str, *, oom_before: int | None = None, late_s: float | None = None) -> Ending:
    """What an exit status means.

    Args:
        code: the exit status; negative: the signal.
        log: what the process wrote on its standard error.
        oom_before: `oom_kills` when the process started.
        late_s: it was ended by us, because it did not answer within so many seconds.
    """
    log = steady(log)
    words = _last_words(log)
    if late_s is not None:
        return Ending("hang", f"no answer within {late_s:g} s", words, log)
    now = oom_kills()
    if code == -signal.SIGKILL and oom_before is not None and now is not None and now > oom_before:
        return Ending("out of memory", "SIGKILL, by the kernel for want of memory", words, log)
    if code and is_out_of_memory(log):
        return Ending("out of memory", f"out of memory ({_status(code)})", words, log)
    return Ending("crash", _status(code), words, log)


def is_out_of_memory(text: str) -> bool:
    """Whether a message or a log says that memory ran out."""
    return bool(_NO_MEMORY.search(text))


def oom_kills() -> int | None:
    """Processes that the kernel has ended for want of memory, in this control group where it counts them; None: unknown."""
    counters = [p / name for p in _memory_groups() for name in ("memory.events", "memory.oom_control")]
    for path in (*counters, Path("/proc/vmstat")):
        try:
            found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return int(found[1])
    return None


def _memory_groups() -> list[Path]:
    """The folders of this process's control group, version 2 first."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root = Path("/sys/fs/cgroup")
    found: list[Path] = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers:
            found.insert(0, root / name.lstrip("/"))
        elif "memory" in controllers.split(","):
            found.append(root / "memory" / name.lstrip("/"))
    return found


def steady(log: str) -> str:
    """The last lines, without what differs from run to run or tells of this machine."""
    lines = log.strip().splitlines()[-_LOG_LINES:]
    return "\n".join(_steady_line(line)[:_LINE_LENGTH].rstrip() for line in lines)


def _steady_line(line: str) -> str:
    for pattern, instead in ((_TIME, ""), (_ADDRESS, "0x…"), (_FOLDERS, "")):
        line = pattern.sub(instead, line)
    return _PROCESS.sub(r"\1\2…", line)


def _last_words(log: str) -> str:
    # what faulthandler adds comes after what the process said itself
    said = re.split(r"^Fatal Python error", log, flags=re.MULTILINE)[0].strip() or log.strip()
    return said.splitlines()[-1] if said else ""


def _status(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"crash, {signal.Signals(-code).name}"
    except ValueError:
        return f"crash, signal {-code}"
