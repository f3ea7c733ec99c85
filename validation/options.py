"""What a validation was asked for, beyond what is compared with what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import UsageError
from .record import Limits

if TYPE_CHECKING:
    from .record import Report

__all__ = ["Device", "Options", "Sweep"]

Sweep = Literal["quick", "full"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Options:
    """See `validate`, which documents each.

    Attributes:
        backends: by name, and all of them required; None for those that serve the file as it is deployed.
        required: further backends without which there is no pass.
        modes: how an output is judged, by its name ("labels": "argmax").
        folder: real samples.
        gpus: whose floors are predicted.
        baseline: an earlier report, whose latency this one is held against.
        device: where the original is timed: on the CPU always; on a GPU too where a backend there is timed beside it
            ("auto"), never ("cpu"), or in any case ("cuda"). What is compared is computed on the CPU.
        allow_modified: a file that was changed after export is validated all the same, and the report says so.
    """

    backends: tuple[str, ...] | None = None
    required: tuple[str, ...] = ()
    modes: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    sweep: Sweep | None = None
    sizes: int = 3
    seed: int = 0
    folder: Path | None = None
    latency: bool = True
    baseline: Report | None = None
    gpus: tuple[str, ...] = ()
    bisect: bool = False
    threads: int | None = None
    libraries: tuple[Path, ...] = ()
    engine: Path | None = None
    plugins: tuple[Path, ...] = ()
    isolate: bool = True
    limit_s: float = 600.0
    device: Device = "auto"
    allow_modified: bool = False

    def __post_init__(self) -> None:
        limits = self.limits
        for name in ("atol", "rtol", "max_slowdown", "min_speedup", "max_regression"):
            value = getattr(limits, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise UsageError(f"{name} must be a finite number of at least 0, got {value}")
        for name in ("max_slowdown", "min_speedup"):
            if getattr(limits, name) == 0:
                raise UsageError(f"{name} must be over 0: it is a ratio of two times")
        if self.sizes < 1:
            raise UsageError(f"sizes must be at least 1, got {self.sizes}")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads must be at least 1, got {self.threads}")
        if not (self.limit_s > 0 and math.isfinite(self.limit_s)):
            raise UsageError(f"the time limit must be over 0 seconds, got {self.limit_s}")
        if self.sweep not in (None, "quick", "full"):
            raise UsageError(f"sweep is 'quick' or 'full', not {self.sweep!r}")
        if self.device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"device is 'auto', 'cpu' or 'cuda', not {self.device!r}")
