"""Numbers as a reader wants them: three significant digits, with a unit, and never a traceback for a hostile one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..record import Cell

__all__ = [
    "NOTHING",
    "Sizes",
    "amount",
    "element",
    "exactly",
    "milliseconds",
    "number",
    "of_budget",
    "percent",
    "shape",
    "sizes",
    "times",
    "used",
    "whole_numbers",
]


def number(value: float, digits: int = 3) -> str:
    """Three significant digits."""
    return f"{value:.{digits}g}"


def milliseconds(value: float) -> str:
    """With the unit that suits: 12.3 µs, 4.56 ms, 1.23 s."""
    for factor, unit in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        scaled = value * factor
        if scaled >= 1 and not round(scaled, 1) >= 1000:
            return f"{scaled:.3g} {unit}"
    return f"{value * 1e3:.3g} µs" if value < 1 else f"{value * 1e-3:.3g} s"


def amount(value: float, unit: str) -> str:
    """Bytes or flops with a decimal prefix: 1.5 MB."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def percent(value: float) -> str:
    """A part of one."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.0%}" if abs(value) >= 0.1 or value == 0 else f"{value:.1%}"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f}×" if 0.1 <= value < 100 else f"{value:.3g}×"


def used(cell: Cell) -> str:
    """The part of the budget that a cell used."""
    if cell.metrics is None:
        return ""
    if cell.metrics.identical:
        return "0%"
    if cell.judged_as not in ("values", "gradient", "golden"):
        return ""  # a decision has no budget of its own
    part = cell.used
    if not math.isfinite(part):
        return "over"
    return f"{part:.0%}" if part < 100 else f"{part:.2g}×"


def of_budget(cell: Cell) -> str:
    """The same in words, "16% of its budget"; empty where there is nothing to say."""
    part = used(cell)
    if part == "over":
        return "over its budget"
    return f"{part} of its budget" if part else ""


NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the differences of a cell are, as texts; `NOTHING` where a measure means nothing."""

    max_abs: str = NOTHING
    max_rel: str = NOTHING
    rms: str = NOTHING
    scale_ulps: str = NOTHING
    cosine: str = NOTHING

    def said(self, *names: str) -> str:
        """Those of them that mean something, in words: "max abs 5, rms 2, "; empty where none does."""
        values = [(name.replace("_", " "), getattr(self, name)) for name in names]
        return "".join(f"{name} {value}, " for name, value in values if value != NOTHING)


def sizes(cell: Cell) -> Sizes:
    """Three significant digits.

    Between NaN and a number, and between rows that have no counterpart, there is no difference to be measured: a largest one
    of 0 would be read as "equal". Of whole numbers and truth values the largest is all that counts.
    """
    m = cell.metrics
    if m is None or not (m.identical or m.max_abs > 0 or not (m.nan or m.inf or m.mismatches)):
        return Sizes()
    if whole_numbers(cell):
        return Sizes(number(m.max_abs))
    return Sizes(
        number(m.max_abs), number(m.max_rel), number(m.rms), number(cell.scale_ulps), number(m.cosine, 8)
    )


def whole_numbers(cell: Cell) -> bool:
    """Whether an output is of integers or truth values."""
    return cell.budget is not None and cell.budget.exact


def element(value: float) -> str:
    """The value of one element."""
    return f"{value:.6g}"


def exactly(value: float) -> str:
    """The value of one element, so that two that differ in float32 look different."""
    return f"{value:.9g}"


def shape(dims: tuple[int, ...]) -> str:
    """[3, 224, 224]."""
    return f"[{', '.join(map(str, dims))}]"
