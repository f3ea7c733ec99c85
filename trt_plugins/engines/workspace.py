"""The limit of a builder's workspace, as the user writes it."""

from __future__ import annotations

import re

from ...errors import UsageError

__all__ = ["byte_count"]

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{binary}b": (1024 if binary else 1000) ** power
    for power, letter in enumerate("kmgt", 1)
    for binary in ("", "i")
}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)")


def byte_count(given: int | str | None) -> int | None:
    """Bytes from `2GiB`, `512MB`, a plain number of bytes, or None. Raises UsageError."""
    if given is None:
        return None
    read = _SIZE.fullmatch(str(given).strip())
    unit = _UNITS.get(read[2].lower()) if read else None
    if isinstance(given, bool) or read is None or unit is None:
        raise UsageError(f"workspace {given!r}: expected a size such as 2GiB, 512MB, or a number of bytes")
    count = int(float(read[1]) * unit) if "." in read[1] else int(read[1]) * unit
    if not 0 < count < 2**63:
        raise UsageError(f"workspace {given!r}: expected a size from 1 byte up, such as 2GiB")
    return count
