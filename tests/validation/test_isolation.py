"""A library that crashes, hangs or prints is a finding of the report, not the end of the validation."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import helper

from deployops.errors import NotCheckedError
from deployops.ort_ops.engine import EngineError
from deployops.validation import validate
from deployops.validation.backends import BACKENDS, GaveUp, ModelSource, Request, Runner, RunnerFault, endings
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
    assert len({c.sample for c in report.cells}) == 3
    # two samples in a row, each in a process of its own, are enough for a backend
    assert {c.verdict for c in report.cells} == {"failed", "not checked"}
    assert all(
        "not run: its process ended 2 times in a row" in c.reason
        for c in report.cells
        if c.verdict != "failed"
    )
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
    missing = {b.name: b.missing for b in report.backends}
    assert "acme::Twice" in missing["onnxruntime"]
    assert not [c for c in report.cells if c.verdict == "passed"]


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


FAULTY = """
import os, signal, sys, time, torch

class Net(torch.nn.Module):
    def forward(self, x):
        rows = len(x)
        if rows == 2:
            raise MemoryError("12 GiB")
        if rows == 3:
            return torch.ones(1 << 32)
        if rows == 4:
            print("about to be killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if rows == 5:
            time.sleep(600)
        if rows == 6:
            print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
            os.abort()
        if rows == 7:
            assert sys.stdin.read() == ""
        return 2 * x
"""


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Callable[..., Runner]]:
    """`faulty(**request)`: the model above, in a child process."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    torch.save({}, tmp_path / "net.pt")
    source = ModelSource(tmp_path / "net.pt", factory=f"{tmp_path / 'faulty.py'}:Net")
    runners: list[Runner] = []

    def opened(**options: Any) -> Runner:
        runners.append(BACKENDS["pytorch"].open(Request(source=source, threads=1, **options)))
        return runners[-1]

    yield opened
    for runner in runners:
        runner.close()


def run(runner: Runner, rows: int) -> None:
    x = torch.arange(2.0 * rows).reshape(rows, 2)
    (got,) = runner.run([("x", x)])
    assert (got == 2 * x.numpy()).all()


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        (2, "out of memory", "12 GiB"),
        (3, "out of memory", "can't allocate memory"),
        (4, "crash", "crash, SIGKILL. Its last words: about to be killed"),
        (6, "out of memory", "SIGABRT"),
    ],
)
def test_each_ending_is_told_apart_and_the_next_sample_runs(
    faulty: Callable[..., Runner], rows: int, kind: str, words: str
) -> None:
    runner = faulty(memory=6 << 30)
    with pytest.raises(RunnerFault) as caught:
        run(runner, rows)
    assert caught.value.kind == kind
    assert words in str(caught.value)
    run(runner, 1)
    finding = caught.value.finding("pytorch", f"batch={rows}")
    assert (finding.kind, finding.severity, finding.where) == (kind, "failed", f"pytorch, batch={rows}")
    assert finding.advice


def test_two_in_a_row_are_enough(faulty: Callable[..., Runner]) -> None:
    runner = faulty()
    with pytest.raises(RunnerFault):
        run(runner, 4)
    run(runner, 1)  # not in a row
    for _ in range(2):
        with pytest.raises(RunnerFault):
            run(runner, 4)
    with pytest.raises(GaveUp, match=r"not run: its process ended 2 times in a row, last: .*SIGKILL"):
        run(runner, 1)


@pytest.mark.slow
def test_an_original_that_hangs(faulty: Callable[..., Runner]) -> None:
    runner = faulty(limit_s=20)
    with pytest.raises(RunnerFault, match="did not answer within 20 s") as caught:
        run(runner, 5)
    assert caught.value.kind == "hang"


@pytest.mark.skipif(sys.platform == "win32", reason="not checked: signals")
def test_an_interrupt_ends_the_child_and_its_answer_is_not_taken_for_the_next(
    faulty: Callable[..., Runner],
) -> None:
    runner = faulty()
    run(runner, 1)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job is started with it ignored
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            run(runner, 5)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    run(runner, 1)


def test_standard_input_is_empty_and_messages_go_on(faulty: Callable[..., Runner]) -> None:
    runner = faulty(limit_s=100)
    for rows in (7, 1, 7):
        run(runner, rows)


def test_the_kernels_own_count_tells_want_of_memory_from_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "oom_kills", lambda: 4)
    assert endings.ending_of(-9, "", oom_before=3).kind == "out of memory"
    assert endings.ending_of(-9, "", oom_before=4).kind == "crash"
    assert endings.ending_of(-9, "", oom_before=None).kind == "crash"
    assert endings.ending_of(-11, "", oom_before=3).kind == "crash"


def test_logs_do_not_tell_of_this_machine_or_this_run() -> None:
    log = "2026-01-02 03:04:05.678 [E] /home/me/model files/x.cc:3 at 0x7f00deadbeef, pid 1234\nthe /usr/lib/liba.so died"
    assert endings.steady(log) == "[E] model files/x.cc:3 at 0x…, pid …\nthe liba.so died"
    assert len(endings.steady("line\n" * 1000).splitlines()) == 30
    assert endings.steady("a ratio of 1/2, http://host/path") == "a ratio of 1/2, http://host/path"
