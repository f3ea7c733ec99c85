"""Compute capabilities of GPUs as people write them: `89`, `8.9`, `sm_89`, `sm89`."""

from __future__ import annotations

import re

from ..errors import UsageError

__all__ = ["read_arch", "read_archs"]

_ARCH = re.compile(r"(?:sm_?)?([1-9][0-9]?)\.?([0-9])")


def read_arch(given: str | int) -> int:
    """89 for compute capability 8.9. Raises UsageError."""
    read = _ARCH.fullmatch(str(given).strip().lower())
    if read is None:
        raise UsageError(f"{given!r} is no compute capability; expected such as 89, sm_89 or 8.9")
    return int(read[1] + read[2])


def read_archs(text: str) -> tuple[int, ...]:
    """What was given to `--arch`, with commas between: each once, in their order. Raises UsageError."""
    try:
        return tuple(dict.fromkeys(map(read_arch, map(str.strip, text.split(",")))))
    except UsageError as e:
        raise UsageError(f"--arch {text}: {e}, with commas between") from None
