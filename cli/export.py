"""deployops export"""

from __future__ import annotations

import os
from typing import Any

import click

from .options import ModelChoice, Progress, json_option, model_options, print_json

__all__ = ["export"]


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "-o", "--output", type=click.Path(), metavar="OUT.onnx", help="Default: MODEL with the ending .onnx."
)
@model_options
@click.option("--opset", type=int, help="Version of ONNX's standard operators (18 to 25; default 20).")
@click.option(
    "--custom-ops",
    type=click.Choice(["function", "node", "standard"]),
    help="function: custom nodes with bodies, any runtime runs them (default; an operator without one stays alone); "
    "node: custom nodes alone; standard: expanded, no custom node left.",
)
@click.option(
    "--external-data/--no-external-data", default=None, help="Weights in a second file. Default: above 2 GB."
)
@json_option("Print the summary as JSON.")
def export(
    model: str,
    choice: ModelChoice,
    output: str | None,
    opset: int | None,
    custom_ops: Any,
    external_data: bool | None,
    as_json: bool,
) -> None:
    """Export MODEL to a checked ONNX model.

    MODEL is any model file of PyTorch, told by its content: a torch.export archive, TorchScript, a state dict or
    checkpoint (with --model), or a pickled module (with --trust).
    """
    from ..export import export_model

    choice.load()
    with Progress(quiet=as_json) as progress:
        result = export_model(
            model,
            choice.specs,
            out=output or os.path.splitext(model)[0] + ".onnx",
            data=choice.samples(),
            opset=opset,
            custom_ops=custom_ops,
            external_data=external_data,
            factory=choice.factory,
            trust=choice.trust,
            progress=progress,
        )
    print_json(result.to_dict()) if as_json else click.echo(result.summary())
