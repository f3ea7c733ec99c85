"""The outcome of all checks as text: a table, and below it what is wrong and what was not checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .tally import CheckResult, Status

__all__ = ["render"]

_WORST_FIRST: tuple[Status, ...] = ("failed", "not checked", "passed")
_CELLS = {"failed": "FAILED", "not checked": "not checked", "passed": "passed"}


def render(results: Sequence[CheckResult]) -> str:
    """A table of operators × checks, the worst first; below it every failure, and what was not checked."""
    checks = list(dict.fromkeys(r.check for r in results))
    rows: dict[str, dict[str, CheckResult]] = {}
    for r in results:
        rows.setdefault(r.operator, {})[r.check] = r
    ordered = sorted(rows, key=lambda name: (_rank(rows[name].values()), name))
    table = [["operator", *checks]]
    table += [
        [name, *(_CELLS[rows[name][c].status] if c in rows[name] else "" for c in checks)] for name in ordered
    ]
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
    lines.insert(1, "  ".join("-" * w for w in widths))
    sorted_results = [r for name in ordered for r in rows[name].values()]
    for title in ("failed", "not checked"):
        lines += _listed(title, [r for r in sorted_results if r.status == title])
    partly = [r for r in sorted_results if r.status == "passed" and "not checked" in r.detail]
    lines += _listed("passed in part", partly)
    counts = ", ".join(f"{sum(r.status == s for r in results)} {s}" for s in reversed(_WORST_FIRST))
    return "\n".join([*lines, "", f"{len(rows)} operator{'' if len(rows) == 1 else 's'}: {counts}"])


def _listed(title: str, results: Sequence[CheckResult]) -> list[str]:
    """The details; what several checks of an operator have to say alike is said once."""
    together: dict[tuple[str, str], list[str]] = {}
    for r in results:
        together.setdefault((r.operator, r.detail), []).append(r.check)
    told = [
        f"  {operator} · {', '.join(checks)}: " + detail.replace("\n", "\n    ")
        for (operator, detail), checks in together.items()
    ]
    return ["", f"{title}:", *told] if told else []


def _rank(results: Iterable[CheckResult]) -> tuple[int, ...]:
    """Most failures first, then most that was not checked."""
    statuses = [r.status for r in results]
    return tuple(-statuses.count(s) for s in _WORST_FIRST[:-1])
