"""How fast PTX is interpreted: kernels on a million elements, and the parity of all operators.

    python benchmarks/bench_ptx.py [--only-large]

Prints a table for docs/emulation.md. Processor time counts all processes, so that other programs disturb it little.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from typing import Any

import torch

from deployops.symbolic import registry
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation.calls import Manner
from deployops.trt_plugins.emulation.library import emulated_library
from deployops.trt_plugins.emulation.packing import packed
from deployops.trt_plugins.ptx.build import build
from deployops.trt_plugins.ptx.check import interpret
from deployops.trt_plugins.ptx.library import Interpreters

REPEATS = 5
SIDE = 1024  # 1024 · 1024 elements


def processor_time() -> float:
    """Seconds of this process and of those that have ended."""
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in every)


def measure(
    interpreters: Interpreters, library: Any, op: Operator, args: tuple[Any, ...], tactic: int
) -> float:
    """The best time of a call, in ms, copies to and from the process included."""
    best = float("inf")
    call, _ = packed(op, 0, args, {}, Manner(tactic), None)
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        answer = interpreters.submit(library, call).result()
        assert answer.outcome == "done", answer.text
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only-large", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry.load_builtin()
    ops = {
        op.name.partition("::")[2]: op for op in registry.all_operators() if op.name.startswith("deployops::")
    }
    start = time.perf_counter()
    built = build(list(ops.values()))
    print("| | time | processor time |\n|---|---|---|")
    print(
        f"| PTX and launchers of all operators | {time.perf_counter() - start:.1f} s | {processor_time():.1f} s |"
    )
    x, w = torch.randn(SIDE, SIDE), torch.randn(SIDE)
    with Interpreters(1) as interpreters:
        for text, name, args, tactic in (
            ("rms_norm, float32", "rms_norm", (x, w), 0),
            ("rms_norm, float32, a warp for each row", "rms_norm", (x, w), 1),
            ("rms_norm, float16", "rms_norm", (x.half(), w.half()), 0),
            ("relu, float32", "relu", (x,), 0),
            ("softmax, float32", "softmax", (x, -1), 0),
        ):
            op = ops[name]
            print(
                f"| {text} | {measure(interpreters, built.libraries[op.name], op, args, tactic):.0f} ms | |",
                flush=True,
            )
    if not options.only_large:
        emulated_library(list(ops.values())).close()  # compiled before the clock starts
        start, before = time.perf_counter(), processor_time()
        results = interpret(list(ops.values()))
        seconds, spent = time.perf_counter() - start, processor_time() - before
        passed = sum(r.status == "passed" for r in results)
        runs = sum(r.runs for r in results)
        print(
            f"| parity: {runs} runs, {passed} of {len(results)} operators and dtypes passed | {seconds:.0f} s | {spent:.0f} s |"
        )
    print(f"| load of the machine while this ran | {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores | |")


if __name__ == "__main__":
    main()
