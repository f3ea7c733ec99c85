"""The original timed on a GPU, with a stand-in for torch's CUDA: every path runs. What a GPU does is not checked here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from deployops import export_model
from deployops.errors import NotCheckedError
from deployops.validation import gpu_timing, validate
from deployops.validation.backends import BACKENDS, Request, Runner
from deployops.validation.latency import cuda
from deployops.validation.latency.limits import judge
from deployops.validation.latency.measurement import measure, timing_of
from deployops.validation.latency.record import LatencyRecord
from deployops.validation.latency.surroundings import Observation
from deployops.validation.latency.torch_on_gpu import reference_on, torch_on_gpu
from deployops.validation.record import Limits

from .fake_cuda import FakeCuda, fake_cuda

__all__ = ["fake_cuda"]  # a fixture

GPU = "pytorch on cuda:0"


@pytest.fixture(autouse=True)
def buffer(monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeCuda) -> None:
    """The flush is a kernel too: 0.5 ms, in no time that is measured."""

    class Buffer:
        def zero_(self) -> None:
            fake_cuda.launch("flush", 0.5)

    monkeypatch.setattr(cuda, "_flush_buffer", lambda device: Buffer())


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval()


def on_gpu(model: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return torch_on_gpu(model, args, kwargs, cuda.cuda())


def test_four_ways_of_timing_the_original(fake_cuda: FakeCuda) -> None:
    found = on_gpu(net(), torch.ones(2, 4))
    assert list(found.candidates) == [GPU, f"{GPU}, cold L2", f"{GPU}, with copies", f"{GPU}, CUDA graph"]
    # a kernel that is launched alone against a graph; the flush of the cache is in neither time
    assert found.candidates[GPU]() == 1.25
    fake_cuda.log.clear()
    assert found.candidates[f"{GPU}, cold L2"]() == 1.25
    assert fake_cuda.log == ["flush", "kernel"]
    assert found.candidates[f"{GPU}, CUDA graph"]() == 1.0


def test_transfers_are_apart_from_the_computation(fake_cuda: FakeCuda) -> None:
    candidate = on_gpu(net(), torch.ones(2, 4)).candidates[f"{GPU}, with copies"]
    total = candidate()
    (phases,) = candidate.runs
    assert total == phases.h2d + phases.compute + phases.d2h


def test_the_original_itself_stays_where_it_is(fake_cuda: FakeCuda) -> None:
    model = net()
    on_gpu(model, torch.ones(2, 4))
    assert fake_cuda.modules
    assert all(moved is not model for moved in fake_cuda.modules)


def test_keywords_and_numbers_of_the_call_are_kept(fake_cuda: FakeCuda) -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, factor: float, *, shift: torch.Tensor) -> torch.Tensor:
            assert x.device.type == shift.device.type == "cuda"
            return x * factor + shift

    found = on_gpu(Scaled().eval(), torch.ones(3), 2.0, shift=torch.ones(3))
    assert found.candidates[f"{GPU}, with copies"]() > 0


def test_a_model_that_cannot_be_captured_is_timed_without_a_graph(fake_cuda: FakeCuda) -> None:
    fake_cuda.refuses_capture = "operation not permitted when stream is capturing"
    found = on_gpu(net(), torch.ones(2, 4))
    assert f"{GPU}, CUDA graph" not in found.candidates
    assert "no CUDA graph of this model: operation not permitted" in found.notes[0]


def test_a_capture_that_breaks_the_device_times_nothing(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cuda.refuses_capture = "capture failed"
    real = cuda.graphed

    def breaking(*args: Any) -> Any:
        try:
            return real(*args)
        finally:
            fake_cuda.broken = True

    monkeypatch.setattr("deployops.validation.latency.torch_on_gpu.graphed", breaking)
    with pytest.raises(NotCheckedError, match="illegal memory access"):
        on_gpu(net(), torch.ones(2, 4))


def test_a_model_that_does_not_run_there_is_told(fake_cuda: FakeCuda) -> None:
    class Stuck(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.device.type == "cuda":
                raise RuntimeError("Expected all tensors to be on the same device")
            return x

    with pytest.raises(NotCheckedError, match="it does not run there: RuntimeError: Expected all tensors"):
        on_gpu(Stuck().eval(), torch.ones(2))


def test_a_model_that_computes_on_the_processor_is_not_taken_for_one_on_the_gpu(fake_cuda: FakeCuda) -> None:
    class Away(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.as_subclass(torch.Tensor) + 1

    with pytest.raises(NotCheckedError, match="its results lie on cpu"):
        on_gpu(Away().eval(), torch.ones(2))


def test_like_is_held_against_like() -> None:
    there = dict.fromkeys((GPU, f"{GPU}, cold L2", f"{GPU}, with copies"))
    assert reference_on("tensorrt", "cuda:0", there) == GPU
    assert reference_on("onnxruntime-cuda", "cuda:0", there) == f"{GPU}, with copies"
    assert reference_on("tensorrt-rtx", "cuda:0", {}) is None


class Engine:
    """A backend on the GPU: what ONNX Runtime gives on the CPU, in 0.5 ms of the fake's clock."""

    def __init__(self, request: Request) -> None:
        self._runner: Runner = BACKENDS["onnxruntime"].open(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def time(self) -> float:
        return 0.5


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    kind = BACKENDS["tensorrt"]
    monkeypatch.setitem(BACKENDS, "tensorrt", replace(kind, missing=lambda request: "", open=Engine))


@pytest.fixture
def file(tmp_path: Path) -> tuple[nn.Module, Path]:
    model = net()
    export_model(model, ["x:float32[n,4]"], out=tmp_path / "net.onnx")
    return model, tmp_path / "net.onnx"


def validated(file: tuple[nn.Module, Path], **options: Any) -> Any:
    model, path = file
    return validate(model, path, sizes=1, threads=1, isolate=False, **options)


def test_an_engine_is_held_against_the_original_on_its_own_device(
    file: tuple[nn.Module, Path], fake_cuda: FakeCuda, engine: None
) -> None:
    report = validated(file, backends=["onnxruntime", "tensorrt"], max_slowdown=1.0)
    latency = report.latency
    devices = {t.candidate: t.device for t in latency.timings}
    assert devices["tensorrt"] == devices[GPU] == devices[f"{GPU}, CUDA graph"] == "cuda:0"
    assert devices["pytorch"] == devices["onnxruntime"] == "cpu"
    against = {r.candidate: (r.against, r.ratio) for r in latency.ratios}
    assert against["tensorrt"] == (GPU, pytest.approx(0.5 / 1.25))
    assert against["onnxruntime"][0] == "pytorch"
    # the original's own ways are held against no limit: a cold cache is slower, and is no candidate
    assert set(against) == {"tensorrt", "onnxruntime"}
    # and the engine has no floor of the processor
    assert {r.candidate for r in latency.rooflines if not r.subject and not r.machine} == {
        "pytorch",
        "onnxruntime",
    }
    assert any("cuda:0 before and after: clock 1980 to 1980 MHz" in n for n in latency.notes)
    text = report.text()
    assert f"{GPU}, with copies at" in text
    assert "h2d" in text


def test_without_a_backend_on_a_gpu_nothing_is_moved_there(
    file: tuple[nn.Module, Path], fake_cuda: FakeCuda
) -> None:
    report = validated(file, backends=["onnxruntime"])
    assert {t.candidate for t in report.latency.timings} == {"pytorch", "onnxruntime"}
    assert not fake_cuda.modules


def test_the_user_may_ask_for_it_in_any_case(file: tuple[nn.Module, Path], fake_cuda: FakeCuda) -> None:
    report = validated(file, backends=["onnxruntime"], device="cuda")
    assert GPU in {t.candidate for t in report.latency.timings}
    assert report.exit_code == 0, report.text()


def test_the_user_may_forbid_it(file: tuple[nn.Module, Path], fake_cuda: FakeCuda, engine: None) -> None:
    report = validated(file, backends=["tensorrt"], device="cpu")
    assert not fake_cuda.modules
    assert {r.against for r in report.latency.ratios} == {"pytorch"}
    assert any("on a GPU, held against the original on the CPU" in n for n in report.notes)


def test_asked_for_and_not_possible_is_no_pass(
    file: tuple[nn.Module, Path], fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = validated(file, backends=["onnxruntime"], device="cuda")
    assert report.exit_code == 3
    assert any("torch sees no CUDA device" in n for n in report.notes)
    assert [f.kind for f in report.findings if f.severity == "not checked"] == ["device"]
    assert "latency was not measured" in gpu_timing.not_timed_on_gpu(None, "cuda")


def test_a_clock_that_falls_makes_the_gpu_s_series_unstable(fake_cuda: FakeCuda) -> None:
    fake_cuda.clock = [1980, 1400]
    clocks = cuda.Clocks(cuda.cuda())
    record = measure(
        {"pytorch": lambda: 1.0, "tensorrt": lambda: 0.5},
        "s",
        threads=1,
        devices={"tensorrt": "cuda:0"},
        observers=[clocks],
        seconds=0,
        warmup_s=0,
    )
    by_name = {t.candidate: t for t in record.timings}
    assert by_name["pytorch"].unstable == ""
    assert by_name["tensorrt"].unstable == "the GPU's clock fell from 1980 to 1400 MHz"
    assert record.ratios[0].unstable == "the GPU's clock fell from 1980 to 1400 MHz"


def test_clocks_that_cannot_be_read_are_said_to_be(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(device: Any) -> int:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    for name in ("clock_rate", "power_draw", "temperature"):
        monkeypatch.setattr(torch.cuda, name, refused)
    clocks = cuda.Clocks(cuda.cuda())
    clocks.begin()
    seen = clocks.end()
    assert isinstance(seen, Observation)
    assert "cannot be read" in seen.notes[0]
    assert seen.unstable == ""


def test_the_original_on_the_gpu_is_no_candidate_of_a_baseline_and_corrects_for_the_gpu() -> None:
    """The GPU's own original became 20 % slower too: that is the GPU, and no regression of the engine."""

    def record(gpu: float) -> LatencyRecord:
        series = {"pytorch": ("cpu", 3.0), GPU: ("cuda:0", gpu), "tensorrt": ("cuda:0", gpu / 2)}
        timings = [timing_of(n, "s", [ms] * 30, device=d) for n, (d, ms) in series.items()]
        return LatencyRecord(1, tuple(timings), fingerprint={"gpu": "G"})

    ratios = [r for r in judge(record(1.2), Limits(), record(1.0)).ratios if r.against == "baseline"]
    assert [(r.candidate, r.verdict, r.ratio) for r in ratios] == [("tensorrt", "passed", pytest.approx(1.0))]
