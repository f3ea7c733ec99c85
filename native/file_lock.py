"""Locks that processes take on files and folders. None is waited for without an end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import UsageError

__all__ = ["locked_file", "locked_folder"]

_LIMIT = 600.0  # seconds
_PAUSE = 0.02  # seconds


@contextlib.contextmanager
def locked_file(path: Path, limit: float = _LIMIT) -> Iterator[None]:
    """In the block, no other process has this lock. The file is made, and stays; what else is in its place is removed.

    Raises OSError where it cannot be made, UsageError where another process holds it longer than `limit` seconds.
    """
    with contextlib.ExitStack() as stack:
        descriptor = _opened(path)
        stack.callback(os.close, descriptor)
        _take(descriptor, path, limit)
        yield


@contextlib.contextmanager
def locked_folder(folder: Path, limit: float = _LIMIT) -> Iterator[None]:
    """In the block, no other process has the lock of this folder; file systems without locks give none, and no error.

    Raises UsageError where another process holds it longer than `limit` seconds.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            _take(descriptor, folder, limit)
        yield


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(2):
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise
        else:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)
        # a link, a folder, a pipe
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    return os.open(path, flags, 0o600)


def _take(descriptor: int, path: Path, limit: float) -> None:
    end = time.monotonic() + limit
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EINTR):
                raise
        if time.monotonic() > end:
            raise UsageError(
                f"another process has had the lock {path} for {limit:g} s: it is stopped, or hangs. End it (`fuser {path}` "
                "names it), and run this again"
            )
        time.sleep(_PAUSE)
