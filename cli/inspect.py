"""deployops inspect"""

from __future__ import annotations

import click

from ..native.archs import read_archs
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
    help="A library that `deployops compile` built, for the CPU or for CUDA. Repeatable; its manifest is read, it is not loaded.",
)
@click.option("--tensorrt", metavar="X.Y", help="The version of TensorRT to hold an ONNX model against.")
@click.option(
    "--tensorrt-rtx", metavar="X.Y", help="The version of TensorRT-RTX to hold an ONNX model against."
)
@click.option(
    "--plugins",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A library of TensorRT plugins, or a JSON file that describes some. Repeatable; it is read, not loaded.",
)
@click.option(
    "--arch",
    "archs",
    metavar="89,...",
    help="GPUs that the plugins shall run on, by compute capability.",
)
@click.option(
    "--allow-modified",
    is_flag=True,
    help="Take a model that another tool has written again after its export.",
)
@json_option()
def inspect(
    file: str,
    runtime: str | None,
    libraries: tuple[str, ...],
    tensorrt: str | None,
    tensorrt_rtx: str | None,
    plugins: tuple[str, ...],
    archs: str | None,
    allow_modified: bool,
    as_json: bool,
) -> None:
    """Say what FILE is, and what is in it. Runs nothing of it and needs no torch.

    Of an ONNX model: what would fail in ONNX Runtime, on the CPU or with a library for CUDA there, and where custom nodes cost
    speed; with --tensorrt, what would fail in that TensorRT instead. Exit code 1 where something would fail, 2 where
    FILE is no model.
    """
    from ..export import inspect_model

    found = inspect_model(
        file,
        runtime=runtime,
        libraries=libraries,
        tensorrt=tensorrt,
        tensorrt_rtx=tensorrt_rtx,
        plugins=plugins,
        archs=() if archs is None else read_archs(archs),
        allow_modified=allow_modified,
    )
    print_json(found.to_dict()) if as_json else click.echo(found.summary())
    click.get_current_context().exit(found.exit_code)
