"""The page as text: nothing of a stranger becomes markup, nothing is loaded, and long reports are cut with a statement."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployops.validation.record import BackendRecord, Cell, Finding, Report
from deployops.validation.reports import charts
from deployops.validation.reports.html import html
from deployops.validation.reports.junit import junit
from deployops.validation.reports.terminal import text as table

VOID = {"meta", "br", "hr", "img", "input", "link"}
CLOSED = {"path", "circle", "line", "rect", "polyline", "use"}  # SVG, which may close itself
ALLOWED = set(
    """html head meta title style body header main section h1 h2 h3 p ul li div span strong em bdi
    table thead tbody tr th td dl dt dd br code pre details summary figure figcaption
    svg symbol path circle line rect polyline text desc use""".split()  # noqa: SIM905 (a list of words)
)


class Page(HTMLParser):
    """The elements, attributes and texts of a page; fails where they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, k, v) for k, v in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in CLOSED
        self.tags.append(tag)
        self.attributes += [(tag, k, v) for k, v in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.mark.parametrize("kind", ["full", "hostile", "large"])
def test_there_is_nothing_in_it_that_runs_or_loads(kind: str, request: pytest.FixtureRequest) -> None:
    page = Page(html(request.getfixturevalue(f"{kind}_report")))
    assert set(page.tags) <= ALLOWED
    assert [
        a
        for a in page.attributes
        if a[1].startswith("on") or a[1] in ("src", "style", "xlink:href", "srcset")
    ] == []
    assert {v for _, k, v in page.attributes if k == "href"} <= {"#p", "#f", "#n"}
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", "content", policy) in page.attributes


def test_the_stylesheet_loads_nothing(full_report: Report) -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", html(full_report), re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style


def test_everything_of_a_report_is_shown(full_report: Report) -> None:
    page = html(full_report)
    text = Page(page).text
    for wanted in (
        "net.pt against net.onnx",
        "1 failed, 1 not checked, 29 passed; 30 of 31 cells checked; exit code 1",
        "497 of 512 elements out of budget: needs atol 0.0087, has 1e-06",
        "It passes with the optimiser off",
        "the process of the backend was ended by signal 9",
        "loading compiling Killed",
        "TensorRT is not installed",
        "layers.3.act",
        "net.py:41: x = F.gelu(x)",
        "9 runs over 212 nodes",
        "A plain copy reaches 20 GB/s here, a matrix product 1.3 TF/s",
        "NVIDIA A100, predicted",
        "the spread is 31 % of the median",
        "12 % slower than the baseline",
        "Conv and Relu are not fused across it",
        "By module of the model",
        "ab" * 32,
        "1.23 MB",
        "no wider reference for acme::topk",
        "deployops.validation/2",
    ):
        assert wanted in text, wanted
    for section in (
        *("reasons", "findings", "bisection", "backends", "matrix", "cells", "elements"),
        *("latency", "roofline", "profile", "provenance"),
    ):
        assert f'<section id="{section}">' in page


def test_each_verdict_is_a_word_and_a_sign(full_report: Report) -> None:
    page = html(full_report)
    for word, sign in (("failed", "f"), ("not checked", "n"), ("passed", "p")):
        assert f'<use href="#{sign}"/></svg>{word}</span>' in page


def test_worst_comes_first(make_cell: Callable[..., Cell]) -> None:
    cells = (
        make_cell("s", "good", "b"),
        make_cell("s", "bad", "b", "failed", 1e-5, "r"),
        make_cell("s", "worse", "b", "failed", 1e-2, "r"),
    )
    section = html(Report("m", "o", cells)).partition('id="cells"')[2]
    assert re.findall(r"<bdi>(good|bad|worse)</bdi>", section.partition("</section>")[0]) == [
        "worse",
        "bad",
        "good",
    ]


def test_a_large_report_is_cut_and_says_so(large_report: Report) -> None:
    page = html(large_report)
    assert len(page) < 1_000_000
    text = Page(page).text
    assert "9 failed, 4991 passed" in text
    assert "4800 more outputs are left out of this page; the JSON report has them all" in text
    assert "1050 more samples are left out of this page" in text
    assert all(f"reason {k}" in text for k in range(500, 5000, 501))


def test_names_of_ten_thousand_letters_are_cut(hostile_report: Report) -> None:
    assert len(html(hostile_report)) < 1_000_000
    assert "x" * 1001 not in html(hostile_report)


@settings(max_examples=40, deadline=None)
@given(st.text(), st.text(alphabet="<>&\"'{}%#-!/\\ ab\u202e\x00\x1b\udc80"))
def test_any_text_stays_text(name: str, evil: str) -> None:
    cell = Cell(evil, name, evil, "failed", evil, evil, (1,), subject=name, judged_as=evil)
    report = Report(
        evil,
        name,
        (cell,),
        findings=(Finding(evil, "note", name, evil, evil, evil),),
        notes=(evil,),
        environment={evil: name},
    )
    page = Page(html(report))
    assert set(page.tags) <= ALLOWED
    assert not {c for c in page.text if not c.isprintable()}


def test_the_same_report_gives_the_same_bytes(full_report: Report) -> None:
    assert html(full_report) == html(
        replace(full_report, environment=dict(reversed(full_report.environment.items())))
    )


def test_without_latency_there_is_no_latency(full_report: Report) -> None:
    page = html(replace(full_report, latency=None))
    assert 'id="latency"' not in page
    assert 'id="roofline"' not in page


# Charts: functions from numbers to SVG.

NUMBERS = st.floats() | st.sampled_from([0.0, -1.0, 1e308, 5e-324, float("nan"), float("inf")])
WORDS = st.text(max_size=80)


def svg(text: str) -> ET.Element | None:
    return ET.fromstring(text) if text else None


@settings(max_examples=60, deadline=None)
@given(
    WORDS,
    st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(-5, 10**30)), max_size=6),
    st.lists(st.tuples(WORDS, st.lists(NUMBERS, max_size=20), NUMBERS, NUMBERS), max_size=4),
    st.lists(st.tuples(WORDS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["failed", "none"])), max_size=4),
    st.lists(st.tuples(WORDS, NUMBERS, NUMBERS), max_size=4),
    st.lists(st.tuples(WORDS, NUMBERS, WORDS, st.booleans()), max_size=4),
    NUMBERS,
)
def test_charts_of_any_numbers_are_well_formed(
    title: str, bins: list, rows: list, ratios: list, points: list, nodes: list, number: float
) -> None:
    drawn = [
        charts.histogram(title, bins, number),
        charts.distributions(title, rows),
        charts.intervals(title, ratios, [number]),
        charts.roofline(title, number, number, points),
        charts.shares(title, nodes),
    ]
    for text in drawn:
        root = svg(text)
        if root is None:
            continue
        width, height = map(float, root.get("viewBox", "").split()[2:])
        assert [c.tag for c in root][:2] == ["title", "desc"]
        for e in root.iter():
            for name, top in (
                ("x", width),
                ("cx", width),
                ("x1", width),
                ("x2", width),
                ("y", height),
                ("cy", height),
            ):
                if e.get(name) is not None:
                    assert -1 <= float(e.get(name, "")) <= top + 1, (e.tag, e.attrib)
            assert float(e.get("width", 0)) >= 0
            assert float(e.get("height", 0)) >= 0


