"""TensorRT's timing cache as a file that several builds share: read before a build, added to after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...native.cache_entries import own_folder
from ...native.file_lock import locked_file
from ...native.output_files import replacing
from .log_text import plain, shortened

__all__ = ["add_to_timing_cache", "use_timing_cache"]


def use_timing_cache(config: Any, path: Path, logged: Callable[[], list[str]]) -> str:
    """Let a builder's configuration use what is in the file; nothing where there is no file yet.

    Returns why it does not, else "": the file cannot be read, or TensorRT takes it for none of its own. TensorRT gives an
    empty cache then, and says so only in its log, which `logged` returns.
    """
    try:
        content = _content(path)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    before = len(logged())
    cache = config.create_timing_cache(content)
    if cache is None:
        return _told(logged()[before:]) or "TensorRT makes no timing cache of it, and does not say why"
    taken = config.set_timing_cache(cache, False)
    said = logged()[before:]
    if not taken:
        why = _told(said)
        return (
            why
            or "it was timed on another GPU or by another TensorRT: its entries do not go with this builder"
        )
    if content and any("timing cache" in line.lower() for line in said):
        return _told(said)
    return ""


def _told(said: list[str]) -> str:
    """In TensorRT's words."""
    lines = list(dict.fromkeys(filter(None, map(plain, said))))
    return f"TensorRT says: {shortened('; '.join(lines))}" if lines else ""


def add_to_timing_cache(config: Any, path: Path, lock_file: Path) -> str:
    """Add what a build timed to what is in the file by now, so that builds that run at once lose nothing of each other.

    Returns why the file is not written, else "": the engine that was built is as good without it.
    """
    ours = config.get_timing_cache()
    try:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(
                OSError
            ):  # without a lock, builds that run at once may lose what they timed, no more
                own_folder(lock_file.parent)
                stack.enter_context(locked_file(lock_file))
            content = _content(path)
            theirs = config.create_timing_cache(content) if content else None
            if theirs is not None:
                ours.combine(theirs, False)
            with replacing(path) as temporary:
                temporary.write_bytes(memoryview(ours.serialize()))
    except (OSError, UsageError) as error:
        return f"what was timed is not kept: {path} is not written ({error})"
    return ""


def _content(path: Path) -> bytes:
    """Empty where there is no file. Raises OSError for what is none, as a pipe, which may have no end."""
    if not path.exists():
        return b""
    if not path.is_file():
        raise OSError(f"{path} is not a regular file")
    return path.read_bytes()
