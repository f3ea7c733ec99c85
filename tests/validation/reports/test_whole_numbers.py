"""Outputs of integers and truth values: how many differ, by how much, where first; no ULPs, no relative error."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from deployops.validation.original import Expected
from deployops.validation.parity import budget as parity
from deployops.validation.parity.compare import compare_output
from deployops.validation.record import BackendRecord, Cell, Report
from deployops.validation.reports.failure import failure
from deployops.validation.reports.html import html
from deployops.validation.reports.json_file import dumps, loads
from deployops.validation.reports.junit import junit
from deployops.validation.reports.terminal import text

WANT = np.arange(12).reshape(3, 4)
GOT = WANT.copy()
GOT[0, 3] += 1
GOT[1] += (5, 7, 9, 11)
GOT[2, 2] -= 40


def report_of(got: Any, want: Any) -> tuple[Cell, Report]:
    cell = compare_output("s", "y", "onnxruntime", got, Expected(want, None, parity.EXACT))
    return cell, Report("m", "f", (cell,), backends=(BackendRecord("onnxruntime"),))


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
def test_the_reason_has_count_size_and_first_place(dtype: str) -> None:
    cell, _ = report_of(GOT.astype(dtype), WANT.astype(dtype))
    assert cell.reason == "6 of 12 elements differ by up to 40, the first at [0, 3]; they must be equal"


def test_truth_values_have_no_size() -> None:
    cell, _ = report_of(GOT > 5, WANT > 5)
    assert cell.reason == "3 of 12 elements differ, the first at [1, 0]; they must be equal"


def test_a_single_number_has_no_place() -> None:
    cell, _ = report_of(np.array(3), np.array(7))
    assert cell.reason == "1 of 1 elements differ by up to 4; they must be equal"


def test_the_first_place_is_kept_beside_the_largest_differences() -> None:
    cell, report = report_of(GOT, WANT)
    assert cell.metrics is not None
    assert [w.index for w in cell.metrics.worst] == [(2, 2), (1, 3), (1, 2), (1, 1), (0, 3)]
    assert loads(dumps(report)) == report


def test_every_rendering_says_the_same_and_no_measure_of_floating_numbers() -> None:
    cell, report = report_of(GOT, WANT)
    on_terminal = text(report)
    (row,) = [line for line in on_terminal.splitlines() if line.startswith("failed   y")]
    assert " 40 " in row
    assert row.count("–") == 2  # relative, ULPs
    page = html(report)
    (cells,) = [line for line in page.splitlines() if "6 of 12</td>" in line]
    assert cells.count('<td class="r soft">–</td>') == 4
    assert '<td class="r">40</td>' in cells
    for words in ("relative error", "ULPs of the element", "cosine 0"):
        assert words not in page.partition("Errors in detail")[2].partition("</section>")[0]
    assert "6 different" in page
    for shown in (on_terminal, page, failure(report), junit(report)):
        assert cell.reason in shown
        assert "max rel 0" not in shown
        assert "cosine" not in shown.partition("max abs 40")[2].partition("\n")[0]
    [written] = json.loads(dumps(report))["cells"]
    assert (written["metrics"]["mismatches"], written["metrics"]["max_abs"]) == (6, 40)


def test_floating_outputs_keep_all_measures() -> None:
    want = np.linspace(1, 2, 12, dtype=np.float32)
    cell = compare_output(
        "s", "y", "onnxruntime", want * np.float32(1.01), Expected(want, None, parity.user(1e-6, 0.0))
    )
    shown = failure(Report("m", "f", (cell,)))
    assert "max abs 0.02, max rel 0.01, rms " in shown
