"""What a comparison writes as it goes, so that what it found is there when it does not come to its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Protocol

from ..latency.record import LatencyRecord
from ..record import BackendRecord, Bisection, Cell, Finding, Report
from .entries import Entries, Heading, Planned, Running

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Journal", "NullJournal", "StreamJournal", "enter", "read_line"]

_KINDS: dict[str, Any] = {
    "heading": Heading,
    "plan": list[Planned],
    "running": Running,
    "cell": Cell,
    "finding": Finding,
    "backend": BackendRecord,
    "bisection": Bisection,
    "latency": LatencyRecord,
    "note": str,
    "done": Report,
    "refused": list[str],
    "broken": str,
}


class Journal(Protocol):
    """What the steps of a comparison call."""

    def heading(self, heading: Heading) -> None:
        """Once, as soon as it is known what is compared."""

    def plan(self, planned: Sequence[Planned]) -> None:
        """What is to be run; may be called again with more. What is planned and has no cell is not checked."""

    def running(self, sample: str = "", backend: str = "", what: str = "", subject: str = "") -> None:
        """Before each thing that can crash, hang or take long; "pytorch" is the original."""

    def cell(self, cell: Cell) -> None: ...
    def finding(self, finding: Finding) -> None: ...
    def backend(self, record: BackendRecord) -> None: ...
    def bisection(self, bisection: Bisection) -> None: ...
    def latency(self, record: LatencyRecord) -> None: ...
    def note(self, text: str) -> None: ...


class NullJournal:
    """For a comparison in the caller's own process."""

    def heading(self, heading: Heading) -> None: ...
    def plan(self, planned: Sequence[Planned]) -> None: ...
    def running(self, sample: str = "", backend: str = "", what: str = "", subject: str = "") -> None: ...
    def cell(self, cell: Cell) -> None: ...
    def finding(self, finding: Finding) -> None: ...
    def backend(self, record: BackendRecord) -> None: ...
    def bisection(self, bisection: Bisection) -> None: ...
    def latency(self, record: LatencyRecord) -> None: ...
    def note(self, text: str) -> None: ...


class StreamJournal:
    """JSON lines. Each is with the kernel before the next thing is begun, so that it outlives this process."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def heading(self, heading: Heading) -> None:
        self._write("heading", heading)

    def plan(self, planned: Sequence[Planned]) -> None:
        self._write("plan", list(planned))

    def running(self, sample: str = "", backend: str = "", what: str = "", subject: str = "") -> None:
        self._write("running", Running(sample, backend, what, subject))

    def cell(self, cell: Cell) -> None:
        self._write("cell", cell)

    def finding(self, finding: Finding) -> None:
        self._write("finding", finding)

    def backend(self, record: BackendRecord) -> None:
        self._write("backend", record)

    def bisection(self, bisection: Bisection) -> None:
        self._write("bisection", bisection)

    def latency(self, record: LatencyRecord) -> None:
        self._write("latency", record)

    def note(self, text: str) -> None:
        self._write("note", text)

    def done(self, report: Report) -> None:
        """The comparison came to its end."""
        self._write("done", report)

    def refused(self, kind: str, message: str) -> None:
        """It came to none because of an error in the user's terms, a `DeployOpsError`."""
        self._write("refused", [kind, message])

    def broken(self, kind: str) -> None:
        """An exception that nobody expected; its traceback is in the log."""
        self._write("broken", kind)

    def _write(self, kind: str, value: Any) -> None:
        line = json.dumps({"entry": kind, "value": _adapter(kind).dump_python(value, mode="json")})
        self._stream.write(line.encode() + b"\n")
        self._stream.flush()


def read_line(line: bytes) -> tuple[str, Any] | None:
    """(kind, value); None for a line that was cut when its writer ended."""
    from pydantic import ValidationError

    try:
        entry = json.loads(line)
        kind = entry["entry"]
        return kind, _adapter(kind).validate_python(entry["value"])
    except (ValueError, KeyError, TypeError, ValidationError):
        return None


def enter(entries: Entries, kind: str, value: Any) -> None:
    """Take an entry down."""
    if kind in ("heading", "running", "latency"):
        setattr(entries, kind, value)
    elif kind == "plan":
        entries.planned += value
    elif kind in ("cell", "finding", "backend", "bisection", "note"):
        getattr(entries, f"{kind}s").append(value)


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(_KINDS[kind])
