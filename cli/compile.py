"""deployops compile"""

from __future__ import annotations

import click

from .options import Progress, json_option, packs_option, print_json, search_here

__all__ = ["compile_command"]


@click.command("compile")
@click.option(
    "--target",
    type=click.Choice(["ort-cpu"]),
    default="ort-cpu",
    show_default=True,
    help="What to build for.",
)
@packs_option("Python that declares operators. Repeatable; it is run. Without it: the shipped operators.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="DIR",
    help="Where the library goes. Default: lib; for the shipped operators the place where sessions look.",
)
@click.option("--cxx", metavar="COMPILER", help="The C++ compiler. Default: $CXX, g++, clang++.")
@click.option("--cxxflag", "flags", multiple=True, metavar="FLAG", help="One more flag for it. Repeatable.")
@click.option("--jobs", type=click.IntRange(1), help="Compilers at once. Default: one per core.")
@json_option("Print the result as JSON.")
def compile_command(
    target: str,
    packs: tuple[str, ...],
    output: str | None,
    cxx: str | None,
    flags: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compile the kernels of operators into a library for ONNX Runtime.

    Writes libdeployops_ort_cpu.so and a manifest beside it. The kernel of `acme::swish` is kernels/swish.h (or
    swish.h) beside the file that declares it. What did not change is not compiled again.
    """
    from ..ort_ops.library import compile_library

    search_here()
    with Progress(quiet=as_json) as progress:
        library = compile_library(
            target,
            list(packs) or None,
            out=output,
            cxx=cxx,
            flags=flags,
            jobs=jobs,
            progress=lambda done, of, name: progress(f"{done} of {of}: {name}"),
        )
    print_json(library.to_dict()) if as_json else click.echo(library.summary())
