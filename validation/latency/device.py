"""What a time is taken of: a call, on a device that may still be at work when the call returns.

A device's queue takes work and returns at once. Whoever reads the clock then, sees no compute, and blames the copy of
the results for it, which is the first to wait. So nothing here reads a clock without having waited for the device: a
phase cannot be timed without a `Device`, and a `Device` is what can be waited for. A call on the host whose results
lie on a device is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ...errors import UsageError

__all__ = ["HOST", "Device", "Host", "PhasedCandidate", "Phases", "timed"]

Clock = Callable[[], float]


class Device(Protocol):
    """Something with a queue. `name`: such as "cuda:0". `synchronize` returns when the queue is empty."""

    @property
    def name(self) -> str: ...

    def synchronize(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Host:
    """The processor that runs this: a call that has returned is done."""

    name: str = "cpu"

    def synchronize(self) -> None:
        """Nothing to wait for."""


HOST = Host()


def timed(
    call: Callable[[], object], device: Device = HOST, clock: Clock = time.perf_counter
) -> Callable[[], float]:
    """A function that runs `call` once and returns its milliseconds, the device's work included.

    Raises:
        UsageError: when called: the results lie on another device than the one that is waited for.
    """
    checked = False

    def once() -> float:
        nonlocal checked
        device.synchronize()
        start = clock()
        result = call()
        device.synchronize()
        taken = (clock() - start) * 1e3
        if not checked:
            _expect_on(device, result)
            checked = True
        return taken

    return once


@dataclass(frozen=True, slots=True)
class Phases:
    """Milliseconds of one run. `total`: from before the copy in to after the copy out."""

    h2d: float
    compute: float
    d2h: float

    @property
    def total(self) -> float:
        return self.h2d + self.compute + self.d2h


@dataclass(slots=True)
class PhasedCandidate:
    """A candidate on a device: inputs are copied in, it computes, results are copied out; each is waited for.

    A candidate for `measure`: called, it runs once and returns milliseconds.

    Attributes:
        compares: what is held against the other candidates: all of it ("total"), or "compute" alone, for a deployment
            whose data stay on the device.
        runs: the phases of each run so far.
    """

    h2d: Callable[[], object]
    compute: Callable[[], object]
    d2h: Callable[[], object]
    device: Device
    compares: Literal["total", "compute"] = "total"
    clock: Clock = time.perf_counter
    runs: list[Phases] = field(default_factory=list)

    def __call__(self) -> float:
        phases = Phases(*(self._phase(step) for step in (self.h2d, self.compute, self.d2h)))
        self.runs.append(phases)
        return phases.total if self.compares == "total" else phases.compute

    def _phase(self, step: Callable[[], object]) -> float:
        self.device.synchronize()
        start = self.clock()
        step()
        self.device.synchronize()
        return (self.clock() - start) * 1e3


def _expect_on(device: Device, result: object) -> None:
    for leaf in _leaves(result):
        kind = getattr(getattr(leaf, "device", None), "type", None)
        if isinstance(kind, str) and kind != device.name.partition(":")[0]:
            raise UsageError(
                f"the results lie on {leaf.device}, but {device.name} was waited for: the time would be that of "
                "giving the work to the queue. Time it with that device"
            )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
