"""Files that appear whole: whoever looks finds the old content or the new one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import UsageError

__all__ = ["replace_file"]


def replace_file(path: Path, write: Callable[[Path], object], *, executable: bool = False) -> None:
    """Let `write` make a temporary file beside `path`, and put it in its place. Raises UsageError."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; a file is to be written there")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
    except OSError as e:
        raise UsageError(f"{path} cannot be written: {e.strerror}") from None
    temporary = Path(name)
    try:
        write(temporary)
        temporary.chmod(0o755 if executable else 0o644)
        temporary.replace(path)
    except OSError as e:
        raise UsageError(f"{path} cannot be written: {e.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
