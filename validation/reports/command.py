"""`deployops report`: read a saved report, judge it again where limits are given, render it. Runs nothing, writes nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import DeployOpsError, UsageError
from ..latency.record import LatencyRecord
from ..record import Limits, Report
from .contradictions import expect_consistent
from .json_file import LARGEST, dumps, loads
from .rejudge import of_another, rejudged
from .terminal import text

__all__ = ["Rendered", "judged", "latency_of", "read_report", "render", "rendered"]

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Rendered:
    """What the command prints, the files it writes (path and content), and what it ends with."""

    report: Report
    printed: str
    files: tuple[tuple[Path, str], ...]

    @property
    def exit_code(self) -> int:
        """Of the verdict under the limits that hold now."""
        return self.report.exit_code


def render(
    file: StrPath,
    *,
    limits: Limits | None = None,
    baseline: StrPath | None = None,
    html: StrPath | None = None,
    junit: StrPath | None = None,
    as_json: bool = False,
    colour: bool = False,
    width: int | None = None,
) -> Rendered:
    """Render a saved report again, judged by other limits where some are given.

    Args:
        file: what `deployops validate --json` wrote.
        limits: see `rejudge.rejudged`.
        baseline: an earlier report, whose latency this one is held against.
        html, junit: where to write these; the caller writes `Rendered.files`.
        as_json: print the report as JSON instead of the table.

    Raises:
        UsageError, ModelFileError: no such file, no report, or limits that make no sense.
    """
    return rendered(
        judged(file, limits or Limits(), baseline),
        html=html,
        junit=junit,
        as_json=as_json,
        colour=colour,
        width=width,
    )


def judged(file: StrPath, limits: Limits, baseline: StrPath | None) -> Report:
    """The saved report, under these limits."""
    report = read_report(file)
    if limits == Limits() and baseline is None:
        return report
    if baseline is None:
        return rejudged(report, limits)
    earlier = read_report(baseline)
    made = rejudged(report, limits, latency_of(earlier, baseline))
    notes = of_another(earlier, report.model, report.onnx)
    return replace(made, findings=tuple(dict.fromkeys((*made.findings, *notes))))


def rendered(
    report: Report,
    *,
    html: StrPath | None = None,
    junit: StrPath | None = None,
    json: StrPath | None = None,
    as_json: bool = False,
    colour: bool = False,
    width: int | None = None,
) -> Rendered:
    """What `deployops validate` and `deployops report` print and write of a report. `json`: where to write that."""
    files: list[tuple[Path, str]] = []
    if html is not None:
        from .html import html as page

        files.append((Path(html), page(report)))
    if junit is not None:
        from .junit import junit as xml

        files.append((Path(junit), xml(report)))
    if json is not None:
        files.append((Path(json), dumps(report)))
    printed = dumps(report).rstrip("\n") if as_json else text(report, colour, width)
    return Rendered(report, printed, tuple(files))


def read_report(file: StrPath) -> Report:
    """A saved report. Raises UsageError, and ModelFileError for one that is damaged or contradicts itself."""
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{path}: not a file" if path.exists() else f"{path}: no such file")
    if path.stat().st_size > LARGEST:
        raise UsageError(
            f"{path} has {path.stat().st_size >> 20} MB; a report has at most {LARGEST >> 20} MB"
        )
    try:
        report = loads(path.read_bytes())
        expect_consistent(report)
        return report
    except DeployOpsError as error:
        raise type(error)(f"{path}: {error}") from None


def latency_of(report: Report, file: StrPath) -> LatencyRecord:
    """The latency of an earlier report. Raises UsageError where it has none."""
    if report.latency is None:
        raise UsageError(f"{file}: the report has no latency to compare with: validate with --latency")
    return report.latency
