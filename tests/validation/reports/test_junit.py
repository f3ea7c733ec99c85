"""JUnit XML: what GitHub, GitLab and Jenkins read, parsed back by a library that is not ours."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from deployops.validation.record import BackendRecord, Cell, Finding, Report
from deployops.validation.reports.junit import junit

# The public schema of Jenkins (xunit plugin, junit-10.xsd), as far as these elements go: element -> attributes that it
# must have, that it may have, and children in their order.
RULES: dict[str, tuple[set[str], set[str], list[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors", "disabled"}, ["testsuite"]),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "id", "package"},
        ["properties", "testcase", "system-out", "system-err"],
    ),
    "properties": (set(), set(), ["property"]),
    "property": ({"name", "value"}, set(), []),
    "testcase": (
        {"name", "classname"},
        {"assertions", "time", "status"},
        ["skipped", "error", "failure", "system-out", "system-err"],
    ),
    "failure": (set(), {"type", "message"}, []),
    "error": (set(), {"type", "message"}, []),
    "skipped": (set(), {"type", "message"}, []),
    "system-out": (set(), set(), []),
}


def check(element: ET.Element) -> None:
    must, may, children = RULES[element.tag]
    assert must <= set(element.attrib) <= must | may, element.tag
    order = [children.index(child.tag) for child in element]
    assert order == sorted(order), element.tag
    if element.tag == "testcase":
        assert sum(c.tag in ("skipped", "error", "failure") for c in element) <= 1
    if element.tag in ("testsuite", "testsuites"):
        cases = list(element.iter("testcase"))
        assert int(element.get("tests", "")) == len(cases)
        assert int(element.get("failures", "")) == sum(c.find("failure") is not None for c in cases)
        assert int(element.get("errors", "")) == sum(c.find("error") is not None for c in cases)
    for child in element:
        check(child)


def parsed(report: Report) -> list[TestSuite]:
    text = junit(report)
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    check(root)
    return list(JUnitXml.fromstring(text.encode()))


def outcome(case: object) -> str:
    kinds = {Failure: "failure", Error: "error", Skipped: "skipped"}
    return next((kinds[type(r)] for r in case.result), "passed")  # type: ignore[attr-defined]


def test_one_case_per_cell_and_what_became_of_it(full_report: Report) -> None:
    suites = {s.name: s for s in parsed(full_report)}
    cases = {(s, c.name): outcome(c) for s, suite in suites.items() for c in suite}
    for cell in full_report.cells:
        wanted = {"passed": "passed", "failed": "failure", "not checked": "skipped"}[cell.verdict]
        assert cases[cell.backend, f"{cell.output} at {cell.sample}"] == wanted
    assert all(case.classname == name for name, suite in suites.items() for case in suite)
    assert cases["tensorrt", "backend"] == "skipped"
    assert cases["findings", "crash: torch.compile"] == "failure"
    assert cases["findings", "variant: /layers.3/act/Gelu"] == "passed"
    assert cases["latency", "onnxruntime against baseline at example"] == "failure"
    assert cases["latency", "onnxruntime against pytorch at example"] == "passed"


def test_a_failure_shows_the_worst_elements(full_report: Report) -> None:
    suite = next(s for s in parsed(full_report) if s.name == "onnxruntime")
    case = next(c for c in suite if c.name == "logits at batch=3, large")
    (failure,) = case.result
    assert failure.message.startswith("497 of 512 elements out of budget")
    worst = next(c for c in full_report.cells if c.verdict == "failed").metrics
    assert worst is not None
    assert f"worst at {list(worst.worst[0].index)}: {worst.worst[0].got:.6g}" in failure.text
    assert "begins to diverge at node /layers.3/act/Gelu (Gelu) layers.3.act net.py:41" in failure.text
    assert "budget: the original's own error" in failure.text


def test_properties_say_what_it_was(full_report: Report) -> None:
    for suite in parsed(full_report):
        found = {p.name: p.value for p in suite.properties()}
        assert found["verdict"] == "failed"
        assert found["environment.seed"] == "0"
        assert found["sha256.net.onnx"] == "ab" * 32


def test_a_required_backend_that_is_missing_is_an_error(make_cell: Callable[..., Cell]) -> None:
    backends = (
        BackendRecord("tensorrt", True, "no GPU here"),
        BackendRecord("torch.compile", False, "no compiler"),
    )
    report = Report("m", "o", (make_cell("s", "y", "onnxruntime"),), backends)
    found = {
        (s.name, c.name): (outcome(c), c.result[0].message if c.result else "")
        for s in parsed(report)
        for c in s
    }
    assert found["tensorrt", "backend"] == ("error", "not checked: no GPU here")
    assert found["torch.compile", "backend"] == ("skipped", "not checked: no compiler")


VERDICTS = st.sampled_from(["passed", "failed", "not checked"])
CELLS = st.builds(Cell, st.sampled_from("st"), st.sampled_from("xy*"), st.sampled_from("ab"), VERDICTS)
BACKENDS = st.lists(
    st.builds(BackendRecord, st.sampled_from("abc"), st.booleans(), st.sampled_from(["", "missing"])),
    max_size=3,
    unique_by=lambda b: b.name,
)
FINDINGS = st.builds(
    Finding, st.just("k"), st.sampled_from(["failed", "not checked", "note"]), st.just("text")
)


@settings(deadline=None)
@given(
    st.builds(
        Report,
        st.just("m"),
        st.just("o"),
        st.lists(CELLS).map(tuple),
        BACKENDS.map(tuple),
        st.lists(FINDINGS, max_size=2).map(tuple),
    )
)
def test_it_is_red_exactly_where_the_exit_code_is_not_0(report: Report) -> None:
    outcomes = Counter(outcome(c) for s in parsed(report) for c in s)
    assert (outcomes["failure"] + outcomes["error"] > 0) == (report.exit_code != 0)
    assert (outcomes["failure"] > 0) == (report.exit_code == 1)


def test_names_are_told_apart(make_cell: Callable[..., Cell]) -> None:
    cell = make_cell("s", "y", "b")
    cells = (cell, cell, replace(cell, judged_as="argmax"), replace(cell, subject="acme::swish"))
    names = [c.name for s in parsed(Report("m", "o", cells)) for c in s]
    assert names == ["y at s", "y at s (2)", "y at s, argmax", "acme::swish y at s"]


def test_strangers_names_stay_text(hostile_report: Report) -> None:
    text = junit(hostile_report)
    suites = parsed(hostile_report)
    assert len(suites) > 1
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    assert "\\x1b[2J" in text
    assert {e.tag for e in ET.fromstring(text).iter()} <= set(RULES)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text())
def test_any_text_is_well_formed(name: str, reason: str) -> None:
    parsed(
        Report(
            name,
            reason,
            (Cell(name, reason, name, "failed", reason),),
            findings=(Finding(name, "failed", reason, log=reason),),
        )
    )


def test_many_cases_are_cut_with_a_statement(large_report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployops.validation.reports.junit.MOST_CASES", 100)
    cases = [c for s in parsed(large_report) for c in s]
    assert len(cases) == 101
    assert sum(outcome(c) == "failure" for c in cases) == 9
    assert (
        next(c for c in cases if c.name == "cases left out").result[0].message.startswith("4900 more cases")
    )


def test_the_same_report_gives_the_same_bytes(full_report: Report) -> None:
    assert junit(full_report) == junit(
        replace(full_report, environment=dict(reversed(full_report.environment.items())))
    )


@pytest.mark.parametrize("named", [True, False])
def test_where_it_begins_stands_below_the_words_that_say_so(named: bool, full_report: Report) -> None:
    """The conclusion too, and where no node is named it alone."""
    (bisection,) = full_report.bisections
    found = replace(bisection, culprit=bisection.culprit if named else None)
    suite = next(s for s in parsed(replace(full_report, bisections=(found,))) if s.name == "onnxruntime")
    (failure,) = next(c for c in suite if c.name == "logits at batch=3, large").result
    lines = failure.text.splitlines()
    at = next(k for k, line in enumerate(lines) if "See where it begins to diverge, below." in line)
    below = lines[at + 1 :]
    assert bisection.text in below
    assert any(line.startswith("begins to diverge at node /layers.3/act/Gelu") for line in below) == named


def test_a_pytest_failure_has_the_conclusion_too(full_report: Report) -> None:
    from deployops.validation.reports.failure import failure

    (bisection,) = full_report.bisections
    for found in (bisection, replace(bisection, culprit=None)):
        assert bisection.text in failure(replace(full_report, bisections=(found,)))
