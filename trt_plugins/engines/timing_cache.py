"""TensorRT's timing cache as a file that several builds share: read before a build, added to after it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...native.output_files import replacing

__all__ = ["add_to_timing_cache", "use_timing_cache"]


def use_timing_cache(config: Any, path: Path, logged: Callable[[], list[str]]) -> bool:
    """Let a builder's configuration use what is in the file; nothing where there is no file yet.

    False where TensorRT takes the file for none of its own: it is of another version or GPU, or damaged. TensorRT gives an
    empty cache then, and says so only in its log, which `logged` returns.
    """
    content = path.read_bytes() if path.exists() else b""
    before = len(logged())
    cache = config.create_timing_cache(content)
    if cache is None or not config.set_timing_cache(cache, False):
        return False
    said = " ".join(logged()[before:]).lower()
    return not (content and "timing cache" in said)


def add_to_timing_cache(config: Any, path: Path, lock_file: Path) -> None:
    """Add what a build timed to what is in the file by now, so that builds that run at once lose nothing of each other."""
    ours = config.get_timing_cache()
    with lock_file.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            theirs = config.create_timing_cache(path.read_bytes())
            if theirs is not None:
                ours.combine(theirs, False)
        with replacing(path) as temporary:
            temporary.write_bytes(memoryview(ours.serialize()))
