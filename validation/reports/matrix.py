"""The matrix sample × backend: in each place the worst of the outputs."""

from __future__ import annotations

from dataclasses import dataclass

from ..record import FAILED, NOT_CHECKED, Cell, Report, Verdict
from .summary import summaries, worst_first, worst_verdict

__all__ = ["Matrix", "Place", "Row", "matrix"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row and a column meet; `worst` is None where nothing was run."""

    verdict: Verdict | None
    worst: Cell | None
    cells: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A sample, of the model or of one operator alone."""

    subject: str
    sample: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Attributes: `backends` are the columns; `rows` the samples in the order they were run; `left` rows left out."""

    backends: tuple[str, ...]
    rows: tuple[Row, ...]
    left: int = 0


def matrix(report: Report, most_rows: int) -> Matrix:
    """Rows in the order of the runs; where there are too many, those without a failure are left out first."""
    names = [s.name for s in summaries(report) if s.worst is not None]
    # the order in which the report announces its backends, not the worst first: columns keep their place
    announced = [b.name for b in report.backends if b.name in names]
    columns = (*announced, *(n for n in dict.fromkeys(c.backend for c in report.cells) if n not in announced))
    found: dict[tuple[str, str], dict[str, list[Cell]]] = {}
    for cell in report.cells:
        found.setdefault((cell.subject, cell.sample), {}).setdefault(cell.backend, []).append(cell)
    rows = [
        Row(subject, sample, tuple(_place(of.get(name, [])) for name in columns))
        for (subject, sample), of in found.items()
    ]
    if len(rows) > most_rows:
        rank: dict[str, int] = {FAILED: 0, NOT_CHECKED: 1}
        order = sorted(
            range(len(rows)), key=lambda k: min(rank.get(p.verdict or "", 2) for p in rows[k].places)
        )
        return Matrix(columns, tuple(rows[k] for k in sorted(order[:most_rows])), len(rows) - most_rows)
    return Matrix(columns, tuple(rows))


def _place(cells: list[Cell]) -> Place:
    if not cells:
        return Place(None, None)
    return Place(worst_verdict(cells), worst_first(cells)[0], len(cells))
