"""Files that appear whole: whoever looks finds the old content or the new one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import UsageError

__all__ = ["replace_file", "replacing"]


def replace_file(path: Path, write: Callable[[Path], object], *, executable: bool = False) -> None:
    """Let `write` make a temporary file beside `path`, and put it in its place. Raises UsageError."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a file is to be written there")
    try:
        with replacing(path, mode=0o755 if executable else 0o644) as temporary:
            write(temporary)
    except OSError as e:
        raise UsageError(f"{path} cannot be written: {e.strerror}") from None


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """An empty file beside `path`, put in its place at the end of the block; on an error nothing changes.

    Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
