"""deployops emulate"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import click

from .options import Progress, chosen_operators, json_option, packs_option, print_json

__all__ = ["emulate"]


@click.command()
@click.argument("names", nargs=-1)
@packs_option()
@click.option(
    "--sanitize",
    type=click.Choice(["address", "thread"]),
    help="address: with AddressSanitizer and UndefinedBehaviorSanitizer. thread: look for races.",
)
@click.option("--cxx", metavar="COMPILER", help="The C++ compiler. Default: $CXX, g++, clang++.")
@click.option("--jobs", type=click.IntRange(1), help="Compilers at once. Default: one per core.")
@json_option()
def emulate(
    names: tuple[str, ...],
    packs: tuple[str, ...],
    sanitize: Any,
    cxx: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run CUDA kernels on the CPU and compare them with the references: no GPU is needed.

    Each kernel (NAME.cuh beside its declaration), on every dtype, sample and variant, under several schedules of its
    threads. NAMES limits it to some operators; without it, those of --ops, or the shipped ones.
    """
    from ..symbolic.checking.operator_check import exit_code, render
    from ..trt_plugins.emulation.check import emulate as run

    chosen = chosen_operators(names, packs)
    with Progress(quiet=as_json) as progress:
        results = run(
            chosen,
            sanitize=sanitize,
            cxx=cxx,
            jobs=jobs,
            progress=lambda done, of, name: progress(f"{done} of {of}: {name}"),
        )
    print_json([dataclasses.asdict(r) for r in results]) if as_json else click.echo(render(results))
    code = exit_code(results)
    # nothing that ran is no pass
    sys.exit(code if code or any(r.status == "passed" for r in results) else 3)
