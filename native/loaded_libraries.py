"""The path by which the loader gives what a library's file holds now.

The loader knows libraries by their paths: asked again for one that was rebuilt since, it answers with the old code, and
says nothing. A file that was replaced after it was loaded is therefore loaded from a copy under another path.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import sys
import threading
from hashlib import sha256
from pathlib import Path

from ..errors import UsageError
from .cache_store import temporary_store
from .elf_file import NotElfError, machine_of

__all__ = ["current_library"]

_MAPS = Path("/proc/self/maps")
_GONE = " (deleted)"  # how the kernel marks a file that was replaced or removed
_UNKNOWN = ""

_lock = threading.Lock()
# path -> inode and sha256 of what the loader was first given under it
_given: dict[str, tuple[int, str]] = {}


def current_library(library: Path) -> Path:
    """The path to load: the library's own, or that of a copy where this process has loaded something else from it before.

    Copies last as long as the process.

    Raises UsageError where the file cannot be read, is no library for this machine, lacks a part of itself, or was
    overwritten while it was loaded.
    """
    path = os.path.realpath(library)
    with _lock:
        try:
            inode, content = os.stat(path).st_ino, Path(path).read_bytes()
        except OSError as error:
            raise UsageError(f"{library} cannot be read: {error.strerror or error}") from None
        _expect_whole(library, content)
        digest = sha256(content).hexdigest()
        if path not in _given:
            # what somebody else in this process loaded, and is no longer the file
            _given[path] = (0, _UNKNOWN) if _loaded(path, gone=True) else (inode, digest)
        first_inode, first = _given[path]
        if first == digest:
            _given[path] = (inode, digest)
            return Path(path)
        if inode == first_inode and _loaded(path, gone=False):
            raise UsageError(
                f"{library} was overwritten while this process had it loaded, so that what uses it may compute anything. "
                "Start a new process; to replace a library, write another file and rename it, as `deployops compile` does"
            )
        return _copy(path, digest)


def _expect_whole(library: Path, content: bytes) -> None:
    """What the loader says of another machine's library is that there is no such file; half a library kills the process."""
    if sys.platform != "linux":
        return
    try:
        machine = machine_of(content)
    except NotElfError as error:
        raise UsageError(f"{library} is {error}") from None
    if machine != platform.machine():
        raise UsageError(f"{library} is a library for {machine}; this machine is {platform.machine()}")


def _loaded(path: str, *, gone: bool) -> bool:
    """Whether a file of this path is mapped into this process: `gone`, one that has been replaced since; else this one."""
    try:
        lines = _MAPS.read_bytes().splitlines()
    except OSError:
        return False
    wanted = os.fsencode(path + _GONE if gone else path)
    return any(_mapped_file(line) == wanted for line in lines)


def _mapped_file(line: bytes) -> bytes:
    """`7f…-7f… r-xp 00000000 08:01 42   /lib/a.so` -> /lib/a.so; a line feed in it is written as \\012."""
    fields = line.split(None, 5)
    return re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), fields[5]) if len(fields) > 5 else b""


def _copy(path: str, digest: str) -> Path:
    """A copy under a path that stands for its content."""
    folder = temporary_store().root / "loaded" / digest
    copy = folder / os.path.basename(path)
    try:
        if not copy.is_file():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = folder / f"{copy.name}.part"
            shutil.copyfile(path, made)
            if sha256(made.read_bytes()).hexdigest() != digest:
                raise UsageError(f"{path} is being replaced just now. Run this again")
            os.replace(made, copy)
    except OSError as error:
        raise UsageError(
            f"{path} was rebuilt after this process loaded it, and the new one cannot be loaded beside the old: "
            f"{error.strerror or error}. Start a new process"
        ) from None
    with contextlib.suppress(OSError):
        copy.chmod(0o500)
    return copy
