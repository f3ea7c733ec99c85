"""Names from strangers, made harmless for a terminal and for XML: what would move, hide or reorder text is written out."""

from __future__ import annotations

import unicodedata

__all__ = ["columns", "cut", "lines_of", "one_line", "padded"]


def one_line(text: str) -> str:
    """The text on one line: line ends and tabs become spaces, other control characters are written as \\x1b."""
    return "".join(_shown(c) for c in " ".join(str(text).split()))


def lines_of(text: str) -> list[str]:
    """The lines of a longer text, each one harmless; trailing and empty ones at the ends left out."""
    found = ["".join(_shown(c) for c in line.expandtabs(4)).rstrip() for line in str(text).splitlines()]
    while found and not found[0]:
        found.pop(0)
    while found and not found[-1]:
        found.pop()
    return found


def _shown(c: str) -> str:
    """Not printable, by Unicode: escape sequences, right-to-left overrides, zero-width and private characters."""
    if c.isprintable():
        return c
    if c.isspace() and c not in "\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return " "
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns(text: str) -> int:
    """How many columns of a terminal the text takes: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def cut(text: str, width: int) -> str:
    """At most `width` columns: the middle gives way, because both ends of a node's name tell it apart."""
    if columns(text) <= width:
        return text
    if width < 4:
        return "…"[:width]
    head, tail = width // 2, (width - 1) // 2
    return f"{_taken(text, head)}…{_taken(text[::-1], tail)[::-1]}"


def _taken(text: str, width: int) -> str:
    used, k = 0, 0
    while k < len(text) and used + columns(text[k]) <= width:
        used += columns(text[k])
        k += 1
    return text[:k]


def padded(text: str, width: int, right: bool = False) -> str:
    """Filled with spaces to `width` columns."""
    fill = " " * max(0, width - columns(text))
    return fill + text if right else text + fill
