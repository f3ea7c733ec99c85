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

__all__ = ["add_to_timing_cache", "use_timing_cache"]


def use_timing_cache(config: Any, path: Path, logged: Callable[[], list[str]]) -> bool:
    """Let a builder's configuration use what is in the file; nothing where there is no file yet.

    False where it cannot be read, or TensorRT takes it for none of its own: it is of another version or GPU, or damaged.
    TensorRT gives an empty cache then, and says so only in its log, which `logged` returns.
    """
    try:
        content = _content(path)
    except OSError:
        return False
    before = len(logged())
    cache = config.create_timing_cache(content)
    if cache is None or not config.set_timing_cache(cache, False):
        return False
    said = " ".join(logged()[before:]).lower()
    return not (content and "timing cache" in said)


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
