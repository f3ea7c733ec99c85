"""deployops engine build, deployops engine show"""

from __future__ import annotations

from typing import Any

import click

from ..native.archs import read_archs
from .options import Progress, json_option, print_json

__all__ = ["engine"]


@click.group()
def engine() -> None:
    """Build TensorRT engines, and say what one is."""


@engine.command()
@click.argument("model", type=click.Path(), metavar="MODEL.onnx")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="FILE", help="The engine to write.")
@click.option(
    "--flavor",
    type=click.Choice(["tensorrt", "tensorrt-rtx"]),
    help="Which TensorRT builds. Default: the installed one; TensorRT where both are.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="'x=MIN,OPT,MAX; y=…'",
    help="Shapes to build for, as 'x=1x3x224x224,8x3x224x224,32x3x224x224'; all inputs of one profile together, each "
    "further profile by a further option. Default: the ranges that the model was exported with.",
)
@click.option(
    "--plugins",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A library of plugins. Repeatable; it is run.",
)
@click.option("--embed-plugins", is_flag=True, help="The engine carries the plugin libraries.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    help="Cast the model first. fp32: no TensorFloat-32 either. Default: the types of the model.",
)
@click.option(
    "--keep-float32",
    multiple=True,
    metavar="NODE|OPERATOR",
    help="What fp16 and bf16 leave in float32: '/head/MatMul', 'Softmax', 'acme::Norm'. Repeatable.",
)
@click.option(
    "--arch",
    metavar="sm86,sm89,…",
    help="TensorRT-RTX: compute capabilities of the GPUs. Default: 8.0 and newer. TensorRT: the GPU at hand.",
)
@click.option(
    "--timing-cache",
    type=click.Path(),
    metavar="FILE",
    help="TensorRT: read what was timed before, and add to it.",
)
@click.option("--workspace", metavar="2GiB", help="The most device memory that a layer may use for itself.")
@click.option(
    "--in-place",
    is_flag=True,
    help="Operators that write into an argument do so in the input's own memory, without a copy.",
)
@click.option(
    "--allow-modified",
    is_flag=True,
    help="Build of a model that another tool has written again after its export. The sidecar says so.",
)
@click.option(
    "--timeout",
    type=float,
    metavar="SECONDS",
    help="End the build after this time. Default: none for the builder, and 10 minutes for what comes before it.",
)
@click.option("--no-cache", is_flag=True, help="Build even what was built before, and keep nothing.")
@json_option("Print the result as JSON.")
def build(
    model: str,
    output: str,
    flavor: Any,
    profiles: tuple[str, ...],
    plugins: tuple[str, ...],
    embed_plugins: bool,
    precision: Any,
    keep_float32: tuple[str, ...],
    arch: str | None,
    timing_cache: str | None,
    workspace: str | None,
    in_place: bool,
    allow_modified: bool,
    timeout: float | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Build a serialised engine of an ONNX model, with a sidecar that says what it is.

    TensorRT-RTX builds without a GPU; TensorRT builds for the GPU of this machine. The plugins of --plugins are loaded in a
    process of their own.

    Exit codes: 0 built, 1 the model cannot be built, 2 wrong use or a damaged model, 3 TensorRT or a GPU is missing.
    """
    from ..trt_plugins.engines.build import build_engine

    with Progress(quiet=as_json) as progress:
        built = build_engine(
            model,
            out=output,
            flavor=flavor,
            profiles=profiles,
            plugins=plugins,
            embed_plugins=embed_plugins,
            precision=precision,
            keep_float32=keep_float32,
            archs=[] if arch is None else read_archs(arch),
            timing_cache=timing_cache,
            workspace=workspace,
            in_place=in_place,
            allow_modified=allow_modified,
            cache=not no_cache,
            timeout=timeout,
            progress=progress,
        )
    print_json(built.to_dict()) if as_json else click.echo(built.summary())


@engine.command()
@click.argument("file", type=click.Path(), metavar="MODEL.engine")
@click.option(
    "--model", type=click.Path(), metavar="MODEL.onnx", help="Whether it was built from this model."
)
@click.option(
    "--plugins",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="Whether these are the libraries that it needs. Repeatable; they are not loaded.",
)
@json_option()
def show(file: str, model: str | None, plugins: tuple[str, ...], as_json: bool) -> None:
    """Say what an engine is, and whether it would run here. It is not loaded.

    Exit code 1 where something is known to be in the way.
    """
    from ..trt_plugins.engines.show import show_engine

    found = show_engine(file, model=model, plugins=plugins or None)
    print_json(found.to_dict()) if as_json else click.echo(found.summary())
    click.get_current_context().exit(found.exit_code)
