"""The CUDA kernels on a GPU: right first, then how fast. One command, under eight minutes; writes docs/gpu-results.md.

    python benchmarks/bench_gpu.py                     # measures; exit code 3 where there is no GPU
    python benchmarks/bench_gpu.py --build lib         # only compiles the kernels, anywhere, for a GPU machine without nvcc
    python benchmarks/bench_gpu.py --library lib/libdeployops_bench_gpu.so
    python benchmarks/bench_gpu.py --dry-run           # the same code on the emulated device, tiny; exit code 3
    python benchmarks/bench_gpu.py --predict           # only the predicted floors in docs/gpu-results.md

Method: each candidate is timed alone between two CUDA events, on a device that is idle and an L2 cache that was just
overwritten; candidates take turns; the median counts. "Copy" is a device-to-device copy that reads and writes as many
bytes as the operator has to (each input read once, each output written once), measured in the same turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch
from gpu.bench import Bench
from gpu.launchers import CudaLauncher, EmulatedLauncher, archs_of, build
from gpu.parity import parity
from gpu.results import heading, write
from gpu.runtimes import runtimes
from gpu.speed import attention, speed
from ort_cases import OPS

from deployops.errors import DeployOpsError, NotCheckedError, UsageError
from deployops.native.cuda_library import cuda_tools
from deployops.symbolic.operator import Operator


def measured(bench: Bench) -> None:
    start = time.perf_counter()
    for section in (parity, speed, attention, runtimes):
        section(bench)
    for title, found in (("Failed", bench.failures), ("Not checked", bench.unchecked)):
        if found:
            bench.say("", f"### {title}", "", *(f"- {text}" for text in dict.fromkeys(found)))
    bench.say("", f"{time.perf_counter() - start:.0f} s in all.")


def chosen(options: argparse.Namespace) -> dict[str, Operator]:
    names = options.ops.split(",") if options.ops else list(OPS)
    if unknown := [name for name in names if name not in OPS]:
        raise UsageError(f"there is no operator {', '.join(unknown)}; there are {', '.join(OPS)}")
    return {name: OPS[name] for name in names}


def dry_run(options: argparse.Namespace) -> int:
    ops = chosen(options)
    operators = list(ops.values())
    bench = Bench(
        EmulatedLauncher(operators), ops, True, options.compile, time.perf_counter() + 60 * options.minutes
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = options.library or build(
                operators, cuda_tools(None, options.nvcc, archs_of(options.arch)), Path(folder), options.jobs
            )
            loaded = CudaLauncher(library, operators)
            counts = {op.name: (loaded.tactics(op), bench.launcher.tactics(op)) for op in operators}
            bench.failures += [f"{n}: {c} tactics" for n, c in counts.items() if c[0] != c[1]]
            print(f"compiled for CUDA and loaded: {len(counts)} operators")
        except NotCheckedError as error:
            bench.unchecked.append(f"compiling for CUDA: {error}")
        measured(bench)
    print("\nNot checked: everything above ran on the emulated device, and no time in it means anything.")
    return 1 if bench.failures else 3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--build", type=Path, metavar="DIR")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--ops", metavar="relu,softmax", help="these alone; nothing is written then")
    parser.add_argument("--arch", metavar="80,90")
    parser.add_argument("--nvcc")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--minutes", type=float, default=7.5, help="begin nothing new after so many")
    options = parser.parse_args()
    if options.predict:
        write(None)
        return 0
    if options.build:
        print(
            build(
                list(chosen(options).values()),
                cuda_tools(None, options.nvcc, archs_of(options.arch)),
                options.build,
                options.jobs,
            )
        )
        return 0
    if options.dry_run:
        return dry_run(options)
    if not torch.cuda.is_available():
        print(
            "not checked: torch sees no GPU. --dry-run runs the same on the emulated device", file=sys.stderr
        )
        return 3
    end = time.perf_counter() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        library = options.library or build(
            list(chosen(options).values()),
            cuda_tools(None, options.nvcc, archs_of(options.arch)),
            Path(folder),
            options.jobs,
        )
        bench = Bench(
            CudaLauncher(library, list(chosen(options).values())),
            chosen(options),
            False,
            options.compile,
            end,
        )
        bench.say(*heading())
        measured(bench)
    if not options.ops:
        write(bench.lines)
    return 1 if bench.failures else 3 if bench.unchecked else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DeployOpsError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
