"""Paths and texts of files for a terminal: one line, and nothing in it moves the cursor or changes colours."""

from __future__ import annotations

import os

__all__ = ["printable", "shown"]


def printable(text: str) -> str:
    """A text with what does not print escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(path: str | os.PathLike[str]) -> str:
    """A path as it is where it prints on one line, in quotes and escaped where it does not."""
    text = os.fsdecode(path)
    return text if text.isprintable() and text else repr(text)
