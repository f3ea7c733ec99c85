"""What compiling plugins takes: all shipped operators for six architectures and PTX, one operator for one, and nothing changed.

    python benchmarks/bench_plugins.py             # about five minutes on two cores
    python benchmarks/bench_plugins.py --ops deployops.symbolic.operators.swish --archs 89

Each build is a command of its own, `deployops compile --target tensorrt`, with an empty cache but for "nothing changed", and
with the headers of TensorRT that `deployops doctor` finds. Other work on the machine shows in the time; processor time is that
of the command and its compilers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deployops.trt_plugins.headers import find_headers

SIX = "80,86,89,90,100,120"
ONE = "deployops.symbolic.operators.swish"


def build(name: str, folder: Path, cache: Path, options: list[str]) -> dict[str, object]:
    """One command, timed."""
    command = [
        sys.executable,
        "-m",
        "deployops.cli",
        "compile",
        "--target",
        "tensorrt",
        "-o",
        str(folder / "lib"),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--json", *options],
        env={**os.environ, "DEPLOYOPS_CACHE": str(cache)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    size = Path(folder / json.loads(done.stdout)["library"]).stat().st_size
    row = {
        "build": name,
        "s": round(seconds, 1),
        "processor s": round(processor, 1),
        "MB": round(size / 1e6, 2),
    }
    print("  ".join(f"{k} {v}" for k, v in row.items()), file=sys.stderr, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archs", default=SIX, help="of the whole library; default: %(default)s")
    parser.add_argument("--ops", help="instead of all shipped operators: a module or a file")
    parser.add_argument(
        "--one",
        action="append",
        help="an operator to build alone: MODULE[::NAME]; may be repeated; default: swish",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the build of one operator; default: %(default)s"
    )
    arguments = parser.parse_args()
    headers = ["--tensorrt-root", str(find_headers().folder)]
    chosen = [*headers, "--arch", arguments.archs, *(["--ops", arguments.ops] if arguments.ops else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = folder / "cache"
        rows = [
            build("all, clean" if not arguments.ops else "chosen, clean", folder, cache, chosen),
            build("nothing changed", folder, cache, chosen),
        ]
        rows += [
            build(
                f"{one.rpartition('.')[2]}, sm_89, clean",
                folder,
                folder / f"{k}-{one}",
                [*headers, "--ops", one, "--arch", "89"],
            )
            for one in arguments.one or [ONE]
            for k in range(arguments.rounds)
        ]
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(row[c]) for c in columns) + " |")


if __name__ == "__main__":
    main()
