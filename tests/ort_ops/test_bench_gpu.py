"""The GPU benchmark on a machine without a GPU: it says what it did not check, and its predictions are what they claim."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .conftest import ROOT

BENCH = ROOT / "benchmarks" / "bench_gpu.py"
RESULTS = ROOT / "docs" / "gpu-results.md"


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH), *arguments], capture_output=True, text=True, timeout=600
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured_and_nothing_written() -> None:
    before = RESULTS.read_text()
    done = bench()
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not checked: torch sees no GPU" in done.stderr
    assert RESULTS.read_text() == before


def test_a_dry_run_compiles_for_cuda_and_runs_on_the_emulated_device(nvcc: str, tmp_path: Path) -> None:
    done = bench("--dry-run", "--ops", "relu,mean_pool", "--arch", "80", "--nvcc", nvcc)
    assert done.returncode == 3, done.stdout[-3000:] + done.stderr[-3000:]
    assert "compiled for CUDA and loaded: 2 operators" in done.stdout
    assert re.search(r"^\| relu \| \d+ \| 4 \| passed \|$", done.stdout, re.MULTILINE)
    assert (
        len(re.findall(r"^\| mean_pool \| (?:float32|float16|bfloat16) \|", done.stdout, re.MULTILINE)) == 3
    )
    assert re.search(r"^\| relu \| onnxruntime \| passed", done.stdout, re.MULTILINE)
    assert "Not checked: everything above ran on the emulated device" in done.stdout


def test_an_operator_that_there_is_not() -> None:
    done = bench("--dry-run", "--ops", "gelu")
    assert done.returncode == 2
    assert "there is no operator gelu" in done.stderr


def test_the_predictions_are_bytes_over_published_bandwidth() -> None:
    text = RESULTS.read_text()
    measured, _, predicted = text.partition("## Predicted")
    assert "Nothing yet: this has not run on a GPU." in measured
    names, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in predicted.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    of = {(row[0], row[2]): dict(zip(names, row, strict=True)) for row in rows}
    elements = 64 * 1024 * 1024
    # one input and one output of 4 bytes; NVIDIA publishes 3.35 TB/s for the H100 SXM, 1008 GB/s for the RTX 4090
    assert float(of["relu", "float32"]["H100 SXM"]) == pytest.approx(8 * elements / 3.35e12 * 1e3, rel=0.005)
    assert float(of["relu", "float16"]["RTX 4090"]) == pytest.approx(4 * elements / 1008e9 * 1e3, rel=0.005)
    # two inputs and two outputs
    assert float(of["add_rms_norm", "float32"]["H100 SXM"]) == pytest.approx(
        16 * elements / 3.35e12 * 1e3, rel=0.005
    )
    # 2 · 2 · heads · length² · width multiplications and additions, at 989.5 TFLOP/s in float16
    flops = 4 * 8 * 4096**2 * 64
    assert float(of["attention", "float16"]["H100 SXM"].split()[0]) == pytest.approx(
        flops / 989.5e12 * 1e3, rel=0.05
    )
