"""What a fault costs: `validate` of an output with one wrong element, over `validate` of the sound one.

    python benchmarks/bench_one_wrong.py [ELEMENTS]

The first pair is not counted: it imports PyTorch's decompositions.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from deployops.validation import validate

PAIRS = 4


def write(path: Path, wrong: bool) -> None:
    nodes = [helper.make_node("Tanh", ["v"], ["t"])]
    last = ("ScatterND", ["t", "at", "value"]) if wrong else ("Identity", ["t"])
    nodes.append(helper.make_node(*last, ["y"]))
    stored = [
        numpy_helper.from_array(np.array([[3, 4]], np.int64), "at"),
        numpy_helper.from_array(np.array([7.5], np.float32), "value"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["a", "b"]) for n in ("v", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored if wrong else [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("elements", type=int, nargs="?", default=10_000_000)
    elements = parser.parse_args().elements
    x = (torch.randn(1000, elements // 1000),)
    net = torch.nn.Tanh().eval()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{wrong}.onnx" for wrong in (False, True)]
        for wrong, file in enumerate(files):
            write(file, bool(wrong))
        for _ in range(PAIRS):
            taken = []
            for file, verdict in zip(files, ("passed", "failed"), strict=True):
                start = time.perf_counter()
                report = validate(net, file, x, sizes=1, latency=False, backends=["onnxruntime"])
                taken.append(time.perf_counter() - start)
                assert report.verdict == verdict, report.text()
            print(f"sound {taken[0]:.2f} s, one wrong {taken[1]:.2f} s, ratio {taken[1] / taken[0]:.2f}")
            ratios.append(taken[1] / taken[0])
    print(f"median ratio {statistics.median(ratios[1:]):.2f}")


if __name__ == "__main__":
    main()
