"""The text that g++ and clang++ write, read into data. Understood by its lines: gcc's JSON ends with gcc 15, clang has none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

__all__ = ["Diagnostic", "Place", "read_output"]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; column 0 where unknown. `path` is as the compiler wrote it; empty: no place in a file."""

    path: str
    line: int
    column: int = 0


@dataclass(slots=True)
class Diagnostic:
    """One error, warning or note.

    Attributes:
        excerpt: the source line and the line with the caret, without line numbers; empty where not shown.
        calls: where the template that it is in was asked for, the innermost place first.
        notes: what the compiler says further.
    """

    severity: Literal["error", "fatal error", "warning", "note"]
    place: Place
    message: str
    excerpt: list[str] = field(default_factory=list)
    calls: list[Place] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)


_AT = r"(?P<path>[^\s:](?:[^:\n]|:(?!\d+:))*):(?P<line>\d+):(?:(?P<column>\d+):)?"
_STATEMENT = re.compile(
    rf"^{_AT} (?P<severity>fatal error|error|warning|note|internal compiler error|sorry, unimplemented): (?P<message>.*)$"
)
# gcc's "required from", "in 'constexpr' expansion of", before the error
_CALL = re.compile(rf"^{_AT}   (?!\s)(?P<message>.*)$")
_SCOPE = re.compile(r"^.+: (In .+|At global scope):$")
_INCLUDED = re.compile(r"^(In file included from .+|\s+from .+:\d+)[:,]$")
_UNPLACED = re.compile(
    r"^(?!/?\S*\bld\b)(?P<program>[\w+./-]+): (?P<severity>fatal error|error): (?P<message>.*)$"
)
_NUMBERED = re.compile(r"^ *\d* \| ?(?P<text>.*)$")
# clang's, after the error
_REQUESTED = re.compile(
    r"^(in instantiation of|while substituting|in call to|in default argument|in evaluation of).*"
)


def read_output(text: str) -> list[Diagnostic]:
    """The errors and warnings in what a compiler wrote, in its order, each with its notes."""
    found: list[Diagnostic] = []
    last: Diagnostic | None = None  # what an excerpt belongs to
    calls: list[Place] = []  # of gcc, which says them once for several errors in the same instantiation
    for line in text.splitlines():
        if _SCOPE.match(line):
            calls, last = [], None
        elif _INCLUDED.match(line):
            last = None
        elif (m := _STATEMENT.match(line)) is not None:
            place = Place(m["path"], int(m["line"]), int(m["column"] or 0))
            last = _add(found, m["severity"], place, m["message"], calls)
        elif (m := _CALL.match(line)) is not None:
            calls = [*calls, Place(m["path"], int(m["line"]), int(m["column"] or 0))]
            last = None
        elif (m := _UNPLACED.match(line)) is not None:
            last = _add(found, m["severity"], Place("", 0), m["message"], [])
        elif last is not None and len(last.excerpt) < 2 and line.strip():
            numbered = _NUMBERED.match(line)
            content = numbered["text"] if numbered is not None else line
            if not last.excerpt or re.fullmatch(r"[\s~^]*\^[\s~^|]*", content):
                last.excerpt.append(content)
    # clang says the calls once for several errors in the same instantiation, in notes of the first.
    for before, d in pairwise(found):
        if not d.calls and before.calls and before.place.path == d.place.path:
            d.calls.extend(before.calls)
    return found


def _add(
    found: list[Diagnostic], said: str, place: Place, message: str, calls: list[Place]
) -> Diagnostic | None:
    if said == "note":
        if not found:
            return None
        if _REQUESTED.match(message):
            found[-1].calls.append(place)
            return None
        note = Diagnostic("note", place, message.strip())
        found[-1].notes.append(note)
        return note
    severity: Literal["error", "fatal error", "warning"] = (
        "warning" if said == "warning" else "fatal error" if said == "fatal error" else "error"
    )
    prefix = "" if said in ("warning", "error", "fatal error") else f"{said}: "
    found.append(Diagnostic(severity, place, prefix + message, calls=list(calls)))
    return found[-1]
