"""deployops validate"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from .options import ModelChoice, Progress, chosen_operators, model_options
from .reports import limit_options, report_options, show

__all__ = ["validate"]


@click.command()
@click.argument("model", type=click.Path(), required=False)
@click.option("--onnx", "onnx_file", type=click.Path(), metavar="FILE", help="The exported model.")
@click.option(
    "--op",
    "operators",
    multiple=True,
    metavar="NAME",
    help="An operator alone, on its declared samples, in every dtype; 'all' for all of --ops. Repeatable.",
)
@model_options
@click.option(
    "--inputs",
    "inputs_dir",
    type=click.Path(),
    metavar="DIR",
    help="Real samples: .npz files, or .npy files by input; expected_NAME are outputs that must come out.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="What to run, and must be checked. Repeatable. Default: what serves the file as it is deployed, as far as it is there.",
)
@click.option(
    "--require",
    multiple=True,
    metavar="NAME",
    help="A backend without which there is no pass, besides the default ones. Repeatable.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME:MODE",
    help="How an output is judged: values, argmax, topk:K, set, boxes. Repeatable.",
)
@click.option(
    "--sweep",
    type=click.Choice(["quick", "full"]),
    help="quick: other magnitudes too, and declared maxima that cost little. full: the declared ranges, several seeds, every "
    "distribution and layout.",
)
@click.option(
    "--sizes", type=click.IntRange(1, 20), default=3, show_default=True, help="At how many sizes to compare."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
@click.option("--bisect", is_flag=True, help="Look for the node where a failed output begins to differ.")
@limit_options
@click.option(
    "--latency/--no-latency", default=True, show_default=True, help="Measure the candidates, interleaved."
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="NAME",
    help="Predict the floor on this GPU, such as 'H100 SXM'. Repeatable.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads on every side.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where the original is timed. auto: on a GPU too, where a backend on a GPU is timed beside it.",
)
@click.option(
    "--ort-library",
    "ort_libraries",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A custom-operator library for ONNX Runtime. Repeatable; it is run, in a process of its own.",
)
@click.option("--engine", type=click.Path(), metavar="FILE", help="A TensorRT engine.")
@click.option(
    "--plugins",
    multiple=True,
    type=click.Path(),
    metavar="LIB.so",
    help="A library of TensorRT plugins. Repeatable; it is run, in a process of its own.",
)
@click.option(
    "--allow-modified",
    is_flag=True,
    help="Validate a file that another tool has changed after export; the report says so.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="For one thing, such as one run; what takes longer is stopped and reported.",
)
@report_options
def validate(
    model: str | None,
    choice: ModelChoice,
    onnx_file: str | None,
    operators: tuple[str, ...],
    inputs_dir: str | None,
    backends: tuple[str, ...],
    require: tuple[str, ...],
    outputs: tuple[str, ...],
    sweep: Any,
    sizes: int,
    seed: int,
    bisect: bool,
    limits: dict[str, float | None],
    baseline: str | None,
    latency: bool,
    gpus: tuple[str, ...],
    threads: int | None,
    device: Any,
    ort_libraries: tuple[str, ...],
    engine: str | None,
    plugins: tuple[str, ...],
    allow_modified: bool,
    time_limit: float,
    targets: dict[str, str | None],
) -> None:
    """Compare MODEL with its exported ONNX file on every backend: parity at several sizes, and latency.

    Or operators alone, with --op and no MODEL. Exit code 0 where everything agrees, 1 where something does not, 2 for
    wrong use, 3 where something required could not be checked.
    """
    if (model is None) != (onnx_file is None):
        raise UsageError("give both MODEL and --onnx FILE, or neither and --op NAME")
    if model is None and not operators:
        raise UsageError("nothing to validate: give MODEL and --onnx FILE, or --op NAME")
    from ..validation.files import validate as run
    from ..validation.operator_run import joined, validate_operators
    from ..validation.options import Options
    from ..validation.record import Limits
    from ..validation.reports.command import read_report

    choice.search_here()
    reports = []
    with Progress(quiet=targets["json"] == "-") as progress:
        if model is not None and onnx_file is not None:
            reports.append(
                run(
                    model,
                    onnx_file,
                    choice.specs,
                    data=choice.samples(),
                    inputs_dir=inputs_dir,
                    factory=choice.factory,
                    trust=choice.trust,
                    ops=choice.ops,
                    torch_libraries=choice.libraries,
                    backends=backends or None,
                    require=require,
                    outputs=outputs,
                    sweep=sweep,
                    sizes=sizes,
                    seed=seed,
                    latency=latency,
                    baseline=baseline,
                    gpus=gpus,
                    bisect=bisect,
                    threads=threads,
                    device=device,
                    libraries=ort_libraries,
                    engine=engine,
                    plugins=plugins,
                    allow_modified=allow_modified,
                    supervise=True,
                    limit_s=time_limit,
                    progress=progress,
                    atol=limits["atol"],
                    rtol=limits["rtol"],
                    max_slowdown=limits["max_slowdown"],
                    min_speedup=limits["min_speedup"],
                    max_regression=limits["max_regression"],
                )
            )
        if operators:
            options = Options(
                backends=backends or None,
                required=require,
                limits=Limits(**limits),
                seed=seed,
                latency=latency,
                baseline=None if baseline is None else read_report(baseline),
                gpus=gpus,
                bisect=bisect,
                threads=threads,
                device=device,
                libraries=tuple(map(Path, ort_libraries)),
                plugins=tuple(map(Path, plugins)),
                limit_s=time_limit,
            )
            found = chosen_operators(() if operators == ("all",) else operators, choice.ops)
            reports.append(validate_operators(found, options=options, progress=progress))
    show(joined(reports), targets)
