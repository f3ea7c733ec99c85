"""The charts of the HTML page, each a pure function from numbers to SVG text. Without numbers: an empty text.

Colours come from classes that the page's stylesheet knows (`.bar`, `.mark`, `.bad`, `.axis`, `.grid`), so that they follow
its dark and light mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from .plain_text import cut, one_line
from .quantities import amount, milliseconds, number, percent, times
from .svg import WIDTH, Scale, element, figure, finite, label, scale

__all__ = ["distributions", "histogram", "intervals", "roofline", "shares"]

MOST_ROWS = 24
BINS = 56
MOST_BINS = 64  # a measurement has 24
LETTERS = 46  # of a row's label, in the width of the chart
LEFT, RIGHT = 10.0, WIDTH - 10.0


def histogram(title: str, bins: Sequence[tuple[float, float, int]], limit: float | None = None) -> str:
    """Elements by the size of their error, on logarithmic axes.

    Args:
        bins: (from, to, elements), ascending; the first holds everything below it too.
        limit: an absolute tolerance, to be drawn.
    """
    top, bottom = 20.0, 130.0
    shown = [(a, b, c) for a, b, c in bins[:MOST_BINS] if c > 0 and finite([b], positive=True)]
    if not shown:
        return ""
    positive = finite((e for a, b, _ in shown for e in (a, b)), positive=True)
    x = scale([*positive, *finite([limit] if limit else [], positive=True)], LEFT, RIGHT, logarithmic=True)
    most = max(c for _, _, c in shown)
    y = Scale(0.5, float(max(most, 2)), bottom, top, True)
    parts = [_axis(x, bottom, [_power(t) for t in x.ticks()], x.ticks(), top)]
    for a, b, c in shown:
        left, right = x(a) if a > 0 else LEFT, x(b)
        over = limit is not None and a >= limit
        parts.append(
            element(
                "rect",
                f"<title>{c} elements, {number(a, 2)} to {number(b, 2)}</title>",
                x=left,
                y=y(c),
                width=max(round(right - left - 1, 1), 1),
                height=round(bottom - y(c), 1),
                class_="bar bad" if over else "bar",
            )
        )
    if limit is not None and finite([limit], positive=True):
        parts.append(_upright(x(limit), top - 8, bottom))
        parts.append(_beside(f"atol {number(limit, 2)}", x(limit), top - 2))
    words = f"{sum(c for _, _, c in shown)} elements; the fullest bar has {most}; the first bar holds everything below it too"
    return figure(title, words, bottom + 24, parts)


def distributions(title: str, rows: Sequence[tuple[str, Sequence[float], float, float]]) -> str:
    """How the times of each candidate are spread: a shape per candidate, ticks at the median and at p90.

    Args:
        rows: (candidate, milliseconds of every run, median, p90).
    """
    kept = [(n, sorted(finite(ts, positive=True)), m, p) for n, ts, m, p in rows[:MOST_ROWS]]
    kept = [r for r in kept if r[1]]
    if not kept:
        return ""
    # the slowest hundredth of each is left beyond the edge, or one hiccup would flatten all shapes
    last = [ts[min(len(ts) - 1, math.ceil(0.99 * len(ts)) - 1)] for _, ts, _, _ in kept]
    beyond = sum(t > max(last) for _, ts, _, _ in kept for t in ts)
    x = scale([*(ts[0] for _, ts, _, _ in kept), *last], LEFT, RIGHT, logarithmic=True)
    row, top = 50.0, 4.0
    bottom = top + row * len(kept)
    parts = [_axis(x, bottom, [milliseconds(t) for t in x.ticks(5)], x.ticks(5), top)]
    for k, (name, ts, median, p90) in enumerate(kept):
        base = top + row * (k + 1) - 4
        parts.append(element("path", d=_outline(ts, x, base, row - 22), class_="bar"))
        for value, kind in ((median, "mark"), (p90, "mark thin")):
            if finite([value], positive=True):
                parts.append(_upright(x(value), base - row + 22, base, kind))
        said = f": {milliseconds(median)}, p90 {milliseconds(p90)}"
        parts.append(label(cut(one_line(name), LETTERS - len(said)) + said, LEFT, base - row + 16, LETTERS))
    words = "; ".join(f"{n}: median {milliseconds(m)}, p90 {milliseconds(p)}" for n, _, m, p in kept)
    if beyond:
        words += f"; {beyond} slower runs lie beyond the edge"
    return figure(title, words, bottom + 24, parts)


def intervals(
    title: str, rows: Sequence[tuple[str, float, float, float, str]], limits: Sequence[float] = ()
) -> str:
    """Ratios with their confidence intervals on a logarithmic axis; left of 1 is faster.

    Args:
        rows: (label, ratio, low, high, verdict).
        limits: the user's, drawn as lines.
    """
    kept = [r for r in rows[:MOST_ROWS] if len(finite(r[1:4], positive=True)) == 3]
    if not kept:
        return ""
    x = scale([1.0, *limits, *(v for r in kept for v in r[1:4])], LEFT + 4, RIGHT - 4, logarithmic=True)
    row, top = 36.0, 18.0
    bottom = top + row * len(kept)
    parts = [_axis(x, bottom, [times(t) for t in x.ticks(5)], x.ticks(5), top)]
    parts += [_upright(x(1.0), top - 6, bottom), _beside("equal", x(1.0), top - 8)]
    parts += [_upright(x(v), top, bottom, "mark bad") for v in finite(limits, positive=True)]
    for k, (name, ratio, low, high, verdict) in enumerate(kept):
        y = top + row * k + 25
        kind = "mark bad" if verdict == "failed" else "mark"
        parts.append(element("line", x1=x(low), x2=x(high), y1=y, y2=y, class_=f"{kind} wide"))
        parts.append(
            element("circle", cx=x(ratio), cy=y, r=4, class_=f"dot {kind.partition(' ')[2]}".strip())
        )
        said = f": {times(ratio)} ({number(low)} to {number(high)})"
        # the numbers keep their place, the name gives way
        parts.append(label(cut(one_line(name), LETTERS - len(said)) + said, LEFT, y - 9, LETTERS))
    words = "; ".join(f"{n}: {times(r)}, {number(a)} to {number(b)}" for n, r, a, b, _ in kept)
    return figure(title, words, bottom + 24, parts)


def roofline(
    title: str, bandwidth: float, peak: float | None, points: Sequence[tuple[str, float, float]]
) -> str:
    """What was reached under what memory and arithmetic allow, both axes logarithmic.

    Args:
        bandwidth: bytes per second. peak: flops per second, None where it was not measured.
        points: (label, flops per byte, flops per second).
    """
    kept = [p for p in points[:MOST_ROWS] if len(finite(p[1:], positive=True)) == 2]
    if not kept or not finite([bandwidth], positive=True):
        return ""
    peak = peak if peak is not None and finite([peak], positive=True) else None
    ridge = [peak / bandwidth] if peak else []
    top, bottom, left = 14.0, 190.0, 60.0
    x = scale([*(p[1] for p in kept), *ridge], left, RIGHT, logarithmic=True, margin=0.15)

    def roof(intensity: float) -> float:
        return min(bandwidth * intensity, peak or math.inf)

    y = scale(
        [*(p[2] for p in kept), *(roof(v) for v in (x.low, x.high))],
        bottom,
        top,
        logarithmic=True,
        margin=0.08,
    )
    parts = [_axis(x, bottom, [number(t) for t in x.ticks(5)], x.ticks(5), top)]
    for t in y.ticks(4):
        parts.append(element("line", x1=left, x2=RIGHT, y1=y(t), y2=y(t), class_="grid"))
        parts.append(label(amount(t, "F/s"), left - 3, y(t) + 4, text_anchor="end", class_="small"))
    bends = [x.low, *(r for r in ridge if x.low < r < x.high), x.high]
    path = " ".join(f"{x(v)},{y(roof(v))}" for v in bends)
    parts.append(element("polyline", points=path, class_="mark line"))
    for k, (name, intensity, reached) in enumerate(kept):
        around = f"<title>{_words(name, reached, roof(intensity))}</title>"
        parts.append(element("circle", around, cx=x(intensity), cy=y(reached), r=4, class_="dot"))
        parts.append(label(str(k + 1), x(intensity) + 6, y(reached) + 4, class_="small"))
    parts.append(label("flops per byte", RIGHT, bottom + 30, text_anchor="end", class_="small"))
    legend = [
        label(f"{k + 1} {p[0]}", LEFT, bottom + 46 + 16 * k, LETTERS, class_="small")
        for k, p in enumerate(kept)
    ]
    words = "; ".join(f"{n}: {amount(r, 'F/s')} of {amount(roof(i), 'F/s')}" for n, i, r in kept)
    return figure(title, words, bottom + 40 + 16 * len(kept), [*parts, *legend])


def shares(title: str, rows: Sequence[tuple[str, float, str, bool]]) -> str:
    """Where the time goes: one bar per node.

    Args:
        rows: (node, part of the whole, text, custom operator).
    """
    kept = [r for r in rows[:MOST_ROWS] if finite([r[1]])]
    if not kept:
        return ""
    row = 32.0
    x = Scale(0.0, max(*(r[1] for r in kept), 1e-9), LEFT, RIGHT)
    parts = []
    for k, (name, part, text, custom) in enumerate(kept):
        y = row * k
        # the number keeps its place, the name gives way
        parts.append(label(name, LEFT, y + 13, LETTERS - 18))
        parts.append(label(f"{percent(part)} {text}", RIGHT, y + 13, 16, text_anchor="end", class_="small"))
        width = max(round(x(max(part, 0.0)) - LEFT, 1), 1)
        kind = "bar custom" if custom else "bar"
        parts.append(element("rect", x=LEFT, y=y + 17, width=width, height=9, class_=kind))
    words = "; ".join(f"{n} {percent(p)}" for n, p, _, _ in kept)
    return figure(title, words, row * len(kept) + 4, parts)


def _words(name: str, reached: float, roof: float) -> str:
    return escape(f"{one_line(name)[:100]}: {amount(reached, 'F/s')}, {percent(reached / roof)} of the limit")


def _outline(ts: Sequence[float], x: Scale, base: float, height: float) -> str:
    """The path of a histogram over the scale."""
    counts = [0] * BINS
    span = x.end - x.start
    for t in ts:
        counts[min(BINS - 1, int((x(t) - x.start) / span * BINS))] += 1
    most = max(counts)
    step = span / BINS
    points = [f"M{x.start:.1f},{base:.1f}"]
    for k, c in enumerate(counts):
        level = base - height * c / most
        points.append(f"L{x.start + k * step:.1f},{level:.1f}L{x.start + (k + 1) * step:.1f},{level:.1f}")
    return "".join([*points, f"L{x.end:.1f},{base:.1f}Z"])


def _axis(x: Scale, bottom: float, texts: Sequence[str], values: Sequence[float], top: float) -> str:
    parts = [element("line", x1=x.start, x2=x.end, y1=bottom, y2=bottom, class_="axis")]
    taken = -math.inf
    for text, value in zip(texts, values, strict=True):
        at = x(value)
        parts.append(element("line", x1=at, x2=at, y1=top, y2=bottom, class_="grid"))
        half = 3.2 * len(text)
        middle = min(max(at, half), WIDTH - half)
        if middle - half > taken:  # labels do not overlap
            parts.append(label(text, middle, bottom + 16, text_anchor="middle", class_="small"))
            taken = middle + half + 4
    return "".join(parts)


def _upright(at: float, top: float, bottom: float, kind: str = "mark") -> str:
    return element("line", x1=at, x2=at, y1=round(top, 1), y2=round(bottom, 1), class_=kind)


def _beside(text: str, at: float, y: float) -> str:
    """A label on the side of a line that has room."""
    right = at < WIDTH / 2
    return label(text, at + (4 if right else -4), y, text_anchor="start" if right else "end", class_="small")


def _power(value: float) -> str:
    return number(value, 1)
