"""The verdict as data, as JSON and as a table."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from .latency import Latency
from .metrics import Metrics
from .parity import Budget

__all__ = ["SCHEMA", "Cell", "Report"]

SCHEMA = "deployops.validation/1"
MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """The verdict on one output of one sample on one backend.

    Attributes:
        output: name in the ONNX graph; "*" for all outputs, where none could be told apart.
        verdict: "passed", "failed" or "not checked".
        reason: why, in the user's terms; may be empty for "passed".
    """

    sample: str
    output: str
    backend: str
    verdict: str
    reason: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    metrics: Metrics | None = None
    budget: Budget | None = None

    @property
    def used(self) -> float:
        """The part of the budget that was used; above 1 is over, infinity where there is none."""
        m, b = self.metrics, self.budget
        if m is None or b is None or m.identical or not m.count:
            return 0.0
        if m.nan or m.inf or b.exact:
            return math.inf
        parts = [m.excess / b.atol if b.atol else (math.inf if m.excess else 0.0)]
        if math.isfinite(b.rms):
            parts.append(m.rms / b.rms if b.rms else (math.inf if m.rms else 0.0))
        return max(parts)

    @property
    def scale_ulps(self) -> float:
        """The largest difference in units of the last place of the output's largest value.

        `metrics.max_ulp` counts in units of each element's own last place and is huge next to a zero.
        """
        m = self.metrics
        if m is None or not m.scale or self.budget is None or self.budget.exact:
            return 0.0
        return m.max_abs / (m.eps * m.scale)


@dataclass(frozen=True, slots=True)
class Report:
    """What a validation found.

    Attributes:
        model, onnx: what was compared.
        cells: in the order of the runs.
        required: backends on which every output must have been compared at least once.
        latency: None where it was not measured.
        environment: versions, threads, seed: what to repeat it with.
        notes: what the reader should know besides.
    """

    model: str
    onnx: str
    cells: tuple[Cell, ...]
    required: tuple[str, ...] = ()
    latency: Latency | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Over all cells: failed if any failed; passed if every output passed on every required backend
        on at least one sample; else not checked."""
        if any(c.verdict == "failed" for c in self.cells):
            return "failed"
        outputs = {c.output for c in self.cells if c.output != "*"}
        passed = {(c.backend, c.output) for c in self.cells if c.verdict == "passed"}
        backends = self.required or tuple({c.backend for c in self.cells})
        complete = all((b, o) in passed for b in backends for o in outputs)
        return "passed" if outputs and complete else "not checked"

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 not checked."""
        return {"passed": 0, "failed": 1, "not checked": 3}[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """For JSON. NaN and infinities become the strings "nan", "inf", "-inf": JSON has no such numbers."""
        out: dict[str, Any] = {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "model": self.model,
            "onnx": self.onnx,
            "environment": self.environment,
            "cells": [asdict(c) | {"used": c.used} for c in self.cells],
            "notes": list(self.notes),
            "latency": None,
        }
        if self.latency is not None:
            out["latency"] = asdict(self.latency) | {"ratio": self.latency.ratio}
        plain: dict[str, Any] = _plain(out)
        return plain

    def text(self) -> str:
        """A table, worst first, that fits a terminal."""
        counts = {v: sum(c.verdict == v for c in self.cells) for v in ("failed", "not checked", "passed")}
        summary = ", ".join(f"{n} {v}" for v, n in counts.items() if n) or "nothing was compared"
        lines = [f"{self.verdict.upper()}: {self.model} against {self.onnx} ({summary})", ""]
        lines += _table(_rows(self.cells))
        lines += _reasons(self.cells)
        sources = dict.fromkeys(c.budget.source for c in self.cells if c.budget and not c.budget.exact)
        if sources:
            lines += ["", *(f"budget: {s}" for s in list(sources)[:3])]
        lines += [f"note: {n}" for n in self.notes]
        if self.latency is not None:
            lines += ["", *_latency(self.latency)]
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


def _latency(latency: Latency) -> list[str]:
    lines = [
        f"latency at {latency.sample}, {latency.threads} thread{'s' if latency.threads > 1 else ''} "
        "each (information, no verdict):"
    ]
    sides = (("PyTorch", latency.original), ("ONNX Runtime", latency.candidate))
    for name, t in sides:
        flag = f"  unstable: {t.unstable}" if t.unstable else ""
        lines.append(f"  {name:13} median {t.median:.3g} ms, p90 {t.p90:.3g} ms, {t.runs} runs{flag}")
    if not latency.unstable:
        lines.append(f"  ONNX Runtime takes {latency.ratio:.2f} × the time of PyTorch")
    lines.append(f"  opening the session took {latency.load_ms:.3g} ms")
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
