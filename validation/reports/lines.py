"""The lines of a page for a terminal, and how names and reasons may look in them."""

from __future__ import annotations

from ..record import FAILED, NOT_CHECKED, PASSED
from .plain_text import cut, one_line
from .tables import wrapped

__all__ = ["MOST_LINES", "Lines", "named", "whole", "worded"]

MOST_LINES = 24  # of backends, times and notes each: a real report has fewer
LONGEST_NAME = 60
LONGEST_REASON = 600
LONGEST_TEXT = 2_500  # of a bisection, which is read to its end
_COLOURS: dict[str, str] = {FAILED: "31;1", NOT_CHECKED: "33;1", PASSED: "32;1"}


class Lines:
    """Lines so far, and how they may look."""

    def __init__(self, colour: bool, width: int) -> None:
        self.colour, self.width = colour, width
        self.lines: list[str] = []

    def say(self, line: str, indent: str = "  ") -> None:
        self.lines += wrapped(line, self.width, indent)

    def gap(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def paint(self, shown: str, verdict: str) -> str:
        code = _COLOURS.get(verdict)
        return f"\x1b[{code}m{shown}\x1b[0m" if self.colour and code else shown


def named(text: str) -> str:
    """A name on one line, harmless, and short enough for a table."""
    return cut(one_line(text), LONGEST_NAME)


def whole(text: str) -> str:
    """A text on one line, harmless, of which nothing is cut but from a hostile one."""
    return cut(one_line(text), LONGEST_TEXT)


def worded(text: str) -> str:
    """A sentence on one line, harmless."""
    return cut(one_line(text), LONGEST_REASON)
