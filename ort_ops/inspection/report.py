"""The findings as lines for a terminal: the worst first, equal ones together, long lists cut with their count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from .check import Checked
from .findings import FAILS, HURTS, NOTE, Finding, Severity

__all__ = ["report_lines", "short"]

_LABELS: dict[Severity, str] = {FAILS: "FAILS", HURTS: "hurts", NOTE: "note"}
_MOST_LINES = 10  # of one kind
_LONGEST = 400  # characters of a text, and of a name in it: those of a hostile file can be of any length
_LONGEST_NAME = 200


def report_lines(checked: Checked) -> list[str]:
    """Not escaped: texts of the file are in them."""
    runtime = checked.runtime
    source = "" if runtime.source == "given" else f" ({runtime.source})"
    counts = Counter(finding.severity for finding in checked.findings)
    words: dict[Severity, str] = {FAILS: "would fail", HURTS: "cost speed", NOTE: "to know"}
    summed = ", ".join(f"{counts[s]} {words[s]}" for s in (FAILS, HURTS, NOTE) if counts[s])
    lines = [f"  custom  {short(str(operator))}" for operator in checked.operators[:_MOST_LINES]]
    lines += _rest(len(checked.operators) - _MOST_LINES, "custom operators")
    lines.append(f"  runtime ONNX Runtime {runtime.version}{source}, CPU: {summed or 'nothing found'}")
    by_kind: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in checked.findings:
        by_kind.setdefault((finding.severity, finding.kind), []).append(finding)
    for (severity, kind), findings in by_kind.items():
        lines += _kind_lines(_LABELS[severity], kind, findings)
    return lines + [f"  not checked: {short(text)}" for text in checked.not_checked]


def _kind_lines(label: str, kind: str, findings: Iterable[Finding]) -> list[str]:
    """One line, and one of advice where it is new, for findings that differ in nothing but their place."""
    alike: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        alike.setdefault((finding.what, finding.advice), []).append(finding.where)
    lines, before = [], ""
    for (what, advice), places in list(alike.items())[:_MOST_LINES]:
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        place = f"{_cut(places[0], 100)}{more}: " if places[0] else ""
        lines.append(f"  {label:7} {place}{short(what)}")
        if advice and advice != before:
            lines.append(f"          → {short(advice)}")
        before = advice
    return lines + _rest(len(alike) - _MOST_LINES, f"of {kind}")


def _rest(count: int, of: str) -> list[str]:
    return [f"          … and {count} more {of} (--json has all)"] if count > 0 else []


def short(text: str) -> str:
    """A text of a file with its long names cut, and then cut itself."""
    cut = re.sub(rf"\S{{{_LONGEST_NAME + 1},}}", lambda name: name[0][: _LONGEST_NAME - 1] + "…", text)
    return _cut(cut)


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
