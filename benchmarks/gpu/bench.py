"""A run of the benchmark: what launches, how long it may take, what was found; and how candidates are timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from ort_cases import Case

from deployops.errors import DeployOpsError
from deployops.symbolic.operator import Operator

from .floors import size_of
from .launchers import Launcher

TARGET = 0.85  # of a copy's speed
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_TINY = {"attention": 8 * 16 * 64}


@dataclass
class Bench:
    """A run: what launches, how long it may take, what was found."""

    launcher: Launcher
    ops: dict[str, Operator]
    tiny: bool
    compiled: bool  # measure torch.compile
    deadline: float
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def device(self) -> str:
        return self.launcher.device

    def late(self, reserve: float = 0.0) -> bool:
        return time.perf_counter() + reserve > self.deadline

    def say(self, *lines: str) -> None:
        self.lines += lines
        print(*lines, sep="\n", flush=True)

    def synchronize(self) -> None:
        if self.launcher.asynchronous:
            torch.cuda.synchronize()

    def draw(self, case: Case, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
        torch.manual_seed(0)
        with torch.device(self.device):
            return case.draw(_TINY.get(case.op_name, 1024) if self.tiny else size_of(case), dtype)


def timed(bench: Bench, candidates: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Medians in milliseconds, cold L2; the candidates take turns. One that fails is left out, and told."""
    runs: dict[str, Callable[[], float]] = {}
    for name, call in candidates.items():
        try:
            for _ in range(1 if bench.tiny else 3):
                call()
            bench.synchronize()
        except (DeployOpsError, RuntimeError) as error:
            bench.failures.append(f"{name}: {' '.join(str(error).split())[:200]}")
            continue
        runs[name] = _timer(bench, call)
    times: dict[str, list[float]] = {name: [] for name in runs}
    begun = time.perf_counter()
    rounds, most_s = (2, 1.0) if bench.tiny else (60, 1.5)
    for k in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
        if k >= 9 and time.perf_counter() - begun > most_s:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def _timer(bench: Bench, call: Callable[[], object]) -> Callable[[], float]:
    if bench.launcher.asynchronous:
        from deployops.validation.latency.cuda import cuda, event_timed

        return event_timed(call, cuda(), "cold")

    def once() -> float:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3

    return once
