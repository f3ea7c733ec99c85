"""deployops doctor"""

from __future__ import annotations

import click

from .options import json_option, print_json

__all__ = ["doctor_command"]


@click.command("doctor")
@click.option(
    "--nvcc", metavar="NVCC", help="The CUDA compiler to look at: a path, or the folder of a toolkit."
)
@click.option("--cxx", metavar="COMPILER", help="The C++ compiler to look at.")
@click.option(
    "--tensorrt-root", type=click.Path(), metavar="DIR", help="The folder of a TensorRT SDK to look at."
)
@click.option(
    "--fetch-tensorrt-headers",
    "fetch",
    is_flag=True,
    help="Fetch TensorRT's C++ headers from a pinned wheel, through pip, into the user's cache.",
)
@json_option("Print what was found as JSON.")
def doctor_command(
    nvcc: str | None, cxx: str | None, tensorrt_root: str | None, fetch: bool, as_json: bool
) -> None:
    """Show what this machine has for building TensorRT plugins, and how to get what is missing.

    Looks for a C++ compiler, the CUDA compiler with its headers, TensorRT's C++ headers, installed runtimes and the
    NVIDIA driver.
    """
    from ..trt_plugins.doctor import examine
    from ..trt_plugins.headers import fetch_headers

    if fetch:
        fetch_headers()
    findings = examine(cxx=cxx, nvcc=nvcc, tensorrt_root=tensorrt_root)
    if as_json:
        print_json([f.to_dict() for f in findings])
        return
    width = max(len(f.name) for f in findings)
    for f in findings:
        click.echo(f"{'found' if f.found else 'none ':5}  {f.name:{width}}  {f.text}")
