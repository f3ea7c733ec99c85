"""Single files of the cache: read and written so that whatever lies in their place does no harm.

A link is never followed, neither to read nor to write, and nothing but a regular file is opened: a pipe has no end. What is
not as it was written is not there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from hashlib import sha256
from pathlib import Path

from .output_files import replacing

__all__ = ["clear_place", "own_folder", "read_entry", "read_sealed", "write_entry", "write_sealed"]


def read_entry(path: Path) -> bytes:
    """The content of a regular file. Raises OSError for everything else."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(path, flags), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(None, "not a regular file", str(path))
        return stream.read()


def write_entry(path: Path, content: bytes) -> None:
    """Put a file there, whole or not at all; its folder is made. Raises OSError."""
    own_folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
        clear_place(path)


def write_sealed(path: Path, text: str) -> None:
    """Write a text that `read_sealed` takes back only as it is, and only under this name. Raises OSError."""
    content = text.encode()
    write_entry(path, _seal(path, content) + b"\n" + content)


def read_sealed(path: Path) -> str | None:
    """The text that was written under this name; None where there is none, or one that was changed or moved here."""
    try:
        seal, _, content = read_entry(path).partition(b"\n")
        return content.decode() if seal == _seal(path, content) else None
    except (OSError, ValueError):
        return None


def _seal(path: Path, content: bytes) -> bytes:
    return sha256(os.fsencode(path.name) + b"\0" + content).hexdigest().encode()


def own_folder(folder: Path) -> None:
    """Make a folder for the user alone, one step below a folder of the cache. Raises OSError.

    A link or a file in its place is removed; what the link leads to stays.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        with contextlib.suppress(FileNotFoundError):
            folder.unlink()
    if not folder.parent.exists():
        own_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def clear_place(path: Path) -> None:
    """Remove a folder from where a file is to be; a file or a link is replaced without it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
