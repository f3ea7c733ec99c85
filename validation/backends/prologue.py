"""What a child process of ours does first: move the messages out of the way, limit itself, and mind its parent."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import IO

__all__ = ["begin"]

_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0


def begin() -> tuple[IO[bytes], IO[bytes]]:
    """(requests, answers). Afterwards standard input is empty and standard output is the log, for whoever prints."""
    options = json.loads(sys.argv[2])
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    _end_with_parent(options["parent"], options["signal_at_end"])
    if options["memory"] is not None:
        _limit_memory(options["memory"])
    return requests, answers


def _end_with_parent(parent: int, signal_at_end: bool) -> None:
    if signal_at_end and sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not hasattr(os, "getppid") or os.name != "posix":
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _limit_memory(size: int) -> None:
    # What a process may write to, not the address space: that is mostly reserved, and files are mapped into it.
    try:
        import resource
    except ImportError:  # not on this system
        return
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