def test_an_interval_is_drawn_to_scale() -> None:
    root = svg(charts.intervals("t", [("a", 0.5, 0.25, 1.0, "none"), ("b", 2.0, 1.0, 4.0, "failed")]))
    assert root is not None
    dots = [float(e.get("cx", "")) for e in root if e.tag == "circle"]
    bars = [(float(e.get("x1", "")), float(e.get("x2", ""))) for e in root if "wide" in e.get("class", "")]
    one = next(float(e.get("x1", "")) for e in root if e.get("class") == "mark")
    # a logarithmic axis: equal ratios are equal distances
    step = dots[0] - bars[0][0]
    assert [bars[0][1], one, bars[1][0]] == pytest.approx([dots[0] + step] * 3, abs=0.2)
    assert dots[1] - one == pytest.approx(step, abs=0.2)
    assert bars[1][1] - dots[1] == pytest.approx(step, abs=0.2)


def test_a_point_at_the_limit_lies_on_the_roof() -> None:
    bandwidth, peak = 1e10, 1e12
    points = [("memory", 10.0, 1e11), ("compute", 1000.0, 1e12), ("half", 1000.0, 5e11)]
    root = svg(charts.roofline("t", bandwidth, peak, points))
    assert root is not None
    dots = [(float(e.get("cx", "")), float(e.get("cy", ""))) for e in root if e.tag == "circle"]
    bends = [
        tuple(map(float, p.split(",")))
        for e in root
        if e.tag == "polyline"
        for p in e.get("points", "").split()
    ]
    assert len(bends) == 3
    (x0, y0), (x1, y1), (_, y2) = bends
    assert y1 == pytest.approx(y2, abs=0.2)
    assert dots[1][1] == pytest.approx(y2, abs=0.2)
    assert dots[2][1] > y2 + 2
    assert dots[0][1] == pytest.approx(y0 + (y1 - y0) * (dots[0][0] - x0) / (x1 - x0), abs=0.3)


def test_bars_of_a_histogram_are_over_the_tolerance_where_their_errors_are() -> None:
    root = svg(charts.histogram("t", [(0.0, 1e-6, 100), (1e-6, 1e-5, 10), (1e-5, 1e-4, 1)], 1e-5))
    assert root is not None
    bars = [e for e in root if e.tag == "rect"]
    assert [e.get("class") for e in bars] == ["bar", "bar", "bar bad"]
    heights = [float(e.get("height", "")) for e in bars]
    # logarithmic: a tenth of the elements is one step lower
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.3)


def test_a_report_with_too_much_of_everything_stays_a_page(full_report: Report) -> None:
    """From a stranger: thousands of backends, times, floors, notes, files, elements."""
    latency, many = full_report.latency, 600
    assert latency is not None
    metrics = full_report.cells[0].metrics
    assert metrics is not None
    swollen = replace(metrics, worst=metrics.worst * many, histogram=metrics.histogram * many)
    report = replace(
        full_report,
        cells=tuple(replace(c, metrics=swollen, shape=(1,) * many) for c in full_report.cells),
        backends=tuple(
            BackendRecord(f"b{k}", versions={str(j): "1" for j in range(40)}) for k in range(many)
        ),
        findings=full_report.findings * many,
        bisections=tuple(replace(b, sample=f"s{k}") for k in range(many) for b in full_report.bisections),
        latency=replace(
            latency,
            timings=latency.timings * 200,
            ratios=latency.ratios * many,
            rooflines=latency.rooflines * many,
            profiles=latency.profiles * many,
            modules=latency.modules * many,
            notes=latency.notes * many,
            fingerprint={str(k): "x" for k in range(many)},
        ),
        files=full_report.files * many,
        environment={str(k): k for k in range(many)},
        notes=full_report.notes * many,
    )
    page = html(report)
    assert len(page) < 3_000_000
    for what in ("backends", "timings", "ratios", "floors", "modules", "notes", "findings", "bisections"):
        assert re.search(rf"\d+ more {what} are left out of this page", page), what
    assert len(table(report).splitlines()) < 400
    assert len(table(report)) < 100_000
    assert len(junit(report)) < 30_000_000
