"""A library that crashes, hangs or prints is a finding of the report, not the end of the validation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import helper

from deployops.errors import NotCheckedError
from deployops.ort_ops.engine import EngineError
from deployops.validation import validate
from deployops.validation.backends.onnxruntime import OnnxRuntime

SOURCE = Path(__file__).parents[1] / "ort_ops" / "twice.cc"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a custom-operator library with")
    folder = tmp_path_factory.mktemp("library")

    def build(fault: str) -> Path:
        path = folder / f"{fault or 'sound'}.so"
        if not path.exists():
            command = [compiler, "-std=c++17", "-fPIC", "-shared", "-o", str(path), str(SOURCE)]
            subprocess.run([*command, *([f"-D{fault}"] if fault else [])], check=True)
        return path

    return build


@pytest.fixture
def twice(build: Callable[..., Path]) -> Path:
    node = helper.make_node("Twice", ["x"], ["y"], domain="acme")
    return build([node], [("x", "float", ["n", 3])], [("y", "float", ["n", 3])], domains={"acme": 3})


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


X = torch.arange(6.0).reshape(2, 3)


def test_a_sound_library(twice: Path, library: Callable[[str], Path]) -> None:
    report = validate(double, twice, (X,), libraries=[library("")])
    assert report.exit_code == 0, report.text()
    assert report.latency is not None
    assert len(report.latency.timings[1].times) >= 20


def test_a_crash_is_a_failure_with_the_signal_and_the_last_words(
    twice: Path, library: Callable[[str], Path]
) -> None:
    report = validate(double, twice, (X,), libraries=[library("CRASH")])
    assert report.exit_code == 1
    assert [c.verdict for c in report.cells] == ["failed"] * len(report.cells)
    assert len({c.sample for c in report.cells}) == 3  # every size was tried, each in a new process
    assert "crash, SIGKILL. Its last words: twice: about to crash" in report.cells[0].reason


def test_a_hang_ends_at_the_time_limit(twice: Path, library: Callable[[str], Path]) -> None:
    backend = OnnxRuntime(twice, threads=1, optimize=True, libraries=[library("HANG")], limit_s=3)
    try:
        with pytest.raises(EngineError, match="did not answer within 3 s"):
            backend.run([("x", X)])
    finally:
        backend.close()


def test_printing_libraries_do_not_disturb(twice: Path, library: Callable[[str], Path]) -> None:
    report = validate(double, twice, (X,), libraries=[library("PRINT")], latency=False)
    assert report.exit_code == 0, report.text()


def test_missing_library_is_not_checked(twice: Path) -> None:
    report = validate(double, twice, (X,), latency=False)
    assert report.exit_code == 3
    assert "nothing implements: acme::Twice" in report.cells[0].reason


def test_error_kinds_cross_the_process(twice: Path) -> None:
    with pytest.raises(NotCheckedError, match="nothing implements"):
        OnnxRuntime(twice, threads=1, optimize=True)


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "int64", "bool"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()])
def test_values_pass_unchanged(
    build: Callable[..., Path], isolate: bool, dtype: str, shape: tuple[int, ...]
) -> None:
    name = {"float8_e4m3fn": "float8e4m3fn"}.get(dtype, dtype)
    path = build([helper.make_node("Identity", ["x"], ["y"])], [("x", name, shape)], [("y", name, shape)])
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    backend = OnnxRuntime(path, threads=1, optimize=True, isolate=isolate)
    try:
        (got,) = backend.run([("x", values.astype(kind))])
    finally:
        backend.close()
    assert got.dtype == kind
    assert got.shape == shape
    assert (got.astype(np.float64) == values.astype(kind).astype(np.float64)).all()


def test_transposed_inputs_arrive_as_they_look(build: Callable[..., Path]) -> None:
    path = build(
        [helper.make_node("Identity", ["x"], ["y"])], [("x", "float", [3, 2])], [("y", "float", [3, 2])]
    )
    report = validate(torch.nn.Identity(), path, (X.T,), latency=False)
    assert report.exit_code == 0
    assert report.cells[0].reason == "identical"
