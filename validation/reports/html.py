"""The report as one page of HTML: no network, no script, readable on a phone and on paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..latency.record import LatencyRecord, ModuleTime
from ..parity.difference import QUANTILES, Metrics
from ..record import FAILED, NOT_CHECKED, PASSED, Cell, Report
from ..verdict import coverage
from . import charts, quantities
from .advice import Advisor
from .matrix import matrix
from .plain_text import cut, lines_of, one_line
from .summary import alike_bisections, headline, lost, not_asked_for, summaries, worst_first
from .svg import finite

if TYPE_CHECKING:
    import jinja2

__all__ = ["html"]

# A page of 5,000 cells is read from its worst end; the JSON has the rest, and the page says so.
MOST_ROWS = 200
MOST_CELLS = 200
MOST_DETAILS = 16
FEW_PASSED = 4  # whose errors are shown in detail although they passed
MOST_CHARTS = 12
MOST_FINDINGS = 100
MOST_NODES = 16
MOST_MODULES = 40
LONGEST_NAME = 160
LONGEST_TEXT = 1_000
LOG_LINES = 40


def html(report: Report) -> str:
    """The page. Every text in it is escaped, and control characters are written out: names come from strangers."""
    checked, every = coverage(report)
    ordered = worst_first(report.cells)
    advisor = Advisor(report)
    found = summaries(report)
    wanted = [s for s in found if not not_asked_for(s)]
    return _template().render(
        report=report,
        words={FAILED: "failed", NOT_CHECKED: "not checked", PASSED: "passed"},
        icons={FAILED: "f", NOT_CHECKED: "n", PASSED: "p"},
        headline=headline(report),
        checked=checked,
        every=every,
        reasons=_reasons(ordered, advisor),
        backends=[(s, lost(s.record, report) if s.record else False) for s in wanted],
        idle=[s.name for s in found if not_asked_for(s)][:MOST_ROWS],
        matrix=matrix(report, MOST_ROWS),
        cells=ordered[:MOST_CELLS],
        cells_left=max(0, len(ordered) - MOST_CELLS),
        details=_details(ordered),
        findings=_findings(report),
        bisections=alike_bisections(report),
        findings_left=max(0, len(report.findings) - MOST_FINDINGS),
        latency=_latency(report.latency) if report.latency is not None else None,
        limits=_limits(report),
        budgets=list(dict.fromkeys(c.budget.source for c in report.cells if c.budget and not c.budget.exact))[
            :8
        ],
        most_nodes=MOST_NODES,
        most_rows=MOST_ROWS,
        q=quantities,
    )


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["name"] = lambda text: cut(one_line(text), LONGEST_NAME)
    made.filters["text"] = lambda text: cut(one_line(text), LONGEST_TEXT)
    made.filters["log"] = lambda text: "\n".join(cut(s, 400) for s in lines_of(text)[-LOG_LINES:])
    return made.get_template("report.html.j2")


@dataclass(frozen=True, slots=True)
class _Reason:
    verdict: str
    reason: str
    advice: str
    first: Cell
    count: int


def _reasons(ordered: list[Cell], advisor: Advisor) -> tuple[list[_Reason], int]:
    """Distinct reasons of what did not pass, the worst first, and how many are left out."""
    found: dict[tuple[str, str, str], list[Cell]] = {}
    for c in ordered:
        if c.verdict != PASSED:
            found.setdefault((c.verdict, c.reason, advisor.of(c)), []).append(c)
    made = [_Reason(*key, of[0], len(of)) for key, of in found.items()]
    return made[:MOST_FINDINGS], max(0, len(made) - MOST_FINDINGS)


@dataclass(frozen=True, slots=True)
class _Detail:
    cell: Cell
    metrics: Metrics
    chart: Any
    quantiles: str


def _details(ordered: list[Cell]) -> list[_Detail]:
    found: list[_Detail] = []
    for cell in ordered:
        m, budget = cell.metrics, cell.budget
        if m is None or m.identical:
            continue
        if len(found) >= (FEW_PASSED if cell.verdict == PASSED else MOST_DETAILS):
            break
        # 2**k overflows a float from 1024 on, where a hostile report may put it
        bins = [(2.0**k, 2.0 ** (k + 1), n) for k, n in m.histogram if abs(k) < 1000]
        tolerance = budget.atol if budget is not None and not budget.exact else None
        chart = charts.histogram(
            "Elements by the size of their error (all below in the first bar)", bins, tolerance
        )
        quantiles = ", ".join(
            f"{part:.1%} {quantities.number(value)}"
            for part, value in zip(QUANTILES, m.quantiles, strict=False)
        )
        found.append(_Detail(cell, m, _markup(chart), quantiles))
    return found


def _findings(report: Report) -> list[Any]:
    rank: dict[str, int] = {FAILED: 0, NOT_CHECKED: 1}
    return sorted(report.findings, key=lambda f: rank.get(f.severity, 2))[:MOST_FINDINGS]


def _limits(report: Report) -> list[tuple[str, str]]:
    names = {
        "atol": "absolute tolerance",
        "rtol": "relative tolerance",
        "max_slowdown": "slowdown at most",
        "min_speedup": "speed-up at least",
        "max_regression": "regression at most",
    }
    return [
        (text, quantities.number(value))
        for name, text in names.items()
        if (value := getattr(report.limits, name)) is not None
    ]


def _markup(text: str) -> Any:
    """SVG of `charts`, which escaped its texts."""
    from markupsafe import Markup

    return Markup(text)


# --- time ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Latency:
    record: LatencyRecord
    distributions: list[Any]
    intervals: Any
    rooflines: list[Any]
    profiles: list[Any]
    modules: tuple[ModuleTime, ...]
    modules_left: int
    candidates: list[str]  # that the modules' times are of


def _latency(latency: LatencyRecord) -> _Latency:
    samples = list(dict.fromkeys(t.sample for t in latency.timings))[:MOST_CHARTS]
    spread = [
        charts.distributions(
            f"Times at {cut(sample, 60)}",
            [(t.candidate, t.times, t.median, t.p90) for t in latency.timings if t.sample == sample],
        )
        for sample in samples
    ]
    # a limit is drawn once, where every row is held to it
    ratios = charts.intervals(
        "Ratio of medians, with its confidence interval",
        [
            (f"{r.candidate} vs {r.against}{_at(r.sample, latency)}", r.ratio, r.low, r.high, r.verdict)
            for r in latency.ratios
        ],
    )
    profiles = [
        charts.shares(
            f"{p.candidate} at {cut(p.sample, 60)}: {quantities.milliseconds(p.total)} per run",
            [
                (f"{n.op_type} {n.name}".strip(), n.share, quantities.milliseconds(n.time), n.custom)
                for n in p.nodes[:MOST_NODES]
            ],
        )
        for p in latency.profiles[:MOST_CHARTS]
    ]
    modules = sorted(latency.modules, key=lambda m: -max(finite(m.times.values()), default=0.0))
    return _Latency(
        latency,
        [_markup(s) for s in spread if s],
        _markup(ratios),
        [_markup(s) for s in _rooflines(latency) if s],
        [(p, _markup(s)) for p, s in zip(latency.profiles, profiles, strict=False)],
        tuple(modules[:MOST_MODULES]),
        max(0, len(modules) - MOST_MODULES),
        list(dict.fromkeys(c for m in modules for c in m.times))[:MOST_NODES],
    )


def _at(sample: str, latency: LatencyRecord) -> str:
    """Where there is one sample only, its name says nothing."""
    return f" at {sample}" if len({r.sample for r in latency.ratios}) > 1 else ""


def _rooflines(latency: LatencyRecord) -> list[str]:
    """One plot per candidate, of what was measured on this machine."""
    if latency.copy_bandwidth is None:
        return []
    found: dict[str, list[tuple[str, float, float]]] = {}
    for r in latency.rooflines:
        if r.share and r.floor > 0 and r.bytes > 0 and r.flops > 0 and not r.machine:
            seconds = r.floor / r.share / 1e3
            point = (r.subject or f"whole model at {r.sample}", r.flops / r.bytes, r.flops / seconds)
            found.setdefault(r.candidate, []).append(point)
    return [
        charts.roofline(f"Roofline of {name}", latency.copy_bandwidth, latency.peak_flops, points)
        for name, points in list(found.items())[:MOST_CHARTS]
    ]
