"""Case 32: a device that takes work and returns at once. Each phase is waited for: 4, 10 and 6 ms, 20 in all."""

from __future__ import annotations

import inspect

import pytest

from deployops.validation.latency.device import Device, PhasedCandidate, timed
from deployops.validation.latency.measurement import measure
from deployops.validation.latency.record import Timing


class FakeDevice:
    """The case's device on a virtual clock: enqueueing takes 10 µs, and the work is done one after the other behind it."""

    name = "fake:0"
    COST_MS = {"h2d": 4.0, "compute": 10.0, "d2h": 6.0}  # noqa: RUF012

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.done_at_ms = 0.0

    def clock(self) -> float:
        return self.now_ms / 1e3

    def enqueue(self, what: str) -> None:
        self.now_ms += 0.01
        self.done_at_ms = max(self.now_ms, self.done_at_ms) + self.COST_MS[what]

    def synchronize(self) -> None:
        self.now_ms = max(self.now_ms, self.done_at_ms)


def measured(device: FakeDevice, order: tuple[str, str, str] = ("h2d", "compute", "d2h")) -> Timing:
    h2d, compute, d2h = ((lambda what=what: device.enqueue(what)) for what in order)
    candidate = PhasedCandidate(h2d, compute, d2h, device, clock=device.clock)
    record = measure({"gpu": candidate}, "s", threads=1, reference="gpu", clock=device.clock)
    return record.timings[0]


def test_each_phase_and_the_whole_are_what_they_take() -> None:
    found = measured(FakeDevice())
    assert {k: round(v) for k, v in found.phases.items()} == {"h2d": 4, "compute": 10, "d2h": 6, "total": 20}
    assert round(found.median) == 20
    assert found.device == "fake:0"


def test_the_trap_itself() -> None:
    """What the case is about: read without waiting, the clock shows nothing for the compute and blames the copy back."""
    device = FakeDevice()
    before = device.clock()
    device.enqueue("compute")
    between = device.clock()
    device.enqueue("d2h")
    device.synchronize()
    after = device.clock()
    assert (between - before) * 1e3 < 0.1
    assert (after - between) * 1e3 == pytest.approx(16, abs=0.1)


@pytest.mark.parametrize("costs", [(1.0, 1.0, 1.0), (0.0, 50.0, 0.5), (30.0, 0.1, 0.1)])
def test_whatever_the_phases_take(costs: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDevice, "COST_MS", dict(zip(("h2d", "compute", "d2h"), costs, strict=True)))
    found = measured(FakeDevice())
    assert [found.phases[k] for k in ("h2d", "compute", "d2h")] == pytest.approx(costs, abs=0.02)
    assert found.median == pytest.approx(sum(costs), abs=0.05)


def test_work_that_others_left_in_the_queue_is_in_no_phase() -> None:
    device = FakeDevice()
    for _ in range(100):
        device.enqueue("compute")
    assert round(measured(device).first) == 20


def test_phases_cannot_be_timed_without_something_to_wait_for() -> None:
    """The device is no option: a candidate is not made without one, and a device is what can be waited for."""
    assert inspect.signature(PhasedCandidate).parameters["device"].default is inspect.Parameter.empty
    with pytest.raises(TypeError, match="device"):
        PhasedCandidate(lambda: None, lambda: None, lambda: None)  # type: ignore[call-arg]
    assert hasattr(Device, "synchronize")


def test_the_same_clock_and_device_as_one_call() -> None:
    device = FakeDevice()

    def whole() -> None:
        for what in ("h2d", "compute", "d2h"):
            device.enqueue(what)

    assert round(timed(whole, device, device.clock)()) == 20
