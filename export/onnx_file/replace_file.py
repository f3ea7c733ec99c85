"""Replace a file in one step: write beside it, flush to the disk, rename."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["HashedFile", "remove", "remove_stale", "replacing"]

_STALE_SECONDS = 3600  # a temporary file untouched for so long was left by an interrupted run
_CHUNK = 1 << 24


class HashedFile:
    """A file under construction that knows its size and sha256 so far."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, content: bytes | memoryview) -> None:
        with memoryview(content) as view:
            for start in range(0, len(view), _CHUNK):
                chunk = view[start : start + _CHUNK]
                self._hash.update(chunk)
                self._stream.write(chunk)
            self.bytes += len(view)

    def overwrite(self, at: int, content: bytes) -> None:
        """Change bytes written before; the sha256 stays that of the first writing."""
        self._stream.seek(at)
        self._stream.write(content)


@contextmanager
def replacing(path: Path, name: Callable[[HashedFile], Path] | None = None) -> Iterator[HashedFile]:
    """A new file that becomes `path` at the end of the block; on an error nothing changes.

    Args:
        name: computes another final path, in the same folder, from the finished file.
    """
    # Not tempfile: its files are private, whatever the umask says.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as stream:
            file = HashedFile(stream)
            yield file
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, name(file) if name is not None else path)
    finally:
        remove(temporary)


def remove(path: Path | None) -> None:
    """Remove a file if it is there and can be removed."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def remove_stale(path: Path) -> None:
    """Remove what interrupted runs left beside `path`."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{12}\.tmp")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > _STALE_SECONDS:
                remove(Path(entry.path))
