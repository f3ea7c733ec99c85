"""Contents of files and folders, read once in a process for as long as they stay as they are."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar

__all__ = ["FILES", "State", "file_state"]

T = TypeVar("T")
State = tuple[int, int, int, int, int]

# Files younger than this may change once more without their times showing it: file systems stamp them by a clock that
# stands still for milliseconds, and on network drives for a second or two.
_SETTLED = 2.0  # seconds


class _Files:
    """Remembers what was read while device, inode, size and both times of the file are the same.

    No program can set the time of an inode's last change, so that every write shows in it, but for one within the
    same tick of the file system's clock; for this reason what was young when it was read is read again.
    """

    def __init__(self) -> None:
        self._digests: dict[str, tuple[State, str]] = {}
        self._scans: dict[str, tuple[State, tuple[str, Any]]] = {}
        self._listings: dict[str, tuple[State, frozenset[str]]] = {}

    def digest(self, path: str) -> str:
        """sha256 of a file; empty where there is none that can be read."""
        return _remembered(self._digests, path, lambda: sha256(_content(path)).hexdigest()) or ""

    def scanned(self, path: str, scan: Callable[[bytes], T]) -> tuple[str, T] | None:
        """sha256 of a file and what `scan` finds in it; `scan` is the same function at every call."""

        def read() -> tuple[str, T]:
            content = _content(path)
            return sha256(content).hexdigest(), scan(content)

        return _remembered(self._scans, path, read)

    def listing(self, folder: str) -> frozenset[str]:
        """The names in a folder; none where there is no such folder."""
        return _remembered(self._listings, folder, lambda: frozenset(os.listdir(folder))) or frozenset()

    @staticmethod
    def changed(path: str) -> float:
        """When a file or folder changed last, in s since the epoch; 0 where there is none."""
        try:
            state = os.stat(path)
        except OSError:
            return 0.0
        return max(state.st_mtime, state.st_ctime)


def _remembered(memory: dict[str, tuple[State, T]], path: str, read: Callable[[], T]) -> T | None:
    try:
        before = _state(path)
        known = memory.get(path)
        if known is not None and known[0] == before:
            return known[1]
        content = read()
        if _state(path) == before and time.time() - max(before[3:]) / 1e9 > _SETTLED:
            memory[path] = before, content
        return content
    except OSError:
        return None


def file_state(path: str | os.PathLike[str]) -> State | None:
    """What shows that a file was replaced or written; None where there is none."""
    try:
        return _state(path)
    except OSError:
        return None


def _state(path: str | os.PathLike[str]) -> State:
    s = os.stat(path)
    return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _content(path: str) -> bytes:
    with open(path, "rb", opener=_without_waiting) as stream:
        # A device or a pipe has no content to go by, and may have no end.
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError("not a regular file")
        return stream.read()


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe waits for somebody to write into it, if need be for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


FILES = _Files()
