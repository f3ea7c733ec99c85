"""A device's queue is waited for, whatever is timed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from deployops.errors import NotCheckedError, UsageError
from deployops.validation.latency import cuda
from deployops.validation.latency.device import HOST, PhasedCandidate, timed


class Queue:
    """A device on a virtual clock: giving it work takes 0.01 ms, the work is done when it is waited for."""

    name = "fake:0"

    def __init__(self) -> None:
        self.now = 0.0
        self.free_at = 0.0

    def clock(self) -> float:
        return self.now

    def enqueue(self, ms: float) -> None:
        self.now += 1e-5
        self.free_at = max(self.free_at, self.now) + ms / 1e3

    def synchronize(self) -> None:
        self.now = max(self.now, self.free_at)


def test_a_call_on_a_device_is_waited_for() -> None:
    queue = Queue()
    once = timed(lambda: queue.enqueue(10.0), queue, queue.clock)
    assert once() == pytest.approx(10.0, abs=0.02)


def test_work_that_was_left_in_the_queue_is_not_counted() -> None:
    queue = Queue()
    queue.enqueue(500.0)
    once = timed(lambda: queue.enqueue(10.0), queue, queue.clock)
    assert once() == pytest.approx(10.0, abs=0.02)


def test_results_on_a_device_that_is_not_waited_for_are_refused() -> None:
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    once = timed(lambda: {"logits": [on_gpu]}, HOST)
    with pytest.raises(UsageError, match="was waited for"):
        once()


def test_results_on_the_host_are_not() -> None:
    import torch

    assert timed(lambda: (torch.ones(2), [3.0, None]), HOST)() > 0


def test_compute_alone_can_be_compared_and_phases_are_kept() -> None:
    queue = Queue()
    steps: list[Callable[[], object]] = [lambda ms=ms: queue.enqueue(ms) for ms in (4.0, 10.0, 6.0)]  # type: ignore[misc]
    candidate = PhasedCandidate(*steps, queue, compares="compute", clock=queue.clock)
    assert candidate() == pytest.approx(10.0, abs=0.02)
    assert candidate.runs[0].total == pytest.approx(20.0, abs=0.06)


def test_without_a_gpu_it_is_not_checked() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(NotCheckedError, match="nothing is timed on a GPU"):
        cuda.cuda()


def test_events_stand_around_the_work_and_the_cache_is_flushed_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a stand-in for torch's CUDA: the order of what is given to the stream."""
    import torch

    stream: list[str] = []

    class Event:
        made = 0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            Event.made += 1
            self.name = "start" if Event.made % 2 else "end"

        def record(self) -> None:
            stream.append(self.name)

        def synchronize(self) -> None:
            stream.append(f"wait for {self.name}")

        def elapsed_time(self, end: Any) -> float:
            assert stream[-1] == f"wait for {end.name}"
            return 7.0

    class Guard:
        def __init__(self, name: str) -> None: ...
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    buffer = SimpleNamespace(zero_=lambda: stream.append("flush"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda name: stream.append("synchronize"))
    monkeypatch.setattr(cuda, "_flush_buffer", lambda device: buffer)
    once = cuda.event_timed(lambda: stream.append("work"), cuda.Cuda("cuda:0"), l2="cold")
    assert once() == 7.0
    assert stream == ["flush", "synchronize", "start", "work", "end", "wait for end"]


@pytest.mark.gpu
def test_a_copy_on_the_gpu_takes_time() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("not checked: no GPU")
    device = cuda.cuda()
    a = torch.ones(64 << 20, device=device.name)
    b = torch.empty_like(a)
    assert cuda.event_timed(lambda: b.copy_(a), device)() > 0
    assert cuda.event_timed(cuda.graphed(lambda: b.copy_(a), device), device)() > 0  # type: ignore[arg-type]
    phased = cuda.phased(lambda x: x * 2, [torch.ones(1 << 20)], device)
    assert phased() == pytest.approx(phased.runs[-1].total)
