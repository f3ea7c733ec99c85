"""What a test shows of a report that did not pass: each failed output with its worst elements, in a block one can read."""

from __future__ import annotations

from ..record import FAILED, PASSED, Cell, Report
from .advice import Advisor
from .plain_text import cut, lines_of, one_line
from .quantities import exactly, shape, sizes, used
from .summary import headline, worst_first
from .tables import table

__all__ = ["failure"]

MOST_CELLS = 4
LONGEST = 400
LONGEST_CONCLUSION = 2_500  # of a bisection, which is read to its end
LOG_LINES = 12


def failure(report: Report) -> str:
    """The text of an AssertionError."""
    title = f"{_line(report.model)} against {_line(report.onnx)}" if report.onnx else _line(report.model)
    lines = [f"{report.verdict.upper()}: {title} ({headline(report)})"]
    advisor = Advisor(report)
    wrong = [c for c in worst_first(report.cells) if c.verdict != PASSED]
    for cell in wrong[:MOST_CELLS]:
        lines += ["", *_cell(cell, advisor.of(cell))]
    if len(wrong) > MOST_CELLS:
        lines += ["", f"… and {len(wrong) - MOST_CELLS} more outputs that did not pass"]
    for b in report.backends:
        if b.required and b.missing:
            lines += ["", f"not checked, {_line(b.name)} (required): {_line(b.missing)}"]
    for f in sorted(report.findings, key=lambda f: f.severity != FAILED):
        lines += [
            "",
            f"{f.severity}, {_line(f.kind)}{f', {_line(f.where)}' if f.where else ''}: {_line(f.text)}",
        ]
        lines += [f"    → {_line(f.advice)}"] if f.advice else []
        lines += [f"    | {cut(s, 120)}" for s in lines_of(f.log)[-LOG_LINES:]]
    for r in report.latency.ratios if report.latency is not None else ():
        if r.verdict not in (PASSED, "none"):
            lines += ["", f"{r.verdict}, {_line(r.candidate)} against {_line(r.against)}: {_line(r.reason)}"]
    for b2 in report.bisections:
        if b2.culprit is not None:
            c = b2.culprit
            where = ", ".join(_line(p) for p in (c.module, c.line) if p)
            which = f"one of {len(c.among)} nodes up to" if c.among else "node"
            place = f", from {where}" if where else ""
            lines += ["", f"begins at {which} {_line(c.node)} ({_line(c.op_type)}){place}"]
        if b2.text:
            lines += [
                *([] if b2.culprit is not None else [""]),
                f"    {cut(one_line(b2.text), LONGEST_CONCLUSION)}",
            ]
    return "\n".join(lines)


def _cell(c: Cell, advice: str) -> list[str]:
    label = " ".join(_line(p) for p in (c.subject, c.output) if p)
    lines = [f"{c.verdict}, {label} at {_line(c.sample)} on {_line(c.backend)}: {_line(c.reason)}"]
    m = c.metrics
    if m is not None:
        kind = f"{_line(c.dtype)}{shape(c.shape)}" + (
            f", judged as {_line(c.judged_as)}" if c.judged_as != "values" else ""
        )
        lines.append(f"    {kind}: {sizes(c).said('max_abs', 'max_rel', 'rms')}budget used {used(c)}")
        rows = [(shape(w.index), exactly(w.got), exactly(w.want), f"{w.got - w.want:+.3g}") for w in m.worst]
        if rows:
            head = ("worst at", "got", "expected", "difference")
            lines += [f"    {line}" for line in table(head, rows, right=("got", "expected", "difference"))]
        if c.budget is not None:
            lines.append(f"    budget: {_line(c.budget.source)}")
    if advice:
        lines.append(f"    → {_line(advice)}")
    return lines


def _line(text: str) -> str:
    return cut(one_line(text), LONGEST)
