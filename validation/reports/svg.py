"""The pieces of a chart: scales, ticks, and SVG elements whose texts are escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from .plain_text import cut, one_line

__all__ = ["Scale", "element", "figure", "finite", "label", "scale"]

WIDTH = 340  # of the viewBox: a phone shows it at about its size, and its letters with it


@dataclass(frozen=True, slots=True)
class Scale:
    """From a value to a coordinate, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The coordinate; what lies outside is put on the edge."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        part = (at - low) / (high - low) if high > low else 0.5
        return round(self.start + part * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the range: 1, 2, 5 and their decades, or whole decades."""
        if self.logarithmic:
            return _decades(self.low, self.high, most)
        span = self.high - self.low
        if not span > 0:
            return [self.low]
        raw = span / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * f for f in (1, 2, 5, 10) if power * f >= raw)
        first = math.ceil(self.low / step)
        return [k * step for k in range(first, math.floor(self.high / step) + 1)]


def _decades(low: float, high: float, most: int) -> list[float]:
    """The finest set of round values that is not too many; on a narrow range evenly spaced ones."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**p for p in powers for f in factors if low <= f * 10.0**p <= high]
        if 2 <= len(found) <= most:
            return found
    if len(found) > most:
        return found[:: -(-len(found) // most)]
    return Scale(low, high, 0, 1).ticks(most)


def scale(
    values: Iterable[float], start: float, end: float, *, logarithmic: bool = False, margin: float = 0.05
) -> Scale:
    """A scale that holds every finite value, with a margin."""
    kept = finite(values, positive=logarithmic)
    if not kept:
        return Scale(1.0, 10.0, start, end, logarithmic)
    low, high = min(kept), max(kept)
    if logarithmic:
        room = max((math.log10(high) - math.log10(low)) * margin, 0.05)
        low, high = 10 ** max(math.log10(low) - room, -300), 10 ** min(math.log10(high) + room, 300)
    else:
        room = (high - low) * margin or abs(high) * margin or 1.0
        low, high = low - room, high + room
    return Scale(low, high, start, end, logarithmic)


def finite(values: Iterable[float], positive: bool = False) -> list[float]:
    """What can be drawn: no NaN, no infinity, nothing beyond 1e200, on a logarithmic axis nothing below 1e-200."""
    return [v for v in values if -1e200 < v < 1e200 and (not positive or v > 1e-200)]


def element(name: str, content: str = "", **attributes: object) -> str:
    """One SVG element; attribute values are escaped, `content` is markup. A trailing or inner `_` stands for `-`."""
    given = "".join(f" {k.strip('_').replace('_', '-')}={quoteattr(str(v))}" for k, v in attributes.items())
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def label(text: str, x: float, y: float, most: int = 40, **attributes: object) -> str:
    """A text, escaped and cut."""
    return element("text", escape(cut(one_line(text), most)), x=x, y=y, **attributes)


def figure(title: str, description: str, height: float, parts: Sequence[str]) -> str:
    """The whole chart, with its name and its content in words for those who do not see it."""
    named = f"<title>{escape(cut(one_line(title), 200))}</title><desc>{escape(cut(one_line(description), 800))}</desc>"
    return element(
        "svg",
        named + "".join(parts),
        viewBox=f"0 0 {WIDTH} {round(height)}",
        role="img",
        aria_label=cut(one_line(title), 200),
        class_="chart",
    )
