"""How fast the emulation is: kernels on a million elements, and the parity of all operators.

    python benchmarks/bench_emulation.py [--clean] [--sanitize address|thread] [--ops relu,softmax] [--side 1024]

With --clean, in a cache of its own: the time to compile is in it. Prints a table for docs/emulation.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch

from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation.check import emulate
from deployops.trt_plugins.emulation.library import EmulatedLibrary, emulated_library

REPEATS = 10
SIDE = 1024


def processor_time(library: EmulatedLibrary) -> float:
    """Seconds that the process of the kernels has used, of all its threads."""
    assert library.pid is not None  # a call that ended its process has raised
    fields = Path(f"/proc/{library.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    library: EmulatedLibrary, op: Operator, *args: object, tactic: int = 0, seed: int = 0
) -> tuple[float, float]:
    """The best time of a call, in ms, copies to and from the process of the kernel included; its processor time."""
    like = library.run(op, args, tactic=tactic, seed=seed)
    best = float("inf")
    before = processor_time(library)
    for _ in range(REPEATS):
        start = time.perf_counter()
        library.run(op, args, tactic=tactic, seed=seed, like=like)
        best = min(best, time.perf_counter() - start)
    return best * 1e3, (processor_time(library) - before) / REPEATS * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--sanitize", choices=["address", "thread"])
    parser.add_argument(
        "--ops", type=lambda text: text.split(","), metavar="relu,softmax", help="default: all"
    )
    parser.add_argument("--side", type=int, default=SIDE, help="of the matrices; default: %(default)s")
    options = parser.parse_args()
    if options.clean:
        os.environ["DEPLOYOPS_CACHE"] = tempfile.mkdtemp(prefix="deployops-bench-")
    torch.set_num_threads(1)
    registry.load_builtin()
    ops = {
        op.name.partition("::")[2]: op for op in registry.all_operators() if op.name.startswith("deployops::")
    }
    for name in options.ops or ():
        if name not in ops:
            parser.error(f"there is no operator {name}; there are {', '.join(ops)}")
    ops = {name: op for name, op in ops.items() if not options.ops or name in options.ops}
    start = time.perf_counter()
    library = emulated_library(list(ops.values()), sanitize=options.sanitize)
    print("| | time | processor time of the kernel's process |\n|---|---|---|")
    print(f"| all kernels compiled | {time.perf_counter() - start:.1f} s | |")
    x, w = torch.randn(options.side, options.side), torch.randn(options.side)
    q = torch.randn(1, 8, 128, 64)
    with library:
        for text, name, args, how in (
            ("rms_norm, float32", "rms_norm", (x, w), {}),
            ("rms_norm, float32, a warp for each row", "rms_norm", (x, w), {"tactic": 1}),
            ("rms_norm, float32, a random schedule", "rms_norm", (x, w), {"seed": 1}),
            ("rms_norm, float16", "rms_norm", (x.half(), w.half()), {}),
            ("relu, float32", "relu", (x,), {}),
            ("swish, float16", "swish", (x.half(), w.half()), {}),
            ("softmax, float32", "softmax", (x,), {}),
            ("layer_norm, float32", "layer_norm", (x, w, w), {}),
            ("attention, 8 heads, 128 · 128, width 64", "attention", (q, q, q), {}),
        ):
            if name not in ops:
                continue
            wall, processor = measure(library, ops[name], *args, **how)
            print(f"| {text} | {wall:.0f} ms | {processor:.0f} ms |", flush=True)
    start = time.perf_counter()
    results = emulate(list(ops.values()), sanitize=options.sanitize)
    seconds = time.perf_counter() - start
    runs = sum(int(r.detail.split()[0]) for r in results if r.status == "passed")
    passed = sum(r.status == "passed" for r in results)
    print(f"| parity of {len(results)} operators, {runs} runs, {passed} passed | {seconds:.1f} s | |")
    print(f"| load of the machine while this ran | {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores | |")


if __name__ == "__main__":
    main()
