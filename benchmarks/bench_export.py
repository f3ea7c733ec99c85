"""Time and memory of exporting, against `torch.onnx.export` with its defaults.

    python benchmarks/bench_export.py                                # the promise: takes some 20 minutes
    python benchmarks/bench_export.py --models resnet50 --rounds 3
    python benchmarks/bench_export.py --recorded transformer-100=259 # do not run torch's four minutes again

Each measurement runs in a process of its own, routes taking turns, so that neither caches nor memory carry
over. Time counts from the built model to the closed file; imports that the export itself causes count, the
import of torch and of the route's package do not. Memory is the peak of the whole process.

Routes: `torch` is `torch.onnx.export(..., dynamo=True)`; `steps` is trace, translate, optimise and write
without checks; `deployops` is `deployops.export_model`, with every check and the runs in ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROUTES = ("torch", "steps", "deployops")
DEFAULT_MODELS = ("resnet50", "transformer-100", "transformer-200")
# torch's optimiser takes minutes at 100 layers and grows with their square.
NOT_RUN = {("torch", "transformer-200"): "not run: torch's optimiser needs more than a quarter of an hour"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One export."""

    wall: float  # seconds
    cpu: float  # seconds, user and system
    peak: float  # MiB
    nodes: int
    bytes: int


def measure(route: str, name: str) -> Measured:
    """Export once, in this process."""
    import onnx
    import torch
    from models import MODELS

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    benchmarked = MODELS[name]
    model = benchmarked.build().eval()
    args = (torch.randn(benchmarked.shape),)
    export = {"torch": _torch, "steps": _steps, "deployops": _deployops}[route]
    if route == "deployops":
        import deployops.export  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        wall, cpu = time.perf_counter(), time.process_time()
        export(model, args, benchmarked.dims, path)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
    return Measured(wall, cpu, peak, nodes, size)


def _torch(model: Any, args: tuple[Any, ...], dims: dict[int, str], path: Path) -> None:
    import torch

    torch.onnx.export(model, args, path, dynamo=True, verbose=False, dynamic_shapes=(dims,))


def _steps(model: Any, args: tuple[Any, ...], dims: dict[int, str], path: Path) -> None:
    import torch
    from torch.export import Dim

    from deployops.export.graph import passes, translation
    from deployops.export.graph.garbage import collector_paused
    from deployops.export.onnx_file import write

    dynamic = (dict.fromkeys(dims, Dim.DYNAMIC),)
    with torch.no_grad(), collector_paused():
        program = torch.export.export(model, args, dynamic_shapes=dynamic)
    translated = translation.translate(program, opset=None, dynamic_shapes=(dims,))
    passes.optimize(translated)
    passes.strip_metadata(translated)
    write.write_model(translated, path)


def _deployops(model: Any, args: tuple[Any, ...], dims: dict[int, str], path: Path) -> None:
    from deployops.export import export_model

    export_model(model, args, dynamic={"input": dims}, out=path)


def run(route: str, name: str) -> Measured:
    """Export once, in a fresh process."""
    command = [sys.executable, __file__, "--measure", route, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{route} on {name} failed:\n{done.stderr}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=DEFAULT_MODELS, metavar="MODEL", help="see models.py")
    parser.add_argument("--routes", nargs="+", default=ROUTES, choices=ROUTES)
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each (the median counts)")
    parser.add_argument(
        "--recorded", action="append", default=[], metavar="MODEL=SECONDS",
        help="take torch's time on MODEL from an earlier run on this machine, and say so",
    )  # fmt: skip
    parser.add_argument("--measure", nargs=2, metavar=("ROUTE", "MODEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asdict(measure(*options.measure))))
        return
    recorded = dict(item.split("=", 1) for item in options.recorded)
    results: dict[tuple[str, str], list[Measured]] = {}
    for _ in range(options.rounds):
        for name in options.models:
            for route in options.routes:
                skipped = route == "torch" and name in recorded
                if (route, name) not in NOT_RUN and not skipped:
                    results.setdefault((route, name), []).append(run(route, name))
    report(results, {name: float(seconds) for name, seconds in recorded.items()}, options)


def report(
    results: dict[tuple[str, str], list[Measured]], recorded: dict[str, float], options: argparse.Namespace
) -> None:
    """Print a row per model and route, with the ratios to torch's."""
    columns = f"{'model':16} {'route':10} {'wall s':>8} {'CPU s':>8} {'peak MiB':>9} {'nodes':>6} {'MB':>7}"
    print(f"{columns}  {'wall':>8} {'memory':>8}")
    medians: dict[tuple[str, str], Measured] = {}
    for key, runs in results.items():
        medians[key] = sorted(runs, key=lambda one: one.wall)[len(runs) // 2]
    for name in options.models:
        base = medians.get(("torch", name))
        base_wall = base.wall if base else recorded.get(name)
        for route in options.routes:
            one = medians.get((route, name))
            if one is None:
                taken = (
                    f"recorded: {recorded[name]:.1f} s" if name in recorded else NOT_RUN.get((route, name))
                )
                print(f"{name:16} {route:10} {taken}")
                continue
            faster = f"{base_wall / one.wall:.2f}x" if base_wall else "-"
            memory = f"{one.peak / base.peak:.2f}x" if base else "-"
            row = f"{name:16} {route:10} {one.wall:8.1f} {one.cpu:8.1f} {one.peak:9.0f} {one.nodes:6} "
            print(f"{row}{one.bytes / 1e6:7.1f}  {faster:>8} {memory:>8}")
    for route in options.routes:
        deep, shallow = medians.get((route, "transformer-200")), medians.get((route, "transformer-100"))
        if deep and shallow:
            print(f"{route}: 200 layers take {deep.wall / shallow.wall:.2f}x the time of 100")
    spreads = [_spread(runs) for runs in results.values() if len(runs) > 1]
    if spreads:
        print(f"widest spread of wall time within one row: {max(spreads):.0%}")


def _spread(runs: list[Measured]) -> float:
    walls = [one.wall for one in runs]
    return (max(walls) - min(walls)) / statistics.median(walls)


if __name__ == "__main__":
    main()
