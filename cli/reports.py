"""How a report is shown and written, and by which limits it is judged: what `validate` and `report` share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..validation.record import Report

__all__ = ["limit_options", "report_options", "show"]

Command = Callable[..., Any]

_RATIO = click.FloatRange(min=0, min_open=True)
_LIMITS = {
    "atol": click.option(
        "--atol", type=float, help="Your own absolute tolerance, instead of the derived budget."
    ),
    "rtol": click.option("--rtol", type=float, help="Your own relative tolerance."),
    "max_slowdown": click.option(
        "--max-slowdown", type=_RATIO, metavar="RATIO", help="Fail above so many times the original's median."
    ),
    "min_speedup": click.option(
        "--min-speedup", type=_RATIO, metavar="RATIO", help="Fail below so many times the original's speed."
    ),
    "max_regression": click.option(
        "--max-regression",
        type=click.FloatRange(min=0),
        metavar="PART",
        help="Against --baseline; 0.05 allows 5 %, the default.",
    ),
}
_TARGETS = {
    "html": click.option(
        "--report", "html", type=click.Path(), metavar="OUT.html", help="A page of its own."
    ),
    "junit": click.option("--junit", type=click.Path(), metavar="OUT.xml", help="For CI systems."),
    # with or without a file, as `--json` of the other commands
    "json": click.option(
        "--json",
        is_flag=False,
        flag_value="-",
        metavar="[OUT.json]",
        help="Write it as JSON; alone, print it.",
    ),
}


def limit_options(command: Command) -> Command:
    """The user's limits: the command takes them as `limits`, and the file to compare with as `baseline`."""
    command = _collected(command, "limits", _LIMITS)
    return click.option(
        "--baseline",
        type=click.Path(),
        metavar="FILE.json",
        help="An earlier report: latency must not be worse, on the same machine and versions.",
    )(command)


def report_options(command: Command) -> Command:
    """Where the report goes: the command takes it as `targets`."""
    return _collected(command, "targets", _TARGETS)


def _collected(command: Command, name: str, options: Mapping[str, Callable[[Command], Command]]) -> Command:
    @functools.wraps(command)
    def gathered(**given: Any) -> Any:
        return command(**{name: {key: given.pop(key) for key in options}}, **given)

    collected: Command = gathered
    for option in reversed(list(options.values())):
        collected = option(collected)
    return collected


def show(report: Report, targets: dict[str, str | None]) -> None:
    """Print the report, write the files asked for, and end with its exit code."""
    from ..native.output_files import replace_file
    from ..validation.reports.command import rendered

    to_json = targets["json"]
    result = rendered(
        report,
        html=targets["html"],
        junit=targets["junit"],
        json=None if to_json == "-" else to_json,
        as_json=to_json == "-",
        colour=sys.stdout.isatty(),
    )
    for path, content in result.files:
        replace_file(path, functools.partial(_write, content))
    click.echo(result.printed)
    click.get_current_context().exit(result.exit_code)


def _write(content: str, path: Path) -> None:
    path.write_text(content, encoding="utf-8")
