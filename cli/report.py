"""deployops report"""

from __future__ import annotations

import click

from .reports import limit_options, report_options, show

__all__ = ["report"]


@click.command()
@click.argument("file", type=click.Path(), metavar="OUT.json")
@limit_options
@report_options
def report(
    file: str, limits: dict[str, float | None], baseline: str | None, targets: dict[str, str | None]
) -> None:
    """Render a saved report again, or judge its numbers by other limits. Nothing is run.

    The exit code is that of the verdict under the limits that hold now.
    """
    from ..validation.record import Limits
    from ..validation.reports.command import judged

    show(judged(file, Limits(**limits), baseline), targets)
