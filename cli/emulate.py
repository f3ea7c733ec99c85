"""deployops emulate"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import click

from ..errors import UsageError
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
@click.option(
    "--large", is_flag=True, help="On tensors of more than 2^31 elements instead: do 32-bit indices overflow?"
)
@click.option("--ptx", is_flag=True, help="Interpret what nvcc makes of them instead: PTX for compute_80.")
@click.option("--cxx", metavar="COMPILER", help="The C++ compiler. Default: $CXX, g++, clang++.")
@click.option(
    "--nvcc", metavar="NVCC", help="--ptx: the CUDA compiler. Default: $CUDA_HOME, PATH, NVIDIA's wheels."
)
@click.option(
    "--jobs", type=click.IntRange(1), help="Compilers, or interpreters, at once. Default: one per core."
)
@json_option()
def emulate(
    names: tuple[str, ...],
    packs: tuple[str, ...],
    sanitize: Any,
    large: bool,
    ptx: bool,
    cxx: str | None,
    nvcc: str | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run CUDA kernels on the CPU and compare them with the references: no GPU is needed.

    Each kernel (NAME.cuh beside its declaration), on every dtype, sample and variant, under several schedules of its
    threads. NAMES limits it to some operators; without it, those of --ops, or the shipped ones.

    With --large, a second check: tensors of a little over 2^31 and 2^32 elements, of whose grids only the first blocks and the
    last are run. With --ptx, a third: nvcc compiles the kernels, and the PTX that it makes is interpreted, launch by launch.

    Exit codes: 0 all passed, 1 a kernel failed, 2 wrong use, 3 of an operator or a dtype nothing could be checked, or a
    compiler is missing.
    """
    if ptx and sanitize:
        raise UsageError("--sanitize is for the emulation, not for --ptx")
    if large and (ptx or sanitize):
        raise UsageError("--large is a check of its own: leave out --ptx and --sanitize")
    if nvcc and not ptx:
        raise UsageError("--nvcc is an option of --ptx: the emulation needs no CUDA compiler")
    chosen = chosen_operators(names, packs)
    with Progress(quiet=as_json) as progress:

        def told(done: int, of: int, name: str) -> None:
            progress(f"{done} of {of}: {name}")

        results, text = (
            _interpreted(chosen, nvcc, cxx, jobs, told)
            if ptx
            else _emulated(chosen, sanitize, large, cxx, jobs, told)
        )
    print_json([dataclasses.asdict(r) for r in results]) if as_json else click.echo(text)
    click.get_current_context().exit(_exit_code(results))


def _exit_code(results: Sequence[Any]) -> int:
    """1 where anything failed; 3 where of an operator, or of one of its dtypes, nothing was checked; else 0."""
    if any(r.status == "failed" for r in results):
        return 1
    passed = {r.operator for r in results if r.status == "passed"}
    left = [r for r in results if r.status != "passed"]
    # a row without a dtype: kernels of the operator that no sample launches
    return 3 if any(r.operator not in passed or getattr(r, "dtype", "") for r in left) or not results else 0


def _emulated(
    chosen: list[Any], sanitize: Any, large: bool, cxx: str | None, jobs: int | None, told: Any
) -> tuple[Any, str]:
    from ..symbolic.checking.operator_check import render
    from ..trt_plugins.emulation.check import emulate as run
    from ..trt_plugins.emulation.large import emulate_large

    if large:
        results = emulate_large(chosen, cxx=cxx, jobs=jobs, progress=told)
    else:
        results = run(chosen, sanitize=sanitize, cxx=cxx, jobs=jobs, progress=told)
    return results, render(results)


def _interpreted(
    chosen: list[Any], nvcc: str | None, cxx: str | None, jobs: int | None, told: Any
) -> tuple[Any, str]:
    from ..trt_plugins.ptx.check import interpret, render_ptx

    results = interpret(chosen, nvcc=nvcc, cxx=cxx, jobs=jobs, progress=told)
    return results, render_ptx(results)
