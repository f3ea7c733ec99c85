"""How many runs of the backend and how much time a bisection takes, on models of 20 to 200 nodes and more.

    python benchmarks/bench_bisect.py [BLOCKS ...]

A transformer of so many blocks (about 18 nodes each) is exported once; for every fifth block an epsilon of its file is
moved, and the file bisected. Prints the nodes, the runs, the seconds of the slowest search (by the clock, and of the
processor, which tell where the machine is busy), the processor's seconds of one plain run of the file in the same way
(open, run, close), and how many of the searches named the right node. Goal: at most 12
runs for 200 nodes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

from deployops import export_model
from deployops.validation import Sample
from deployops.validation.backends.onnxruntime import OnnxRuntime
from deployops.validation.bisection import bisect
from deployops.validation.original import Original
from deployops.validation.record import Cell

WIDTH, LENGTH = 64, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.proj = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.up, self.act, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.proj(torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v)
        return x + self.down(self.act(self.up(x)))


def opened(path: Path) -> OnnxRuntime:
    return OnnxRuntime(path, threads=1, optimize=True, isolate=False)


def faulty(path: Path, block: int) -> tuple[Path, str]:
    """A copy whose LayerNormalization of that block has another epsilon, and the value that the node makes."""
    model = onnx.load(str(path))
    at = [n for n in model.graph.node if n.op_type == "LayerNormalization"][block]
    next(a for a in at.attribute if a.name == "epsilon").f = 1e-2
    copy = path.with_name("faulty.onnx")
    onnx.save(model, str(copy))
    return copy, at.output[0]


def plain_run(path: Path, sample: Sample) -> float:
    began = time.process_time()
    runner = opened(path)
    runner.run([("input", sample.args[0])])
    runner.close()
    return time.process_time() - began


def measured(blocks: int, folder: Path) -> str:
    torch.manual_seed(0)
    net = nn.Sequential(*[Block() for _ in range(blocks)]).eval()
    path = folder / f"{blocks}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_model(net, (torch.randn(2, LENGTH, WIDTH),), out=path, dynamic={"input": {0: "batch"}})
    sample = Sample("bench", (torch.randn(3, LENGTH, WIDTH),))
    cell = Cell("bench", "*", "onnxruntime", "failed")
    right, runs, nodes, seconds, processor = 0, 0, 0, 0.0, 0.0
    at = range(0, blocks, 5)
    for block in at:
        copy, value = faulty(path, block)
        began, used = time.perf_counter(), time.process_time()
        found = bisect(Original(net), copy, sample, cell, opened)
        seconds = max(seconds, time.perf_counter() - began)
        processor = max(processor, time.process_time() - used)
        right += found.culprit is not None and found.culprit.output == value
        runs, nodes = max(runs, found.runs), found.nodes
    plain = min(plain_run(path, sample) for _ in range(3))
    return (
        f"{nodes:5d} nodes: {runs:2d} runs, {seconds:5.2f} s (processor {processor:5.2f} s); "
        f"one run {plain:5.2f} s; {right} of {len(at)} right"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("blocks", type=int, nargs="*", default=[1, 6, 12, 24])
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for blocks in options.blocks:
            print(measured(blocks, Path(folder)))


if __name__ == "__main__":
    main()
