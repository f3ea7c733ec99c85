"""The report as JUnit XML, in the subset that GitHub, GitLab and Jenkins all show.

There is no one schema. What every reader takes: ``testsuites > testsuite > testcase``, counts as attributes, and under a
case at most one of ``failure``, ``error``, ``skipped``, then ``system-out``. A cell that is *not checked* is ``skipped``.
The file has a failure or an error exactly where the exit code is not 0: a required backend that is missing is an ``error``,
as is a matrix too sparse to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from ..latency.record import LatencyRecord
from ..record import FAILED, NOT_CHECKED, PASSED, Bisection, Cell, Report, Verdict
from ..verdict import coverage
from .advice import Advisor
from .plain_text import cut, lines_of, one_line
from .quantities import element, milliseconds, shape, sizes, times, used
from .summary import lost, not_asked_for

__all__ = ["junit"]

LONGEST = 1_000  # characters of a name or message: viewers show one line
LONGEST_OUTPUT = 20_000
MOST_CASES = 20_000
MOST_PROPERTIES = 50  # of each kind, and suites that have them: each suite repeats them


@dataclass(frozen=True, slots=True)
class _Case:
    suite: str
    name: str
    outcome: str  # "passed", "failure", "error", "skipped"
    message: str = ""
    kind: str = ""
    output: str = ""


def junit(report: Report) -> str:
    """One case per cell, finding and latency limit; one suite per backend. Times are left out: nothing was timed for it."""
    cases = list(_distinct(_cases(report)))
    kept, left = cases[:MOST_CASES], len(cases) - MOST_CASES
    if left > 0:
        kept = sorted(cases, key=lambda c: c.outcome in ("passed", "skipped"))[:MOST_CASES]
        message = f"{left} more cases are left out of this file; the JSON report has them all"
        kept.append(_Case("report", "cases left out", "skipped", message))
    checked, every = coverage(report)
    properties = {
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "model": report.model,
        "onnx": report.onnx,
        "schema": report.schema,
        "coverage": f"{checked} of {every} cells",
        **{f"environment.{k}": v for k, v in sorted(report.environment.items())[:MOST_PROPERTIES]},
        **{f"sha256.{f.name}": f.sha256 for f in report.files[:MOST_PROPERTIES]},
    }
    suites: dict[str, list[_Case]] = {}
    for case in kept:
        suites.setdefault(case.suite, []).append(case)
    title = f"deployops: {report.model} against {report.onnx}"
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_value(title)} {_counts(kept)}>",
    ]
    for position, (name, of) in enumerate(suites.items()):
        lines.append(
            f'  <testsuite name={_value(name)} id="{position}" {_counts(of)} skipped="{_skipped(of)}">'
        )
        if position < MOST_PROPERTIES:
            lines.append("    <properties>")
            lines += [
                f"      <property name={_value(k)} value={_value(str(v))}/>" for k, v in properties.items()
            ]
            lines.append("    </properties>")
        for case in of:
            lines += _written(case)
        lines.append("  </testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _distinct(cases: Iterable[_Case]) -> Iterator[_Case]:
    """Viewers take two cases of one name for two runs of one test: the second gets a number."""
    seen: dict[tuple[str, str], int] = {}
    for case in cases:
        key = (case.suite, case.name)
        seen[key] = seen.get(key, 0) + 1
        yield replace(case, name=f"{case.name} ({seen[key]})") if seen[key] > 1 else case


# --- what becomes a case ------------------------------------------------------------------------------------------


def _cases(report: Report) -> Iterator[_Case]:
    advisor = Advisor(report)
    found = {(b.sample, b.output, b.backend): b for b in report.bisections}
    for cell in report.cells:
        bisection = found.get((cell.sample, cell.output, cell.backend))
        yield _cell(cell, advisor.of(cell), bisection)
    for backend in report.backends:
        required = lost(backend, report)
        if (backend.missing and not not_asked_for(backend)) or required:
            why = backend.missing or "nothing of it was checked"
            outcome = "error" if required else "skipped"
            yield _Case(backend.name, "backend", outcome, f"not checked: {why}", NOT_CHECKED)
    outcomes: dict[str, str] = {FAILED: "failure", NOT_CHECKED: "error"}
    for f in report.findings:
        name = f"{f.kind}: {f.where}" if f.where else f.kind
        text = "\n".join(p for p in (f.text, f.advice, f.log) if p)
        yield _Case("findings", name, outcomes.get(f.severity, "passed"), f.text, f.kind, text)
    if report.latency is not None:
        yield from _latency(report.latency)
    if not report.cells:
        yield _Case("report", "cells", "error", "nothing was compared", NOT_CHECKED)
    elif report.verdict == NOT_CHECKED:
        message = "not every output was checked on every backend that must be"
        yield _Case("report", "coverage", "error", message, NOT_CHECKED)


def _cell(cell: Cell, advice: str, bisection: Bisection | None) -> _Case:
    label = " ".join(p for p in (cell.subject, cell.output) if p)
    message = f"not checked: {cell.reason}" if cell.verdict == NOT_CHECKED else cell.reason
    lines = [cell.reason, *_measured(cell)]
    if advice:
        lines.append(advice)
    if bisection is not None:
        lines += _where_it_begins(bisection)
    kind = "parity" if cell.metrics is not None else "run"
    name = f"{label} at {cell.sample}" + (f", {cell.judged_as}" if cell.judged_as != "values" else "")
    return _Case(cell.backend, name, _OUTCOMES[cell.verdict], message, kind, "\n".join(lines))


def _where_it_begins(bisection: Bisection) -> list[str]:
    """The node, where there is one, and the conclusion."""
    lines = [bisection.text] if bisection.text else []
    if bisection.culprit is not None:
        c = bisection.culprit
        which = f"one of {len(c.among)} nodes up to" if c.among else "node"
        lines.insert(0, f"begins to diverge at {which} {c.node} ({c.op_type}) {c.module} {c.line}".rstrip())
    return lines


_OUTCOMES: dict[Verdict, str] = {PASSED: "passed", FAILED: "failure", NOT_CHECKED: "skipped"}


def _measured(cell: Cell) -> list[str]:
    m = cell.metrics
    if m is None:
        return []
    lines = [
        f"{cell.dtype}{shape(cell.shape)}, judged as {cell.judged_as}",
        f"{sizes(cell).said('max_abs', 'max_rel', 'rms', 'cosine')}budget used {used(cell)}",
        f"{m.mismatches} of {m.count} elements out of budget",
    ]
    lines += [f"worst at {shape(w.index)}: {element(w.got)}, expected {element(w.want)}" for w in m.worst]
    if cell.budget is not None:
        lines.append(f"budget: {cell.budget.source}")
    return lines


def _latency(latency: LatencyRecord) -> Iterator[_Case]:
    outcomes: dict[str, str] = {FAILED: "failure", NOT_CHECKED: "error"}
    medians = {(t.candidate, t.sample): t.median for t in latency.timings}
    for r in latency.ratios:
        text = f"{times(r.ratio)} the time of {r.against} ({r.low:.3f} to {r.high:.3f} at {r.confidence:.0%})"
        median = medians.get((r.candidate, r.sample))
        if median is not None:
            text += f", median {milliseconds(median)}"
        message = f"{r.reason or 'over its limit'}: {text}"
        name = f"{r.candidate} against {r.against} at {r.sample}"
        yield _Case("latency", name, outcomes.get(r.verdict, "passed"), message, "latency", text)


# --- XML ----------------------------------------------------------------------------------------------------------


def _counts(cases: list[_Case]) -> str:
    count = {o: sum(c.outcome == o for c in cases) for o in ("failure", "error")}
    return f'tests="{len(cases)}" failures="{count["failure"]}" errors="{count["error"]}" time="0"'


def _skipped(cases: list[_Case]) -> int:
    return sum(c.outcome == "skipped" for c in cases)


def _written(case: _Case) -> list[str]:
    opened = f"    <testcase classname={_value(case.suite)} name={_value(case.name)}"
    inner = []
    if case.outcome in ("failure", "error"):
        start = (
            f"      <{case.outcome} message={_value(case.message)} type={_value(case.kind or 'validation')}>"
        )
        inner.append(f"{start}{_body(case.output or case.message)}</{case.outcome}>")
    elif case.outcome == "skipped":
        inner.append(f"      <skipped message={_value(case.message)}/>")
    elif case.output:
        inner.append(f"      <system-out>{_body(case.output)}</system-out>")
    return [f'{opened} time="0">', *inner, "    </testcase>"] if inner else [f'{opened} time="0"/>']


def _value(text: str) -> str:
    return quoteattr(cut(one_line(text), LONGEST))


def _body(text: str) -> str:
    return escape(cut("\n".join(lines_of(text)), LONGEST_OUTPUT))
