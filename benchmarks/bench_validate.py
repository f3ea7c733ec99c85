"""What `validate --sweep quick` takes for a model of ResNet-50's size, beside the forward passes that it needs.

    python benchmarks/bench_validate.py [--threads 2]

The passes: of each sample two of the original, one in float64, one in ONNX Runtime. The target is 1.5 times their time
plus 5 seconds. They are measured before and after the validation, so that a busy machine disturbs both alike.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from deployops import export_model, session, validate


class Bottleneck(nn.Module):
    """He et al., Deep Residual Learning, 2015, figure 5."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        same = inputs == out and stride == 1
        self.way = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.way(x))


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for k in range(blocks):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not k else 1))
            inputs = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).eval()


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = resnet50()
    spec = "x:float32[batch=1..8,3,224,224]"
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "resnet50.onnx"
        export_model(net, [spec], out=path)

        def gate() -> object:
            return validate(
                net, path, [spec], sweep="quick", latency=False, backends=["onnxruntime"], threads=threads
            )

        report = gate()  # once before, for the caches
        samples = list(dict.fromkeys(c.sample for c in report.cells))
        batches = [int(label.split("batch=")[1].split(",")[0]) for label in samples]
        wide = copy.deepcopy(net).double()
        runtime = session(path, threads=threads)

        def passes() -> None:
            for batch in batches:
                x = torch.randn(batch, 3, 224, 224)
                net(x), net(x), wide(x.double()), runtime.run(None, {"x": x.numpy()})

        before, whole, after = seconds(passes), seconds(gate), seconds(passes)
        needed = (before + after) / 2
    print(f"{report.verdict}: {len(samples)} samples ({'; '.join(samples)}), {threads} threads")
    print(f"passes {needed:.1f} s, validate {whole:.1f} s; allowed {1.5 * needed + 5:.1f} s")


if __name__ == "__main__":
    main()
