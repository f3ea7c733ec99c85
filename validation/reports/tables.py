"""Plain tables of columns that fit a width: names give way first, then whole columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from .plain_text import columns, cut, padded

__all__ = ["table", "wrapped"]

GAP = 2
NARROWEST = 10  # what a name is still told by
COMFORTABLE = 26  # columns that may be left out are, before names are cut to less

Paint = Callable[[str, str], str]


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int = 0,
    right: Sequence[str] = (),
    flexible: Sequence[str] = (),
    optional: Sequence[str] = (),
    paint: Paint | None = None,
) -> list[str]:
    """Lines of a table.

    Args:
        width: columns of the terminal; 0 for no limit.
        right: heads of columns that are aligned to the right: numbers.
        flexible: heads of columns whose texts may be cut in the middle.
        optional: heads of columns that may be left out, the first one first.
        paint: ``paint(text as it is padded, text)`` for the first column: colour takes no width.
    """
    shown = [k for k in range(len(head)) if head[k] or any(r[k] for r in rows)]
    shown = [k for k in shown if any(r[k] for r in rows)] or shown
    widths = {k: max([columns(head[k]), *(columns(r[k]) for r in rows)]) for k in shown}
    if width:
        for name in optional:
            if _least(widths, head, flexible) <= width:
                break
            widths.pop(list(head).index(name), None)
        while _total(widths) > width:
            wide = [k for k in widths if head[k] in flexible and widths[k] > NARROWEST]
            if not wide:
                break
            widest = max(wide, key=widths.__getitem__)
            widths[widest] = max(NARROWEST, widths[widest] - max(1, (_total(widths) - width) // len(wide)))
    lines = []
    for number, row in enumerate([head, *rows]):
        parts = []
        for k, w in widths.items():
            text = padded(cut(row[k], w), w, head[k] in right)
            parts.append(paint(text, row[k]) if paint is not None and number and k == 0 else text)
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _least(widths: dict[int, int], head: Sequence[str], flexible: Sequence[str]) -> int:
    return _total({k: min(w, COMFORTABLE) if head[k] in flexible else w for k, w in widths.items()})


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width` columns, all but the first one indented; one line where `width` is 0."""
    if not width or columns(text) <= width:
        return [text]
    return textwrap.wrap(
        text, max(width, 20), subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    ) or [text]
