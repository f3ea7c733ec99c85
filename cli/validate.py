"""deployops validate"""

from __future__ import annotations

import sys

import click

from .options import ModelChoice, Progress, json_option, model_options, print_json

__all__ = ["validate"]


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "--onnx", "onnx_file", required=True, type=click.Path(), metavar="FILE", help="The exported model."
)
@model_options
@click.option(
    "--sizes", type=click.IntRange(1, 20), default=3, show_default=True, help="At how many sizes to compare."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@click.option("--atol", type=float, help="Your own absolute tolerance, instead of the derived budget.")
@click.option("--rtol", type=float, help="Your own relative tolerance.")
@click.option("--threads", type=click.IntRange(1), help="Threads on both sides.")
@click.option(
    "--ort-library",
    "ort_libraries",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A custom-operator library for ONNX Runtime. Repeatable; it is run, in a process of its own.",
)
@click.option(
    "--latency/--no-latency", default=True, show_default=True, help="Measure both sides, interleaved."
)
@json_option("Print the report as JSON.")
def validate(
    model: str,
    choice: ModelChoice,
    onnx_file: str,
    sizes: int,
    seed: int,
    atol: float | None,
    rtol: float | None,
    threads: int | None,
    ort_libraries: tuple[str, ...],
    latency: bool,
    as_json: bool,
) -> None:
    """Compare MODEL with its exported ONNX file: parity at several sizes, and latency.

    Exit code 0 where every output agrees, 1 where one does not, 3 where nothing could be compared.
    """
    from ..validation import validate as run

    choice.load()
    with Progress(quiet=as_json):
        report = run(
            model,
            onnx_file,
            choice.specs,
            data=choice.samples(),
            factory=choice.factory,
            trust=choice.trust,
            sizes=sizes,
            seed=seed,
            atol=atol,
            rtol=rtol,
            threads=threads,
            libraries=ort_libraries,
            latency=latency,
        )
    print_json(report.to_dict()) if as_json else click.echo(report.text())
    sys.exit(report.exit_code)
