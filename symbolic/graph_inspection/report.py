"""The findings as lines for a terminal: the worst first, equal ones together, long lists cut with their count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from .findings import FAILS, HURTS, NOTE, Finding, Severity

__all__ = ["Checked", "report_lines", "short"]

MOST_LINES = 10  # of one kind
_LABELS: dict[Severity, str] = {FAILS: "FAILS", HURTS: "hurts", NOTE: "note"}
_LONGEST = 400  # characters of a text, and of a name in it: those of a hostile file can be of any length
_LONGEST_NAME = 200


class Checked(Protocol):
    """What was found of a model for one runtime.

    `label`: of the lines of `operators`. `title`: of the runtime. `hurting`: what a finding that hurts does.
    """

    @property
    def label(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def hurting(self) -> str: ...
    @property
    def operators(self) -> Sequence[object]: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def not_checked(self) -> Sequence[str]: ...


def report_lines(checked: Checked) -> list[str]:
    """All of it. Not escaped: texts of the file are in them."""
    operators = checked.operators
    return [
        *(f"  {checked.label:7} {short(str(operator))}" for operator in operators[:MOST_LINES]),
        *_rest_line(len(operators) - MOST_LINES, "operators"),
        f"  runtime {checked.title}: {_counted(checked.findings, checked.hurting) or 'nothing found'}",
        *_finding_lines(checked.findings),
        *(f"  not checked: {short(text)}" for text in checked.not_checked),
    ]


def _counted(findings: Iterable[Finding], hurting: str) -> str:
    """`2 would fail, 1 cost speed`."""
    counts = Counter(finding.severity for finding in findings)
    words: dict[Severity, str] = {FAILS: "would fail", HURTS: hurting, NOTE: "to know"}
    return ", ".join(f"{counts[s]} {word}" for s, word in words.items() if counts[s])


def _finding_lines(findings: Sequence[Finding]) -> list[str]:
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
    return lines + _rest_line(len(alike) - MOST_LINES, f"of {kind}")


def _rest_line(count: int, of: str) -> list[str]:
    """What stands in the place of `count` more lines; nothing for none."""
    return [f"          … and {count} more {of} (--json has all)"] if count > 0 else []


def short(text: str) -> str:
    """A text of a file with its long names cut, and then cut itself."""
    cut = re.sub(rf"\S{{{_LONGEST_NAME + 1},}}", lambda name: name[0][: _LONGEST_NAME - 1] + "…", text)
    return _cut(cut)


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
