"""deployops compile"""

from __future__ import annotations

import click

from ..errors import UsageError
from ..native.archs import read_archs
from .options import Progress, json_option, packs_option, print_json, search_here

__all__ = ["compile_command"]


@click.command("compile")
@click.option(
    "--target",
    type=click.Choice(["ort-cpu", "ort-cuda", "tensorrt", "ptx", "cubin"]),
    default="ort-cpu",
    show_default=True,
    help="ort-cpu, ort-cuda: a library for ONNX Runtime, for the CPU or its CUDA provider. tensorrt: a library of plugins. "
    "ptx, cubin: the kernels alone.",
)
@packs_option(
    "Python that declares operators. Repeatable; it is run. Without it: the shipped operators. FILE::NAME is one operator "
    "of it."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="DIR",
    help="Where the library goes. Default: lib; for the shipped operators on ort-cpu, ort-cuda the place where sessions look.",
)
@click.option("--cxx", metavar="COMPILER", help="The C++ compiler. Default: $CXX, g++, clang++.")
@click.option(
    "--cxxflag", "flags", multiple=True, metavar="FLAG", help="ort-cpu: one more flag for it. Repeatable."
)
@click.option(
    "--arch",
    metavar="80,90,…",
    help="For a GPU: compute capabilities, 80 for 8.0. Default: 80,86,89,90,100,120; 80 for ptx and cubin.",
)
@click.option(
    "--nvcc", metavar="NVCC", help="For a GPU: the CUDA compiler. Default: $CUDA_HOME, PATH, NVIDIA's wheels."
)
@click.option(
    "--tensorrt-root", type=click.Path(), metavar="DIR", help="tensorrt: the SDK whose headers to use."
)
@click.option(
    "--budget", is_flag=True, help="For a GPU: fail where a kernel spills registers or uses local memory."
)
@click.option("--jobs", type=click.IntRange(1), help="Compilers at once. Default: one per core.")
@json_option("Print the result as JSON.")
def compile_command(
    target: str,
    packs: tuple[str, ...],
    output: str | None,
    cxx: str | None,
    flags: tuple[str, ...],
    arch: str | None,
    nvcc: str | None,
    tensorrt_root: str | None,
    budget: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compile the kernels of operators into a library for ONNX Runtime, into TensorRT plugins, or to PTX or cubins.

    Writes the library, or the files of the kernels, and a manifest beside them. The kernel of `acme::snake` is
    kernels/snake.h, for CUDA kernels/snake.cuh (or without the folder) beside the file that declares it. What did not
    change is not compiled again.
    """
    gpu = ("ort-cuda", "tensorrt", "ptx", "cubin")
    for option, given, of in (
        ("--cxxflag", flags, ("ort-cpu",)),
        ("--arch", arch, gpu),
        ("--nvcc", nvcc, gpu),
        ("--tensorrt-root", tensorrt_root, ("tensorrt",)),
        ("--budget", budget, gpu),
    ):
        if given and target not in of:
            raise UsageError(f"{option} is an option of --target {' or '.join(of)}")
    search_here(packs)
    ops = list(packs) or None
    with Progress(quiet=as_json) as progress:

        def told(done: int, of: int, name: str) -> None:
            progress(f"{done} of {of}: {name}")

        if target == "tensorrt":
            from ..trt_plugins.library import DEFAULT_ARCHS, compile_plugins

            plugins = compile_plugins(
                ops,
                archs=DEFAULT_ARCHS if arch is None else read_archs(arch),
                out=output,
                nvcc=nvcc,
                cxx=cxx,
                tensorrt_root=tensorrt_root,
                budget=budget,
                jobs=jobs,
                progress=told,
            )
            result, text = plugins.to_dict(), plugins.summary()
        elif target in ("ptx", "cubin"):
            from ..trt_plugins.device_code import DEFAULT_ARCHS as DEVICE_ARCHS
            from ..trt_plugins.device_code import compile_device_code

            code = compile_device_code(
                ops,
                target=target,  # type: ignore[arg-type]
                archs=DEVICE_ARCHS if arch is None else read_archs(arch),
                out=output,
                nvcc=nvcc,
                cxx=cxx,
                budget=budget,
                jobs=jobs,
                progress=told,
            )
            result, text = code.to_dict(), code.summary()
        else:
            from ..ort_ops.library import compile_library

            library = compile_library(
                target,
                ops,
                out=output,
                cxx=cxx,
                flags=flags,
                archs=None if arch is None else read_archs(arch),
                nvcc=nvcc,
                budget=budget,
                jobs=jobs,
                progress=told,
            )
            result, text = library.to_dict(), library.summary()
    print_json(result) if as_json else click.echo(text)
