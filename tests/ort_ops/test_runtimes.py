"""One library, every ONNX Runtime: the same results from 1.17 to the newest, and a clear refusal of older ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deployops.ort_ops import Library
from deployops.symbolic import registry
from deployops.symbolic.checking.error_budget import faults
from deployops.symbolic.checking.sample_runs import SampleRun, runs
from deployops.symbolic.operator import Operator

from .conftest import model_of

SCRIPT = Path(__file__).with_name("run_models.py")
OURS = "ours"


def run_everything(
    ops: list[Operator], library: str, folder: Path, environment: dict[str, str]
) -> list[tuple[SampleRun, Path, list[torch.Tensor]]]:
    """Every sample of the operators, run by the ONNX Runtime of an environment in a process of its own."""
    planned = []
    for op in ops:
        for run in runs(op):
            outputs = run.reference()
            model, feeds = model_of(run, outputs)
            path = folder / f"{op.op_type}_{run.dtype}_{run.index}.onnx"
            path.write_bytes(model.SerializeToString())
            np.savez(path.with_suffix(".in.npz"), **feeds)
            planned.append((run, path, outputs))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), library],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return planned


@pytest.mark.parametrize("version", ["1.17.3", "1.20.1", "1.23.2", OURS])
@pytest.mark.parametrize("which", ["shipped", "pack"])
def test_every_sample_agrees_with_the_reference(
    version: str,
    which: str,
    other_runtime: Callable[[str], dict[str, str]],
    pack: dict[str, Operator],
    pack_library: Library,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    environment = {} if version == OURS else other_runtime(version)
    if which == "pack":
        ops, library = list(pack.values()), str(pack_library.path)
    else:
        registry.load_builtin()
        ops = [op for op in registry.all_operators() if op.name.startswith("deployops::")]
        library = request.getfixturevalue("shipped_library")
    planned = run_everything(ops, library, tmp_path, environment)
    assert len(planned) > 20
    wrong = []
    for run, path, by_torch in planned:
        error = path.with_suffix(".error")
        if error.exists():
            wrong.append(f"{run}: {error.read_text()}")
            continue
        found = np.load(path.with_suffix(".out.npz"))
        got = [
            torch.from_numpy(found[name]).to(t.dtype) for name, t in zip(found.files, by_torch, strict=True)
        ]
        wrong += [f"{run}: {fault}" for fault in faults(run, got, by_torch, run.exact()) if fault]
    assert not wrong, "\n".join(wrong[:10])


def test_an_older_runtime_is_refused_in_words(
    other_runtime: Callable[[str], dict[str, str]], pack_library: Library, pack: Any, tmp_path: Path
) -> None:
    [(_, path, _), *_] = run_everything(
        [pack["limit"]], str(pack_library.path), tmp_path, other_runtime("1.16.3")
    )
    assert (
        "needs ONNX Runtime 1.17 or newer; it was loaded by 1.16.3" in path.with_suffix(".error").read_text()
    )
