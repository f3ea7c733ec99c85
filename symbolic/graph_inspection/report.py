"""The findings as lines for a terminal: the worst first, equal ones together, long lists cut with their count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .findings import FAILS, HURTS, NOTE, Finding, Severity

__all__ = ["MOST_LINES", "counted", "finding_lines", "rest_line", "short"]

MOST_LINES = 10  # of one kind
_LABELS: dict[Severity, str] = {FAILS: "FAILS", HURTS: "hurts", NOTE: "note"}
_LONGEST = 400  # characters of a text, and of a name in it: those of a hostile file can be of any length
_LONGEST_NAME = 200


def counted(findings: Iterable[Finding], words: Mapping[Severity, str]) -> str:
    """`2 would fail, 1 cost speed`."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(f"{counts[s]} {words[s]}" for s in (FAILS, HURTS, NOTE) if counts[s])


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Not escaped: texts of the file are in them."""
    by_kind: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault((finding.severity, finding.kind), []).append(finding)
    lines = []
    for (severity, kind), alike in by_kind.items():
        lines += _kind_lines(_LABELS[severity], kind, alike)
    return lines


def _kind_lines(label: str, kind: str, findings: Iterable[Finding]) -> list[str]:
    """One line, and one of advice where it is new, for findings that differ in nothing but their place."""
    alike: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        alike.setdefault((finding.what, finding.advice), []).append(finding.where)
    lines, before = [], ""
    for (what, advice), places in list(alike.items())[:MOST_LINES]:
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        place = f"{_cut(places[0], 100)}{more}: " if places[0] else ""
        lines.append(f"  {label:7} {place}{short(what)}")
        if advice and advice != before:
            lines.append(f"          → {short(advice)}")
        before = advice
    return lines + rest_line(len(alike) - MOST_LINES, f"of {kind}")


def rest_line(count: int, of: str) -> list[str]:
    """What stands in the place of `count` more lines; nothing for none."""
    return [f"          … and {count} more {of} (--json has all)"] if count > 0 else []


def short(text: str) -> str:
    """A text of a file with its long names cut, and then cut itself."""
    cut = re.sub(rf"\S{{{_LONGEST_NAME + 1},}}", lambda name: name[0][: _LONGEST_NAME - 1] + "…", text)
    return _cut(cut)


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
