"""Sizes of files and memory, for people."""

from __future__ import annotations

__all__ = ["shown_bytes"]


def shown_bytes(count: int) -> str:
    """`17.2 kB`, for people."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
