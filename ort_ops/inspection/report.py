"""What was found for ONNX Runtime as lines for a terminal."""

from __future__ import annotations

from ...symbolic.graph_inspection.findings import FAILS, HURTS, NOTE, Severity
from ...symbolic.graph_inspection.report import MOST_LINES, counted, finding_lines, rest_line, short
from .check import Checked

__all__ = ["report_lines"]

_WORDS: dict[Severity, str] = {FAILS: "would fail", HURTS: "cost speed", NOTE: "to know"}


def report_lines(checked: Checked) -> list[str]:
    """Not escaped: texts of the file are in them."""
    runtime = checked.runtime
    source = "" if runtime.source == "given" else f" ({runtime.source})"
    lines = [f"  custom  {short(str(operator))}" for operator in checked.operators[:MOST_LINES]]
    lines += rest_line(len(checked.operators) - MOST_LINES, "custom operators")
    found = counted(checked.findings, _WORDS) or "nothing found"
    lines.append(f"  runtime ONNX Runtime {runtime.version}{source}, {checked.session.provider}: {found}")
    return [
        *lines,
        *finding_lines(checked.findings),
        *(f"  not checked: {short(text)}" for text in checked.not_checked),
    ]
