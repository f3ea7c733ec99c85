"""What a journal holds, and the report that is made of it where the comparison did not reach its end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..backends.endings import Ending
from ..latency.record import LatencyRecord
from ..record import FAILED, NOT_CHECKED, BackendRecord, Bisection, Cell, FileRecord, Finding, Limits, Report

__all__ = ["ORIGINAL", "Entries", "Heading", "Planned", "Running", "unfinished"]

ORIGINAL = "pytorch"


@dataclass(frozen=True, slots=True)
class Heading:
    """What a report says of itself before anything has run."""

    model: str
    onnx: str
    limits: Limits = field(default_factory=Limits)
    environment: dict[str, Any] = field(default_factory=dict)
    files: tuple[FileRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A sample that is to be run on a backend; `subject` as in `Cell`."""

    sample: str
    backend: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """What is being done now: `backend` "pytorch" for the original. `what` says more ("in float64") or is all there is."""

    sample: str = ""
    backend: str = ""
    what: str = ""
    subject: str = ""

    def text(self) -> str:
        """For "while …"."""
        if not self.backend:
            return self.what or "starting"
        who = "the original" if self.backend == ORIGINAL else self.backend
        on = f" on {self.sample}" if self.sample else ""
        of = f" of {self.subject}" if self.subject else ""
        return f"running {who}{of}{on}" + (f", {self.what}" if self.what else "")


@dataclass
class Entries:
    """A journal so far."""

    heading: Heading
    planned: list[Planned] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    backends: list[BackendRecord] = field(default_factory=list)
    bisections: list[Bisection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    latency: LatencyRecord | None = None
    running: Running = field(default_factory=Running)


def unfinished(entries: Entries, ending: Ending) -> Report:
    """Everything found so far, what ended it as a finding, and the rest of the plan as not checked.

    A backend that takes the comparison's process along has failed its sample. The original has not failed: without
    it there is nothing to compare with, so that its samples are not checked.
    """
    now = entries.running
    by_backend = now.backend not in ("", ORIGINAL)
    happened = f"{ending.text} while {now.text()}"
    words = f" Its last words: {ending.words}" if ending.words else ""
    finding = Finding(
        ending.kind,
        "failed" if by_backend else "not checked",
        f"The comparison's process ended: {happened}.{words}",
        where=now.text(),
        advice=_ADVICE["backend" if by_backend else "original" if now.backend else "start"],
        log=ending.log,
    )
    done = {(c.subject, c.sample, c.backend) for c in entries.cells}
    rest = [
        Cell(
            p.sample,
            "*",
            p.backend,
            FAILED if by_backend and (p.sample, p.backend, p.subject) == _key(now) else NOT_CHECKED,
            f"not reached: {happened}" if p.sample != now.sample else f"{ending.kind}: {happened}",
            subject=p.subject,
        )
        for p in dict.fromkeys(entries.planned)
        if (p.subject, p.sample, p.backend) not in done
    ]
    heading = entries.heading
    return Report(
        model=heading.model,
        onnx=heading.onnx,
        cells=(*entries.cells, *rest),
        backends=tuple(entries.backends),
        findings=(*entries.findings, finding),
        bisections=tuple(entries.bisections),
        latency=entries.latency,
        limits=heading.limits,
        files=heading.files,
        environment=heading.environment,
        notes=tuple(dict.fromkeys(entries.notes)),
    )


def with_last_act(report: Report, ending: Ending) -> Report:
    """A complete report of a process that crashed at its end, when libraries are unloaded."""
    finding = Finding(
        ending.kind,
        "note",
        f"After everything was compared, its process ended badly: {ending.text}",
        advice="a library of the model or of a backend does not survive its own unloading",
        log=ending.log,
    )
    return replace(report, findings=(*report.findings, finding))


def _key(now: Running) -> tuple[str, str, str]:
    return now.sample, now.backend, now.subject


_ADVICE = {
    "original": "run the original alone on this sample, without deployops: it is its own process that ended",
    "backend": "leave the isolation of backends on, so that the others are still compared",
    "start": "load the model alone, without deployops; the log has the last lines of the process",
}
