"""deployops inspect"""

from __future__ import annotations

import sys

import click

from .options import json_option, print_json

__all__ = ["inspect"]


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--runtime",
    metavar="onnxruntime==X.Y.Z",
    help="What to hold an ONNX model against. Default: the installed one.",
)
@click.option(
    "--ort-library",
    "libraries",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A library that `deployops compile` built. Repeatable; its manifest is read, it is not loaded.",
)
@json_option()
def inspect(file: str, runtime: str | None, libraries: tuple[str, ...], as_json: bool) -> None:
    """Say what FILE is, and what is in it. Runs nothing of it and needs no torch.

    Of an ONNX model: what would fail in ONNX Runtime on the CPU, and where custom nodes cost speed. Exit code 1 where
    something would fail.
    """
    from ..export import inspect_model

    found = inspect_model(file, runtime=runtime, libraries=libraries)
    print_json(found.to_dict()) if as_json else click.echo(found.summary())
    sys.exit(found.exit_code)
