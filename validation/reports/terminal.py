"""The report for a terminal: the verdict, the backends, the worst cells, what to do, where the time goes."""

from __future__ import annotations

import shutil
import sys

from ..record import FAILED, NOT_CHECKED, PASSED, Bisection, Cell, Finding, Report, Verdict
from ..verdict import coverage
from .advice import Advisor
from .lines import MOST_LINES, Lines, named, whole, worded
from .plain_text import cut, lines_of
from .quantities import NOTHING, element, exactly, of_budget, shape, sizes, used
from .summary import BackendSummary, alike_bisections, headline, not_asked_for, summaries, worst_first
from .tables import table
from .terminal_times import say_latency

__all__ = ["text"]

MOST_ROWS = 12  # cells of the table, and distinct reasons below it
MOST_BISECTIONS = 4
FEW_PASSED = 3  # beside cells that did not
LOG_LINES = 6


def text(report: Report, colour: bool = False, width: int | None = None) -> str:
    """The report as lines.

    Args:
        colour: paint the verdicts with ANSI escape sequences.
        width: columns to fit into; 0 for no limit. None: those of the terminal, no limit where the output is none.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    page = Lines(colour, width)
    verdict = report.verdict
    title = f"{named(report.model)} against {named(report.onnx)}" if report.onnx else named(report.model)
    page.say(f"{page.paint(verdict.upper(), verdict)}: {title} ({headline(report)})")
    _backends(page, report)
    _cells(page, report)
    _reasons(page, report)
    _findings(page, report.findings)
    for alike in alike_bisections(report)[:MOST_BISECTIONS]:
        _bisection(page, alike[0], [b.backend for b in alike])
    if report.latency is not None:
        say_latency(page, report.latency)
    _remarks(page, report)
    if len(page.lines) > 24:  # the first line has left the screen
        page.gap()
        page.say(f"{page.paint(verdict.upper(), verdict)} ({headline(report)}), exit code {report.exit_code}")
    return "\n".join(page.lines)


# --- the matrix ---------------------------------------------------------------------------------------------------


def _cells(page: Lines, report: Report) -> None:
    head = (
        "verdict",
        "output",
        "sample",
        "backend",
        "dtype",
        "max abs",
        "max rel",
        "scale ULPs",
        "budget used",
        "worst at",
    )
    ordered = worst_first(report.cells)
    if not ordered:
        return
    bad = sum(c.verdict != PASSED for c in ordered)
    shown = min(MOST_ROWS, bad + FEW_PASSED) if bad else MOST_ROWS
    page.gap()
    page.lines += table(
        head,
        [_row(c) for c in ordered[:shown]],
        width=page.width,
        right=("max abs", "max rel", "scale ULPs", "budget used"),
        flexible=("output", "sample", "backend", "worst at"),
        optional=("max rel", "scale ULPs", "worst at", "dtype", "max abs"),
        paint=page.paint,
    )
    rest = ordered[shown:]
    if rest:
        kinds = ", ".join(f"{sum(c.verdict == v for c in rest)} {v}" for v in (FAILED, NOT_CHECKED, PASSED))
        page.say(f"… and {len(rest)} more ({kinds})")


def _row(c: Cell) -> tuple[str, ...]:
    m = c.metrics
    output = f"{c.subject} {c.output}" if c.subject else c.output
    if c.judged_as != "values":
        output += f" ({c.judged_as})"
    row = (c.verdict, named(output), named(c.sample), named(c.backend), named(c.dtype))
    if m is None:
        return (*row, "", "", "", "", "")
    if m.identical:
        by = sizes(c)
        return (*row, by.max_abs, by.max_rel, by.scale_ulps, used(c), "identical" if m.count else "empty")
    worst = ""
    if m.worst:
        at = m.worst[0]
        shown = element if element(at.got) != element(at.want) else exactly
        worst = f"{shape(at.index)}: {shown(at.got)}, not {shown(at.want)}"
    by = sizes(c)
    if by.max_rel == NOTHING:
        return (*row, by.max_abs, by.max_rel, by.scale_ulps, used(c), named(worst))
    return (*row, f"{m.max_abs:.1e}", f"{m.max_rel:.1e}", by.scale_ulps, used(c), named(worst))


def _backends(page: Lines, report: Report) -> None:
    """One line per backend, where there is more than one or some could not be used."""
    found = summaries(report)[:MOST_LINES]
    if len(found) < 2 and not any(s.missing for s in found):
        return
    page.gap()
    ran = [s for s in found if not s.missing or s.worst is not None]
    if ran:
        page.lines += table(
            ("backend", "required", "failed", "not checked", "passed", "worst"),
            [_backend(s) for s in ran],
            width=page.width,
            right=("failed", "not checked", "passed"),
            flexible=("backend", "worst"),
            optional=("required", "worst"),
        )
    idle = [s for s in found if not_asked_for(s)]
    for s in found:
        if s.missing and s not in idle:
            need = " (required)" if s.required else ""
            page.say(f"not checked, {named(s.name)}{need}: {worded(s.missing)}")
    if idle:
        page.say(f"not asked for: {', '.join(named(s.name) for s in idle)}; --backend NAME runs one")


def _backend(s: BackendSummary) -> tuple[str, ...]:
    worst = ""
    if s.worst is not None and (s.worst.verdict != PASSED or s.worst.used > 0):
        part = f": {words}" if (words := of_budget(s.worst)) else ""
        worst = f"{named(s.worst.output)} at {named(s.worst.sample)}{part}"
    counts = [str(s.counts[v]) for v in (FAILED, NOT_CHECKED, PASSED)]
    return (named(s.name), "required" if s.required else "", *counts, worst)


# --- what is wrong ------------------------------------------------------------------------------------------------


def _reasons(page: Lines, report: Report) -> None:
    """One entry per distinct reason, with the cells it holds for counted, and what to do."""
    advisor = Advisor(report)
    found: dict[tuple[Verdict, str, str], list[Cell]] = {}
    for c in worst_first(report.cells):
        if c.verdict != PASSED:
            found.setdefault((c.verdict, c.reason, advisor.of(c)), []).append(c)
    if not found:
        return
    page.gap()
    entries = list(found.items())[:MOST_ROWS]
    for k, ((verdict, reason, advice), of) in enumerate(entries):
        where = f"{named(of[0].output)} at {named(of[0].sample)}" + (
            f" and {len(of) - 1} more" if len(of) > 1 else ""
        )
        page.say(f"{page.paint(verdict, verdict)}, {where}: {worded(reason)}", "    ")
        if advice and (k + 1 == len(entries) or entries[k + 1][0][2] != advice):
            page.say(f"    → {worded(advice)}", "      ")
    if len(found) > MOST_ROWS:
        page.say(f"… and {len(found) - MOST_ROWS} more reasons: they are in the JSON and HTML reports")


def _findings(page: Lines, findings: tuple[Finding, ...]) -> None:
    if not findings:
        return
    page.gap()
    rank: dict[str, int] = {FAILED: 0, NOT_CHECKED: 1}
    ordered = sorted(findings, key=lambda f: rank.get(f.severity, 2))
    for f in ordered[:MOST_ROWS]:
        where = f", {named(f.where)}" if f.where else ""
        page.say(f"{page.paint(f.severity, f.severity)}, {named(f.kind)}{where}: {worded(f.text)}", "    ")
        if f.advice:
            page.say(f"    → {worded(f.advice)}", "      ")
        for line in lines_of(f.log)[-LOG_LINES:]:
            page.lines.append(f"    | {cut(line, (page.width or 132) - 6)}")
    if len(ordered) > MOST_ROWS:
        page.say(f"… and {len(ordered) - MOST_ROWS} more findings: they are in the JSON and HTML reports")


def _bisection(page: Lines, b: Bisection, backends: list[str]) -> None:
    page.gap()
    page.say(
        f"where {named(b.output)} at {named(b.sample)} begins to diverge on {' and '.join(map(named, backends))}:"
    )
    c = b.culprit
    if c is not None:
        kind = f"{named(c.domain)}::{named(c.op_type)}" if c.domain else named(c.op_type)
        which = f"one of {len(c.among)} nodes, the last of which is" if c.among else "node"
        page.say(f"  {which} {named(c.node)} ({kind}), its output {named(c.output)}", "    ")
        if c.module or c.line:
            page.say(f"  from {', '.join(whole(p) for p in (c.module, c.line) if p)}", "    ")
        if c.reason and c.reason not in b.text:
            page.say(f"  {worded(c.reason)}", "    ")
        for v in c.inputs[:MOST_ROWS]:
            special = "".join(f", {n} {what}" for n, what in ((v.nan, "NaN"), (v.inf, "Inf")) if n)
            page.say(
                f"  input {named(v.name)}: {named(v.dtype)}{shape(v.shape)}, "
                f"{element(v.low)} to {element(v.high)}{special}",
                "    ",
            )
    if b.text:
        page.say(f"  {whole(b.text)}", "    ")
    page.say(f"  {b.runs} runs, {b.nodes} nodes, held against {worded(b.reference)}", "    ")


# --- what to know besides -----------------------------------------------------------------------------------------


def _remarks(page: Lines, report: Report) -> None:
    page.gap()
    checked, every = coverage(report)
    if every and checked < every:
        page.say(f"coverage: {checked} of {every} cells of the matrix were checked")
    sources = dict.fromkeys(c.budget.source for c in report.cells if c.budget and not c.budget.exact)
    for source in list(sources)[:3]:
        page.say(f"budget: {worded(source)}")
    for note in report.notes[:MOST_LINES]:
        page.say(f"note: {worded(note)}")
    if len(report.notes) > MOST_LINES:
        page.say(f"… and {len(report.notes) - MOST_LINES} more notes: they are in the JSON and HTML reports")
