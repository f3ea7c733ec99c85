"""The report as JSON, written and read back, and its published schema (`docs/report.schema.json`)."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import ModelFileError
from ..record import FAILED, NOT_CHECKED, PASSED, SCHEMA, Report
from ..verdict import coverage
from .typed_json import SPECIAL, decode, encode

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["LARGEST", "dumps", "loads", "schema", "to_dict"]

LARGEST = 128 << 20  # bytes; a matrix of 5,000 cells has some 50 MB
MOST_DIGITS = 40  # of a whole number: the bytes of the largest model and the largest uint64 have 20
VERDICTS = (PASSED, FAILED, NOT_CHECKED)
# What is written for readers besides the fields, and computed again when the file is read.
COMPUTED = {"Report": frozenset({"verdict", "exit_code", "coverage"}), "Cell": frozenset({"used"})}


def to_dict(report: Report) -> dict[str, Any]:
    """Plain values. NaN and infinities become the strings "nan", "inf", "-inf": JSON has no such numbers."""
    checked, every = coverage(report)
    fields: dict[str, Any] = encode(report, Report)
    for written, cell in zip(fields["cells"], report.cells, strict=True):
        written["used"] = encode(cell.used, float)
    return {
        "schema": fields.pop("schema"),
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "coverage": {"checked": checked, "all": every},
        **fields,
    }


def dumps(report: Report) -> str:
    """JSON text in ASCII, the same bytes for the same report. A line for each cell: two reports can be compared by lines."""
    parts = []
    for key, value in to_dict(report).items():
        if isinstance(value, list) and value:
            written = "[\n  " + ",\n  ".join(json.dumps(v, allow_nan=False) for v in value) + "\n ]"
        else:
            written = json.dumps(value, allow_nan=False)
        parts.append(f"{json.dumps(key)}: {written}")
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def loads(text: str | bytes) -> Report:
    """Read what `dumps` wrote. Raises ModelFileError for anything else: a report may come from a stranger.

    Nothing is guessed: an unknown key, a number written as text or a verdict that the numbers do not give is refused.
    """
    from pydantic import ValidationError

    plain = _parsed(text)
    _check_version(plain)
    try:
        fields = decode(plain, Report, COMPUTED)
        report = _adapter().validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise ModelFileError(_refusal(error)) from None
    except RecursionError:
        raise ModelFileError("the report is nested too deeply: it was not written by deployops") from None
    _check_verdict(plain, report)
    return report


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `dumps` writes."""
    from pydantic.json_schema import GenerateJsonSchema

    number = {"anyOf": [{"type": "number"}, {"enum": list(SPECIAL)}]}

    class Written(GenerateJsonSchema):
        def float_schema(self, schema: Any) -> dict[str, Any]:
            return dict(number)

    made = _adapter().json_schema(mode="serialization", schema_generator=Written)
    records = made["$defs"]
    for record in (made, *records.values()):
        _untitled(record)
        record["additionalProperties"] = False
        record["required"] = list(record["properties"])  # everything is always written
    made["properties"]["schema"] = {"const": SCHEMA}
    records["Cell"]["properties"]["used"] = dict(number)
    records["Cell"]["required"].append("used")
    sizes = {"checked": {"type": "integer", "minimum": 0}, "all": {"type": "integer", "minimum": 0}}
    made["properties"] |= {
        "verdict": {"enum": list(VERDICTS)},
        "exit_code": {"enum": [0, 1, 3]},
        "coverage": {
            "type": "object",
            "properties": sizes,
            "required": list(sizes),
            "additionalProperties": False,
        },
    }
    made["required"] += ["verdict", "exit_code", "coverage"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A validation report of deployops ({SCHEMA})",
        **made,
    }


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Report]:
    from pydantic import TypeAdapter

    return TypeAdapter(Report)


def _untitled(record: dict[str, Any]) -> None:
    """pydantic's titles and defaults say nothing to a reader of a file that has every key."""
    record.pop("title", None)
    for value in record["properties"].values():
        value.pop("title", None)
        value.pop("default", None)


def _parsed(text: str | bytes) -> dict[str, Any]:
    if len(text) > LARGEST:
        raise ModelFileError(
            f"the report has {len(text) >> 20} MB; at most {LARGEST >> 20} MB are read. No report of deployops is that large"
        )
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        plain = json.loads(
            text,
            object_pairs_hook=_without_doubles,
            parse_constant=_refuse_constant,
            parse_int=_whole,
            parse_float=_real,
        )
    except RecursionError:
        raise ModelFileError("the report is nested too deeply: it was not written by deployops") from None
    except UnicodeDecodeError as error:
        raise ModelFileError(
            f"the report is no text in UTF-8: {error.reason} at byte {error.start}"
        ) from None
    except ValueError as error:
        raise ModelFileError(
            f"the report is no JSON: {str(error)[:120]}. Give a file that `deployops validate --json` wrote"
        ) from None
    if not isinstance(plain, dict):
        raise ModelFileError(
            "the report is no JSON object: give a file that `deployops validate --json` wrote"
        )
    return plain


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is beyond every float64")
    return value


def _check_version(plain: dict[str, Any]) -> None:
    version = plain.get("schema")
    if version == SCHEMA:
        return
    if isinstance(version, str) and version.startswith("deployops.validation/"):
        raise ModelFileError(
            f"the report has the schema {version[:60]}, this deployops reads {SCHEMA}: "
            "render it with the version that wrote it, or validate again"
        )
    raise ModelFileError(
        f'the file has no `"schema": "{SCHEMA}"`: it is no validation report, which `deployops validate --json` writes'
    )


def _check_verdict(plain: dict[str, Any], report: Report) -> None:
    given = report.exit_code
    for key, value in (("verdict", report.verdict), ("exit_code", given)):
        if key in plain and plain[key] != value:
            raise ModelFileError(
                f"the report says {key} {str(plain[key])[:20]!r}, but its numbers give {value!r}: "
                "it was changed after it was written, or written by another version. Validate again"
            )


def _refusal(error: Any) -> str:
    """One line from pydantic's list: the first field, what was expected, what stands there."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":  # of the text that was parsed before: only these two are left
        deep = "recursion" in first["msg"]
        what = "is nested too deeply" if deep else "holds a lone surrogate, which is no character"
        return f"the report {what}: it was not written by deployops"
    where = ".".join(str(p)[:60] for p in first["loc"][:12]) or "the report"
    more = error.error_count() - 1
    tail = f" (and {more} more)" if more else ""
    got = "" if first["type"] == "missing" else f", got {str(first['input'])[:40]!r}"
    return f"the report's `{where}`: {first['msg'][:160]}{got}{tail}. It is damaged, or was not written by deployops"
