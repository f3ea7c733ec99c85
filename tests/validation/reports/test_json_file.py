"""The report as JSON: exact both ways, strict when it is read, and as its published schema says."""

from __future__ import annotations

import json
import math
import types
import typing
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Union

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployops.errors import ModelFileError
from deployops.validation.record import SCHEMA, Cell, Report
from deployops.validation.reports.json_file import dumps, loads, schema, to_dict

ROOT = Path(__file__).resolve().parents[3]
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that an annotation of the records allows, NaN and infinities included."""
    if is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{f.name: values(hints[f.name]) for f in fields(hint)})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return st.none() | values(next(a for a in arguments if a is not type(None)))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is dict:
        return st.dictionaries(st.text(), values(arguments[1]), max_size=2)
    plain = {
        str: st.text(),
        bool: st.booleans(),
        int: st.integers(-(2**64), 2**64),
        float: st.floats(),
        Any: PLAIN,
    }
    return plain[hint]


reports = values(Report).map(lambda r: replace(r, schema=SCHEMA))


def told(value: Any) -> Any:
    """Everything about a value that must survive: type, digits, NaN, the sign of zero; the order of free keys need not."""
    if is_dataclass(value):
        return type(value).__name__, [(f.name, told(getattr(value, f.name))) for f in fields(value)]
    if isinstance(value, tuple | list):
        return type(value).__name__, [told(v) for v in value]
    if isinstance(value, dict):
        return {k: told(v) for k, v in value.items()}
    return repr(value)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports)
def test_what_is_written_is_read_back_exactly(report: Report) -> None:
    text = dumps(report)
    again = loads(text)
    assert told(again) == told(report)
    assert dumps(again) == text
    assert text.isascii()
    jsonschema.validate(json.loads(text), schema(), cls=jsonschema.Draft202012Validator)


def test_a_full_report_is_as_the_schema_says(full_report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(dumps(full_report)), schema(), cls=jsonschema.Draft202012Validator)


def test_the_published_schema_is_current() -> None:
    published = json.loads((ROOT / "docs" / "report.schema.json").read_text())
    assert published == schema(), (
        "the records changed: python -m deployops.validation.reports.json_schema > docs/report.schema.json"
    )


@pytest.mark.parametrize("key", ["verdict", "cells", "environment"])
def test_the_schema_asks_for_what_is_always_written(full_report: Report, key: str) -> None:
    data = to_dict(full_report)
    del data[key]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(to_dict(full_report) | {"another": 1}, schema())


def test_equal_reports_give_equal_bytes(full_report: Report) -> None:
    backwards = dict(reversed(full_report.environment.items()))
    assert list(backwards) != list(full_report.environment)
    assert dumps(replace(full_report, environment=backwards)) == dumps(full_report)


def test_the_numbers_of_readers_are_computed_from_the_fields(full_report: Report) -> None:
    data = to_dict(full_report)
    assert (data["verdict"], data["exit_code"]) == ("failed", 1)
    assert data["coverage"] == {"checked": 30, "all": 31}
    assert [c["used"] for c in data["cells"]] == [
        c.used if math.isfinite(c.used) else str(c.used) for c in full_report.cells
    ]


def test_a_surrogate_of_a_file_name_is_shown(full_report: Report) -> None:
    text = dumps(replace(full_report, model="a\udc80b", environment={"k\udc80": "\udc80"}))
    assert loads(text).model == "a\\udc80b"
    assert loads(text).environment == {"k\\udc80": "\\udc80"}


# What is no report is refused in one line.


def changed(report: Report, old: str, new: str) -> str:
    text = dumps(report)
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"count": 512', '"count": "512"', "valid integer"),
        ('"count": 512', '"count": 512.5', "integer"),
        ('"count": 512', '"count": true', "valid integer"),
        ('"count": 512', '"count": null', "valid integer"),
        ('"count": 512', f'"count": {"9" * 50}', "a number of 50 digits"),
        ('"rtol": 4.76', '"rtol": 1e999, "x": 4.76', "beyond every float64"),
        ('"rtol": 4.76', '"rtol": NaN, "x": 4.76', "NaN is no JSON number"),
        ('"verdict": "passed"', '"verdict": "fine"', "'passed', 'failed' or 'not checked'"),
        ('"severity": "note"', '"severity": "x"', "severity"),
        ('"model": "net.pt"', '"model": 3', "valid string"),
        ('"model": "net.pt"', '"model": "a", "model": "b"', "a key stands twice"),
        ('"model": "net.pt"', '"model": "\\ud800"', "surrogate"),
        (
            '"model": "net.pt"',
            '"another": "net.pt"',
            "`another`, which this version of deployops does not know",
        ),
        ('"output": "logits", "backend"', '"backend"', "Field required"),
        ('"index": [3, ', '"index": [3.5, ', "integer"),
        (
            '"schema": "deployops.validation/2"',
            '"schema": "deployops.validation/99"',
            "reads deployops.validation/2",
        ),
        ('"schema": "deployops.validation/2"', '"schema": 2', "it is no validation report"),
        ('"exit_code": 1', '"exit_code": 0', "its numbers give 1"),
        ('"verdict": "failed", "reason": "497', '"verdict": "passed", "reason": "497', None),
    ],
)
def test_a_changed_report_is_refused(full_report: Report, old: str, new: str, message: str | None) -> None:
    text = changed(full_report, old, new)
    if message is None:  # other failures remain, so the verdict still agrees
        assert loads(text).verdict == "failed"
        return
    with pytest.raises(ModelFileError) as error:
        loads(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "\x00",
        "[" * 100_000,
        '{"schema":' * 50_000,
        "x" * 1000,
        b"\xff\xfe\x00",
        b'{"a": "\xff"}',
    ],
)
def test_what_is_no_report_is_refused(text: str | bytes) -> None:
    with pytest.raises(ModelFileError):
        loads(text)


@pytest.mark.parametrize("depth", [500, 50_000])
def test_deep_nesting_within_a_report_is_refused(depth: int) -> None:
    report = dumps(Report("m", "o", (Cell("s", "o", "b", "passed"),)))
    deep = report.replace('"environment": {}', '"environment": {"a": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(ModelFileError, match="nested too deeply"):
        loads(deep)


def test_a_file_that_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch, full_report: Report) -> None:
    monkeypatch.setattr("deployops.validation.reports.json_file.LARGEST", 1000)
    with pytest.raises(ModelFileError, match="at most"):
        loads(dumps(full_report))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_json_ends_in_a_traceback(data: st.DataObject) -> None:
    """Any JSON value in the place of any value of a report: read, or refused as a file."""
    plain = to_dict(Report("m", "o", (Cell("s", "o", "b", "passed", shape=(1,)),)))
    place = plain if data.draw(st.booleans()) else plain["cells"][0]
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(PLAIN)
    try:
        report = loads(json.dumps(plain))
    except ModelFileError:
        return
    assert loads(dumps(report)) == report
