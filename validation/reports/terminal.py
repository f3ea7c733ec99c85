"""The report as a table for a terminal: worst first, what to do under each failure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..latency.record import LatencyRecord
from ..record import Cell

if TYPE_CHECKING:
    from ..record import Report

__all__ = ["text"]

MOST_ROWS = 12


def text(report: Report) -> str:
    """A table, worst first, that fits a terminal."""
    counts = {v: sum(c.verdict == v for c in report.cells) for v in ("failed", "not checked", "passed")}
    summary = ", ".join(f"{n} {v}" for v, n in counts.items() if n) or "nothing was compared"
    lines = [f"{report.verdict.upper()}: {report.model} against {report.onnx} ({summary})", ""]
    lines += _table(_rows(report.cells))
    lines += _reasons(report.cells)
    sources = dict.fromkeys(c.budget.source for c in report.cells if c.budget and not c.budget.exact)
    if sources:
        lines += ["", *(f"budget: {s}" for s in list(sources)[:3])]
    lines += [f"note: {n}" for n in report.notes]
    if report.latency is not None:
        lines += ["", *_latency(report.latency)]
    return "\n".join(lines)


_ORDER = {"failed": 0, "not checked": 1, "passed": 2}


def _sorted(cells: tuple[Cell, ...]) -> list[Cell]:
    return sorted(cells, key=lambda c: (_ORDER[c.verdict], -c.used))


def _rows(cells: tuple[Cell, ...]) -> list[list[str]]:
    head = [
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
    ]
    ordered = _sorted(cells)
    rows = [_row(c) for c in ordered[:MOST_ROWS]]
    if len(ordered) > MOST_ROWS:
        rest = ordered[MOST_ROWS:]
        kinds = ", ".join(f"{sum(c.verdict == v for c in rest)} {v}" for v in _ORDER)
        rows.append([f"… and {len(rest)} more ({kinds})"])
    return [head, *rows]


def _row(c: Cell) -> list[str]:
    m = c.metrics
    row = [c.verdict, c.output, c.sample, c.backend, c.dtype]
    if m is None:
        return [*row, "", "", "", "", ""]
    if m.identical:
        return [*row, "0", "0", "0", "0 %", "empty" if not m.count else "identical"]
    used = "over" if math.isinf(c.used) else f"{c.used:.0%}" if c.used < 100 else f"{c.used:.1g}×"
    worst = ""
    if m.worst is not None:
        worst = f"{list(m.worst.index)}: {m.worst.got:.6g}, not {m.worst.want:.6g}"
    return [*row, f"{m.max_abs:.1e}", f"{m.max_rel:.1e}", f"{c.scale_ulps:.3g}", used, worst]


def _table(rows: list[list[str]]) -> list[str]:
    full = [r for r in rows if len(r) > 1]
    widths = [max(len(r[i]) for r in full) for i in range(len(full[0]))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=False)).rstrip() if len(r) > 1 else r[0]
        for r in rows
    ]


def _reasons(cells: tuple[Cell, ...]) -> list[str]:
    """One line per distinct reason, with the cells it holds for counted."""
    found: dict[tuple[str, str], list[Cell]] = {}
    for c in _sorted(cells):
        if c.verdict != "passed":
            found.setdefault((c.verdict, c.reason), []).append(c)
    lines = []
    for (verdict, reason), of in list(found.items())[:MOST_ROWS]:
        where = f"{of[0].output} at {of[0].sample}" + (f" and {len(of) - 1} more" if len(of) > 1 else "")
        lines.append(f"{verdict}, {where}: {reason}")
    return ["", *lines] if lines else []


def _latency(latency: LatencyRecord) -> list[str]:
    lines = [f"latency, {latency.threads} thread{'s' if latency.threads > 1 else ''} each:"]
    for t in latency.timings:
        flag = f"  unstable: {t.unstable}" if t.unstable else ""
        lines.append(
            f"  {t.candidate:13} at {t.sample}: median {t.median:.3g} ms, p90 {t.p90:.3g} ms, {len(t.times)} runs{flag}"
        )
    return lines + [
        f"  {r.candidate} takes {r.ratio:.2f} × the time of {r.against} ({r.low:.2f} to {r.high:.2f})"
        for r in latency.ratios
    ]
