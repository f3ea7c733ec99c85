"""The PyTorch original as a backend: eager and compiled, from a file in a child process, from memory where it must be."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

from deployops.errors import NotCheckedError
from deployops.ort_ops.engine import EngineError
from deployops.validation.backends import BACKENDS, ModelSource, Request, Runner, RunnerFault, Sample
from deployops.validation.backends.cores import thread_findings
from deployops.validation.backends.pytorch import _store
from deployops.validation.backends.torch_call import pack, unpack
from deployops.validation.backends.torch_engine import _from_parent

CODE = """
import os, signal, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)

    def forward(self, x, scale=1.0):
        if len(x) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(x) == 6:
            raise ValueError("six is too many")
        return torch.sin(self.fc(x)) * scale

class Broken(torch.nn.Module):
    def forward(self, x):
        return torch.cos(x)
"""


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    (tmp_path / "net.py").write_text(CODE)
    weights = {"fc.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "fc.bias": torch.tensor([0.5, -0.5])}
    torch.save(weights, tmp_path / "net.pt")
    return ModelSource(tmp_path / "net.pt", factory=f"{tmp_path / 'net.py'}:Net")


@pytest.fixture
def opened() -> Iterator[Callable[[str, Request], Runner]]:
    runners: list[Runner] = []

    def run(name: str, request: Request) -> Runner:
        assert BACKENDS[name].missing(request) == ""
        runners.append(BACKENDS[name].open(request))
        return runners[-1]

    yield run
    for runner in runners:
        runner.close()


Open = Callable[[str, Request], Runner]
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="not checked: no g++ for torch.compile")


def expected(rows: list[list[float]], scale: float = 1.0) -> Any:
    """sin(x W^T + b) by hand, in Python's float64."""
    return [[math.sin(a + 2 * b + 0.5) * scale, math.sin(3 * a + 4 * b - 0.5) * scale] for a, b in rows]


def test_eager_from_a_file_runs_in_a_child(source: ModelSource, opened: Open) -> None:
    runner = opened("pytorch", Request(source=source, threads=1))
    x = torch.tensor([[0.1, 0.2], [-0.3, 0.4]])
    (got,) = runner.run([("x", x)], Sample("s", (x,), {"scale": 2.0}))
    assert got == pytest.approx(np.array(expected(x.tolist(), 2.0)), rel=1e-6)
    assert runner.outputs == ("output 0",)
    assert runner.versions["torch"] == torch.__version__
    assert runner.time() > 0
    assert "traceEvents" in runner.profile(1)


def test_both_sides_have_the_threads_that_were_asked_for(
    source: ModelSource, opened: Open, build: Callable[..., Path]
) -> None:
    """Case 33, on what is recorded: one number on both sides, no spinning, and a word where the cores are fewer."""
    path = build([helper.make_node("Relu", ["x"], ["y"])], [("x", "float", [3])], [("y", "float", [3])])
    request = Request(onnx=path, source=source, threads=2)
    runners = {name: opened(name, request) for name in ("pytorch", "onnxruntime")}
    pools = {name: runner.pools for name, runner in runners.items()}
    assert pools == {"pytorch": {"torch intra-op": 2}, "onnxruntime": {"onnxruntime intra-op": 2}}
    assert runners["pytorch"].versions["OMP_NUM_THREADS"] == "2"
    assert runners["pytorch"].versions["inter-op threads"] == "1"
    assert runners["onnxruntime"].versions["spinning"] == "off"
    assert thread_findings(pools, cores=2) == []
    assert [f.where for f in thread_findings(pools, cores=1)] == ["pytorch", "onnxruntime"]


def test_without_the_samples_structure_values_go_by_position(source: ModelSource, opened: Open) -> None:
    x = torch.tensor([[0.1, 0.2]])
    (got,) = opened("pytorch", Request(source=source, threads=1)).run([("x", x), ("scale", 3.0)])
    assert got == pytest.approx(np.array(expected(x.tolist(), 3.0)), rel=1e-6)


def test_a_file_that_kills_its_process_at_one_size(source: ModelSource, opened: Open) -> None:
    runner = opened("pytorch", Request(source=source, threads=1))
    with pytest.raises(RunnerFault, match="SIGKILL"):
        runner.run([("x", torch.ones(5, 2))])
    (got,) = runner.run([("x", torch.ones(1, 2))])  # in a new process
    assert got == pytest.approx(np.array(expected([[1.0, 1.0]])), rel=1e-6)


def test_an_error_of_the_model_is_no_crash(source: ModelSource, opened: Open) -> None:
    with pytest.raises(EngineError, match="ValueError: six is too many"):
        opened("pytorch", Request(source=source, threads=1)).run([("x", torch.ones(6, 2))])


def test_inputs_are_cast_to_what_the_original_computes_in(source: ModelSource, opened: Open) -> None:
    runner = opened("pytorch", Request(source=source, threads=1, computes_in="float32"))
    x = torch.tensor([[0.5, 0.25]], dtype=torch.float16)
    (got,) = runner.run([("x", x)])
    assert got.dtype == np.float32
    assert got == pytest.approx(np.array(expected([[0.5, 0.25]])), rel=1e-6)


