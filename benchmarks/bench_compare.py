"""How long a comparison of large outputs takes, and what memory it needs besides the arrays.

    python benchmarks/bench_compare.py [ELEMENTS]

Prints, for each dtype and with and without a float64 reference: seconds with one thread and with two, the processor's
seconds (they tell where the machine is busy), and the growth of the peak resident memory. Goal: 100 million float32
elements within 4 s on two cores.
"""

from __future__ import annotations

import argparse
import resource
import time

import ml_dtypes
import numpy as np

from deployops.validation.parity import budget
from deployops.validation.parity.metrics import measure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("elements", type=float, nargs="?", default=1e8)
    count = int(parser.parse_args().elements)
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        original = np.empty(count, dtype)
        got = np.empty(count, dtype)
        for start in range(0, count, 1 << 20):
            part = rng.standard_normal(min(1 << 20, count - start), np.float32)
            original[start : start + part.size] = part
            got[start : start + part.size] = part + 1e-7 * rng.standard_normal(part.size, np.float32)
        head = slice(0, min(count, 1 << 20))
        own = measure(original[head], original[head], rtol=budget.own_rtol(dtype))
        allowed = budget.derived(own, dtype, "bench").tolerance()
        for wide in (False, True):
            if wide and count > 100_000_000:
                continue
            reference = original.astype(np.float64) if wide else None
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            seconds, cpu = [], []
            for threads in (1, 2):
                began, used = time.perf_counter(), time.process_time()
                measure(got, original, reference, tolerance=allowed, threads=threads)
                seconds.append(time.perf_counter() - began)
                cpu.append(time.process_time() - used)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            print(
                f"{np.dtype(dtype).name:10s} {count:,} elements, reference {'float64' if wide else 'none':8s}"
                f" one thread {seconds[0]:5.2f} s, two {seconds[1]:5.2f} s"
                f" (processor time {cpu[0]:5.2f} s, {cpu[1]:5.2f} s), peak memory +{grown:.0f} MB"
            )
            del reference


if __name__ == "__main__":
    main()
