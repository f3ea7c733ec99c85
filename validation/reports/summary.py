"""What every rendering says first: per backend the counts and the worst cell, the worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..record import FAILED, NOT_CHECKED, PASSED, BackendRecord, Bisection, Cell, Report, Verdict

__all__ = [
    "VERDICTS",
    "BackendSummary",
    "alike_bisections",
    "counted",
    "headline",
    "lost",
    "not_asked_for",
    "summaries",
    "worst_first",
    "worst_verdict",
]

VERDICTS: tuple[Verdict, ...] = (FAILED, NOT_CHECKED, PASSED)
# of `bisection.wording`, which is not imported to render a saved report
_WHOSE_FAULT = ("the file says something else than the original", "or its library, computes another")
_ORDER = {verdict: k for k, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True)
class BackendSummary:
    """One line of the matrix.

    Attributes:
        record: None for a backend that has cells but was not announced.
        counts: cells by verdict.
        worst: the cell to look at first; None where there is none.
    """

    name: str
    record: BackendRecord | None
    verdict: Verdict
    counts: dict[Verdict, int]
    worst: Cell | None

    @property
    def required(self) -> bool:
        return self.record is not None and self.record.required

    @property
    def missing(self) -> str:
        return self.record.missing if self.record is not None else ""


def worst_first(cells: Iterable[Cell]) -> list[Cell]:
    """Failed, not checked, passed; in each the largest part of the budget first."""
    return sorted(cells, key=lambda c: (_ORDER[c.verdict], -c.used if c.used == c.used else 0.0))


def counted(cells: Iterable[Cell]) -> dict[Verdict, int]:
    """Cells by verdict, the worst verdict first."""
    found = dict.fromkeys(VERDICTS, 0)
    for cell in cells:
        found[cell.verdict] += 1
    return found


def worst_verdict(cells: Iterable[Cell]) -> Verdict:
    """Failed if one failed, passed if all did; not checked where there is no cell."""
    found = {c.verdict for c in cells}
    return next((v for v in VERDICTS if v in found), NOT_CHECKED)


def headline(report: Report) -> str:
    """(2 failed, 1 not checked, 45 passed), without the brackets."""
    return ", ".join(f"{n} {v}" for v, n in counted(report.cells).items() if n) or "nothing was compared"


def lost(backend: BackendRecord, report: Report) -> bool:
    """Whether the user required this backend and nothing of it was checked."""
    return backend.required and not any(
        c.backend == backend.name and c.verdict != NOT_CHECKED for c in report.cells
    )


def not_asked_for(backend: BackendSummary | BackendRecord) -> bool:
    """Whether nobody wanted it: that is nothing to be told about in every pipeline."""
    return backend.missing.startswith("not asked for") and not backend.required


def alike_bisections(report: Report) -> list[list[Bisection]]:
    """Those that came to the same on several backends together: the node, and whose fault it is; not every digit."""
    found: dict[tuple[str, ...], list[Bisection]] = {}
    for b in report.bisections:
        c = b.culprit
        blamed = [str(words in b.text) for words in _WHOSE_FAULT]
        came_to = (c.node, c.op_type, c.output, *blamed) if c is not None else (b.text,)
        found.setdefault((b.sample, b.output, *came_to), []).append(b)
    return list(found.values())


def summaries(report: Report) -> list[BackendSummary]:
    """Every backend, the worst first, those that could not be used last unless they were required."""
    records = {b.name: b for b in report.backends}
    by_name: dict[str, list[Cell]] = {name: [] for name in records}
    for cell in report.cells:
        by_name.setdefault(cell.backend, []).append(cell)
    found = []
    for name, cells in by_name.items():
        ordered = worst_first(cells)
        first = ordered[0] if ordered else None
        found.append(BackendSummary(name, records.get(name), worst_verdict(cells), counted(cells), first))

    def rank(s: BackendSummary) -> tuple[int, float]:
        idle = s.worst is None and not s.required
        return (3 if idle else _ORDER[s.verdict], -s.worst.used if s.worst and s.worst.used > 0 else 0.0)

    return sorted(found, key=rank)