@compiles
@pytest.mark.slow
def test_compiled_from_a_file(source: ModelSource, opened: Open) -> None:
    runner = opened("torch.compile", Request(source=source, threads=1))
    for rows in (1, 3):
        x = torch.linspace(-1, 1, 2 * rows).reshape(rows, 2)
        (got,) = runner.run([("x", x)])
        assert got == pytest.approx(np.array(expected(x.tolist())), rel=1e-5)
    assert not any("own process" in note for note in runner.notes)


@compiles
@pytest.mark.slow
def test_a_model_in_memory_is_handed_to_a_child(opened: Open) -> None:
    runner = opened("torch.compile", Request(model=torch.nn.Sequential(torch.nn.Tanh()), threads=1))
    (got,) = runner.run([("x", torch.tensor([0.5, -1.0]))])
    assert got == pytest.approx(np.array([math.tanh(0.5), math.tanh(-1.0)]), rel=1e-6)
    assert runner.notes == {}


@pytest.mark.parametrize("form", ["pickle", "program", "script"])
def test_each_kind_of_model_has_a_form_to_be_handed_over_in(form: str, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Tanh())
    model = {
        "pickle": lambda: module,
        "program": lambda: torch.export.export(module, (torch.ones(2),)),
        "script": lambda: torch.jit.script(module),
    }[form]()
    stored = _store(model, tmp_path)
    assert stored[0] == form
    got = _from_parent(*stored)(torch.tensor([0.5, -1.0]))
    assert got.tolist() == pytest.approx([math.tanh(0.5), math.tanh(-1.0)], rel=1e-6)


@compiles
@pytest.mark.slow
def test_a_model_that_no_other_process_can_open_runs_here_and_says_so(opened: Open) -> None:
    class Local(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(x)

    runner = opened("torch.compile", Request(model=Local(), threads=1))
    (got,) = runner.run([("x", torch.tensor([0.0, 1.0]))])
    assert got == pytest.approx(np.array([1.0, math.e]), rel=1e-6)
    assert "runs in the validation's own process" in next(iter(runner.notes))


@compiles
@pytest.mark.slow
def test_a_compile_error_has_the_compilers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    compiler = tmp_path / "broken-g++"
    real = shutil.which("g++")
    # passes the questions that inductor asks of a compiler, and refuses the code
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) echo "x.cpp:3:1: error: planted by the test" >&2; exit 1;; esac\n'
        f'exec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    runner = opened("torch.compile", Request(model=torch.nn.Sequential(torch.nn.Softsign()), threads=1))
    with pytest.raises(EngineError, match="error: planted by the test"):
        runner.run([("x", torch.ones(3))])


def test_without_a_compiler_torch_compile_is_missing(
    source: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    reason = BACKENDS["torch.compile"].missing(Request(source=source))
    assert "no-such-compiler is not found" in reason


def test_without_a_model_the_original_is_missing() -> None:
    assert BACKENDS["pytorch"].missing(Request()) == "no PyTorch model is given"


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.bool]
)
@pytest.mark.parametrize(
    "layout", ["contiguous", "transposed", "strided", "expanded", "empty", "scalar", "windows"]
)
def test_calls_pass_unchanged_with_their_layout(dtype: torch.dtype, layout: str) -> None:
    base = torch.arange(24).reshape(4, 6).to(dtype)
    value = {
        "contiguous": base,
        "transposed": base.T,
        "strided": base[::2, 1::3],
        "expanded": base[:1].expand(5, 6),
        "empty": base[:0].T,
        "scalar": base[1, 2],
        "windows": base.unfold(1, 3, 1),
    }[layout]
    structure, arrays = pack((value, [1, None, (2.5, "text")]), {"options": {"deep": value, "flag": True}})
    args, kwargs = unpack(structure, arrays)
    assert args[1] == [1, None, (2.5, "text")]
    assert kwargs["options"]["flag"] is True
    for got in (args[0], kwargs["options"]["deep"]):
        assert got.dtype == value.dtype
        assert torch.equal(got, value)
        if (
            value.numel() and layout != "windows"
        ):  # nothing has no layout; memory that overlaps cannot be written
            assert got.stride() == value.stride()


def test_what_cannot_be_handed_over_is_not_checked() -> None:
    with pytest.raises(NotCheckedError, match="slice, which cannot be given to another process"):
        pack((slice(3),), {})


@pytest.mark.skipif(sys.platform != "linux", reason="not checked: /proc")
def test_no_process_and_no_file_is_left(source: ModelSource, tmp_path: Path) -> None:
    code = f"""
import tempfile, torch
from pathlib import Path
from deployops.validation.backends import BACKENDS, ModelSource, Request
from deployops.validation.latency.torch_profile import torch_profile
tempfile.tempdir = {str(tmp_path)!r}
request = Request(source=ModelSource(Path({str(source.path)!r}), factory={source.factory!r}), threads=1)
runner = BACKENDS["pytorch"].open(request)
runner.run([("x", torch.ones(1, 2))])
trace = runner.profile(1)
torch_profile(trace, "pytorch", "s")
# left open on purpose
"""
    before = sorted(tmp_path.iterdir())
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=tmp_path)
    assert sorted(p for p in tmp_path.iterdir() if p.name != "__pycache__") == before
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        if path.parent.name != str(os.getpid()):
            try:
                assert str(tmp_path).encode() not in path.read_bytes()
            except OSError:  # it has ended since
                continue
