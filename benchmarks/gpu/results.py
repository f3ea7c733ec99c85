"""docs/gpu-results.md: what was measured, on which GPU, and the predicted floors."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from .bench import TARGET
from .floors import sources, table

_RESULTS = Path(__file__).resolve().parents[2] / "docs" / "gpu-results.md"
_MEASURED = ("<!-- measured: written by benchmarks/bench_gpu.py -->", "<!-- end of measured -->")
_NOTHING = "Nothing yet: this has not run on a GPU."


def heading() -> Iterator[str]:
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,persistence_mode"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    properties = torch.cuda.get_device_properties(0)
    yield f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, torch {torch.__version__}."
    if said:
        yield f"nvidia-smi, before: {query} = {said}."


def write(block: Iterable[str] | None) -> None:
    """Write docs/gpu-results.md; the measured part is kept where None is given."""
    before = _RESULTS.read_text(encoding="utf-8") if _RESULTS.is_file() else ""
    kept = before.partition(_MEASURED[0])[2].partition(_MEASURED[1])[0].strip() or _NOTHING
    text = kept if block is None else "\n".join(block).strip()
    _RESULTS.write_text(
        "\n".join(
            [
                "# CUDA kernels on GPUs",
                "",
                "Written by `python benchmarks/bench_gpu.py`, which measures, checks parity first, and takes under eight "
                "minutes on a machine with a GPU; `--predict` writes the second part alone.",
                "",
                "## Measured",
                "",
                _MEASURED[0],
                "",
                text,
                "",
                _MEASURED[1],
                "",
                "## Predicted",
                "",
                "*Predicted*, by no GPU: the least time that the bytes need at the bandwidth, and the operations at the "
                "peak rate, which NVIDIA published; milliseconds, the larger of both (c: that of the operations). Each "
                "input is read once and each output written once. A kernel that reaches the target of "
                f"{TARGET} of a copy's speed takes at least 1/{TARGET} of it, on a GPU whose copy reaches the published "
                "bandwidth. The floors of attention are those of matrix units; our kernel does its arithmetic on the "
                "ordinary cores, and its floor is far higher.",
                "",
                *table(),
                "",
                *sources(),
                "",
            ]
        ),
        encoding="utf-8",
    )
