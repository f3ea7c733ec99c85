"""What went on around a measurement: other work that took the cores, clocks that moved.

A busy machine may make every run of a series a hundred times too long, and each by about the same: where the threads
of an operator wait for each other, all of them wait for the one that has no core. No spread shows that. The scheduler
knows it: Linux counts for each thread the time that it was ready to run and had no core
(`/proc/PID/task/TID/schedstat`, the second number, nanoseconds), and for the machine the time that its hypervisor gave
to others ("steal" in `/proc/stat`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Contention", "Observation", "Observer"]

_PROC = Path("/proc")
# Seconds that ready threads waited, per second measured, all threads together: beyond the first a series is not
# stable, beyond the second no ratio is judged either. What waits is not the same on both sides: one side's threads
# may all wait for one of them, the other's need not.
MOST_WAITED, MOST_WAITED_OF_A_RATIO = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen during a measurement.

    Attributes:
        notes: for the reader of the report.
        unstable: why no series on `device` is to be trusted; empty where they are.
        undecided: likewise of each ratio.
        device: "cuda:0"; empty for every one.
    """

    notes: tuple[str, ...] = ()
    unstable: str = ""
    undecided: str = ""
    device: str = ""


class Observer(Protocol):
    """Looks before the first measured run, the warm-up being over, and after the last."""

    def begin(self) -> None: ...
    def end(self) -> Observation: ...


class Contention:
    """How long threads of this process and of its children waited for a core. Where the system does not tell: nothing."""

    def __init__(self, proc: Path = _PROC, clock: Callable[[], float] = time.perf_counter) -> None:
        self._proc, self._clock = proc, clock
        self._start = 0.0
        self._waited: dict[tuple[int, str], int] = {}
        self._stolen = 0

    def begin(self) -> None:
        self._waited, self._stolen = _waited(self._proc), _stolen(self._proc)
        self._start = self._clock()

    def end(self) -> Observation:
        seconds = self._clock() - self._start
        now = _waited(self._proc)
        waited = sum(max(0, ns - self._waited.get(thread, 0)) for thread, ns in now.items()) / 1e9
        stolen = max(0, _stolen(self._proc) - self._stolen) / _ticks()
        if seconds <= 0 or (waited + stolen) <= MOST_WAITED * seconds:
            return Observation()
        parts = []
        if waited > 0:
            parts.append(f"in {seconds:.2g} s its threads were ready and had no core for {waited:.2g} s")
        if stolen > MOST_WAITED * seconds:
            parts.append(f"the hypervisor gave {stolen:.2g} s of this machine's cores to others")
        text = f"other work on this machine: {', and '.join(parts)}"
        severe = waited + stolen > MOST_WAITED_OF_A_RATIO * seconds
        return Observation(unstable=text, undecided=text if severe else "")


def _waited(proc: Path) -> dict[tuple[int, str], int]:
    """Nanoseconds that each thread of this process, and of what it started, has waited for a core so far."""
    found = {}
    for pid in _family(proc):
        for path in _listed(proc / str(pid) / "task"):
            with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
                found[pid, path.name] = int((path / "schedstat").read_text().split()[1])
    return found


def _family(proc: Path) -> list[int]:
    """This process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for path in _listed(proc):
        if path.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # the name, in brackets, may hold anything
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.name))
    found, todo = [], [os.getpid()]
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found


def _listed(folder: Path) -> Iterator[Path]:
    try:
        yield from list(folder.iterdir())
    except OSError:
        return


def _stolen(proc: Path) -> int:
    """Ticks that the hypervisor gave to others, of all cores together."""
    try:
        return int((proc / "stat").read_text().split("\n", 1)[0].split()[8])
    except (OSError, ValueError, IndexError):
        return 0


def _ticks() -> int:
    return os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
