"""The table for a terminal: what it says first, what it fits into, and what names cannot do to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployops.validation.record import BackendRecord, Cell, Finding, Report
from deployops.validation.reports.plain_text import columns, cut, lines_of, one_line
from deployops.validation.reports.terminal import text

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def test_the_verdict_is_first_and_again_last(full_report: Report) -> None:
    lines = text(full_report).splitlines()
    assert lines[0] == "FAILED: net.pt against net.onnx (1 failed, 1 not checked, 29 passed)"
    assert lines[-1] == "FAILED (1 failed, 1 not checked, 29 passed), exit code 1"


def test_a_short_report_says_it_once(make_cell: Callable[..., Cell]) -> None:
    lines = text(Report("m", "o", (make_cell("s", "y", "onnxruntime"),))).splitlines()
    assert lines[0] == "PASSED: m against o (1 passed)"
    assert sum("PASSED" in line for line in lines) == 1


def test_what_to_do_stands_under_each_failure(full_report: Report) -> None:
    lines = text(full_report).splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("failed, logits at batch=3, large:"))
    assert "497 of 512 elements out of budget" in lines[at]
    assert "It passes with the optimiser off" in lines[at + 1]
    crash = next(k for k, line in enumerate(lines) if line.startswith("failed, crash, torch.compile"))
    assert lines[crash + 1].strip() == "→ run it alone, with less memory in use elsewhere"
    assert [line.strip() for line in lines[crash + 2 : crash + 5]] == ["| loading", "| compiling", "| Killed"]


def test_backends_are_counted_worst_first(full_report: Report) -> None:
    lines = text(full_report).splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["onnxruntime", "torch.compile", "onnxruntime,"]
    assert re.search(r"required +1 +1 +9 ", lines[3])
    assert 'not checked, tensorrt: TensorRT is not installed: pip install "deployops[gpu]"' in lines


def test_a_required_backend_that_is_missing_is_said_to_be(make_cell: Callable[..., Cell]) -> None:
    report = Report("m", "o", (make_cell("s", "y", "a"),), (BackendRecord("gpu", True, "there is no GPU"),))
    assert report.exit_code == 3
    assert "not checked, gpu (required): there is no GPU" in text(report)


def test_backends_that_nobody_asked_for_take_one_line(make_cell: Callable[..., Cell]) -> None:
    idle = tuple(
        BackendRecord(n, False, f"not asked for; --backend {n} runs it")
        for n in ("tensorrt", "torch.compile")
    )
    lines = text(Report("m", "o", (make_cell("s", "y", "a"),), (BackendRecord("a"), *idle))).splitlines()
    assert "not asked for: tensorrt, torch.compile; --backend NAME runs one" in lines
    assert sum("tensorrt" in line for line in lines) == 1


def test_coverage_bisection_and_latency_are_there(full_report: Report) -> None:
    shown = text(full_report)
    assert "coverage: 30 of 31 cells of the matrix were checked" in shown
    assert "node /layers.3/act/Gelu (Gelu)" in shown
    assert "from layers.3.act, net.py:41: x = F.gelu(x)" in shown
    assert "/layers.3/fc/Gemm_output_0: float32[3, 64], -4.1 to 3.9" in shown
    assert "9 runs, 212 nodes" in shown
    assert "0.77× pytorch (0.761 to 0.79)" in shown
    assert "46% (compute)" in shown
    assert "predicted floor on NVIDIA A100 at example: 20 µs" in shown
    assert "unstable, tensorrt at example: the spread is 31 % of the median" in shown
    assert "failed, onnxruntime at example against baseline: 12 % slower" in shown


def test_a_long_matrix_stays_short(large_report: Report) -> None:
    lines = text(large_report).splitlines()
    assert len(lines) < 50
    assert "(9 failed, 4991 passed)" in lines[0]
    assert sum(line.startswith("failed  ") for line in lines) == 9
    assert "… and 4988 more (0 failed, 0 not checked, 4988 passed)" in lines


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_it_fits_the_terminal(full_report: Report, large_report: Report, width: int) -> None:
    for report in (full_report, large_report):
        wide = [line for line in text(report, width=width).splitlines() if columns(line) > width]
        assert wide == []


def test_wide_letters_are_counted_as_wide(make_cell: Callable[..., Cell]) -> None:
    cells = (make_cell("s", "出力の層", "onnxruntime"), make_cell("s", "output", "onnxruntime"))
    head, *rows = text(Report("m", "o", cells)).splitlines()[2:5]
    at = head.index("sample")
    assert {columns(re.split(r"s +onnxruntime", row)[0]) for row in rows} == {at}


def test_no_colour_unless_it_is_asked_for(full_report: Report) -> None:
    plain, painted = text(full_report), text(full_report, colour=True)
    assert "\x1b" not in plain
    assert painted.startswith("\x1b[31;1mFAILED\x1b[0m: ")
    assert ESCAPE.sub("", painted) == plain


def test_names_cannot_write_on_the_terminal(hostile_report: Report) -> None:
    shown = text(hostile_report)
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", shown
    )
    assert "\\x1b[2J" in shown
    assert "\\u202egnp.exe" in shown
    assert max(map(len, shown.splitlines())) < 3000


def test_a_log_cannot_pass_for_the_report(make_cell: Callable[..., Cell]) -> None:
    finding = Finding("crash", "failed", "it ended\nPASSED: m against o", log="x\n\nPASSED: m against o\r\n")
    shown = text(Report("m", "o", (make_cell("s", "y", "b"),), findings=(finding,)))
    assert [line for line in shown.splitlines() if line.startswith("PASSED")] == []
    assert "    | PASSED: m against o" in shown.splitlines()


def test_the_same_advice_is_given_once(make_cell: Callable[..., Cell]) -> None:
    cells = tuple(make_cell("s", f"y{k}", "b", "failed", 1e-3, f"reason {k}") for k in range(5))
    assert text(Report("m", "o", cells)).count("--bisect") == 1


def test_many_reasons_are_cut_and_counted(make_cell: Callable[..., Cell]) -> None:
    cells = tuple(make_cell("s", f"y{k}", "b", "failed", 1e-3, f"reason {k}") for k in range(40))
    assert "… and 28 more reasons" in text(Report("m", "o", cells))


def test_nothing_compared_is_said(full_report: Report) -> None:
    assert text(Report("m", "o", ())).startswith("NOT CHECKED: m against o (nothing was compared)")
    assert "nothing was compared" not in text(replace(full_report, findings=()))


@given(st.text())
def test_one_line_is_one_line_and_printable(value: str) -> None:
    shown = one_line(value)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert one_line(shown) == shown


@given(st.text(), st.integers(1, 30))
def test_cutting_keeps_both_ends_and_the_width(value: str, width: int) -> None:
    value = one_line(value)
    short = cut(value, width)
    assert columns(short) <= width
    if columns(value) <= width:
        assert short == value


@given(st.text())
def test_lines_of_a_log_are_printable(value: str) -> None:
    assert all(line.isprintable() for line in lines_of(value))


def test_where_nothing_can_be_subtracted_no_difference_is_shown() -> None:
    """NaN against numbers, all else equal: a largest difference of 0 would be read as "equal"."""
    from deployops.validation.parity.metrics import Metrics, Worst

    metrics = Metrics(
        count=8,
        identical=False,
        mismatches=2,
        nan=2,
        worst=(Worst((1,), float("nan"), 1.0),),
        compared=6,
        equal=6,
    )
    cell = Cell("s", "y", "onnxruntime", "failed", "2 NaN on one side only", "float32", (8,), metrics)
    report = Report("m", "f", (cell,))
    (row,) = [line for line in text(report).splitlines() if line.startswith("failed   y")]
    assert row.count("–") == 3
    assert "0.0e+00" not in row
    assert "Where does it overflow" not in text(report)
    assert "One side has NaN where the other has none" in text(report)


def test_a_line_of_the_source_is_shown_whole_and_two_backends_share_a_block() -> None:
    from deployops.validation.bisection import wording
    from deployops.validation.record import Bisection, Culprit
    from deployops.validation.reports.summary import alike_bisections

    line = "net.py:41 in forward: q, k, v = self.qkv(self.norm(x + self.position[:, : x.shape[1]])).chunk(3, dim=-1)"
    culprit = Culprit("node_1", "Softmax", "", "softmax", "blocks.1", line, ())

    def one(backend: str, off: str, blamed: str) -> Bisection:
        return Bisection("s", "y", backend, culprit, f"It is {off} off. {blamed}.", 3, 9, "the original")

    same = (
        one("onnxruntime", "0.64", wording.FILE_AT_FAULT),
        one("torch.compile", "0.65", wording.FILE_AT_FAULT),
    )
    report = Report("m", "f", (), bisections=(*same, one("tensorrt", "0.64", wording.BACKEND_AT_FAULT)))
    shown = text(report)
    assert line in shown
    assert "begins to diverge on onnxruntime and torch.compile:" in shown
    # a file at fault and a backend at fault are two things, at whatever node
    assert [len(alike) for alike in alike_bisections(report)] == [2, 1]


def test_over_is_said_in_words(make_cell: Callable[..., Cell]) -> None:
    """A NaN on one side has no ratio; a decision has no budget of its own."""
    import numpy as np

    from deployops.validation.parity.metrics import Tolerance, measure

    want = np.ones(4)
    metrics = measure(np.array([1, 1, np.nan, 1.0]), want, want, tolerance=Tolerance(0.0, 1e-6))
    bad = make_cell("batch=4, with NaN", "y", "a", "failed", 1e-3, "1 NaN")
    shown = text(Report("m", "o", (replace(bad, metrics=metrics),), (BackendRecord("a"), BackendRecord("b"))))
    assert "y at batch=4, with NaN: over its budget" in shown
    assert "over of its budget" not in shown
    decided = replace(bad, metrics=metrics, judged_as="argmax")
    shown = text(Report("m", "o", (decided,), (BackendRecord("a"), BackendRecord("b"))))
    assert "of its budget" not in shown
    assert text(
        Report("m", "o", (make_cell("s", "y", "a"),), (BackendRecord("a"), BackendRecord("b")))
    ).count("% of its budget")


def test_who_gave_bisect_is_not_told_to_give_it(full_report: Report, make_cell: Callable[..., Cell]) -> None:
    more = make_cell("batch=8, strided", "features", "onnxruntime", "failed", 3e-3, "it differs")
    elsewhere = make_cell("example", "logits", "torch.compile", "failed", 3e-3, "it differs as well")
    shown = text(replace(full_report, cells=(*full_report.cells, more)))
    assert "See where it begins to diverge, below." in shown
    assert "`--bisect` looked into logits at batch=3, large on this backend: see there." in shown
    assert "`--bisect` finds" not in shown
    # nobody looked there
    shown = text(replace(full_report, cells=(*full_report.cells, elsewhere), bisections=()))
    assert "`--bisect` finds the first node that differs" in shown
