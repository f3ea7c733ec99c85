"""The parent: start the comparison, take its journal down, and make a report of it whatever becomes of the child."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ... import errors
from ..backends.child import Child
from ..backends.endings import Ending, steady
from ..backends.inductor import inductor_environment
from ..record import Report
from .entries import ORIGINAL, Entries, Heading, Running, unfinished, with_last_act
from .journal import enter, read_line

__all__ = ["supervised"]

_MODULE = f"{__package__}.comparison"
_POLL_S = 0.1
_GRACE_S = 2.0  # for a process at its end
# A backend has limits of its own, for opening and for running, and tells of them itself.
_BACKEND_PATIENCE = 3


def supervised(
    target: str,
    request: Any,
    heading: Heading,
    *,
    limit_s: float = 600.0,
    memory: int | None = None,
    progress: Callable[[Running], None] | None = None,
) -> Report:
    """Run a comparison in a child process; the report is complete whatever happens to that process.

    ::

        supervised("deployops.validation.files:compare_files", request, Heading("net.pt2", "net.onnx"))

    calls ``compare_files(journal, request) -> Report`` in the child. Where the child crashes, hangs or runs out of
    memory, the report has the cells so far, a finding that says in what it ended, with the last lines of its log, and
    the rest of the plan as not checked.

    Args:
        target: "module:function"; the module is importable where this process's `sys.path` is.
        request: what the function takes; it is pickled.
        heading: of the report until the child knows better.
        limit_s: seconds that the original may take for one thing, between two `journal.running`.
        memory: bytes that the child may allocate, torch and the model included; None: no limit.
        progress: called with what is running now.

    Raises:
        DeployOpsError: the child's own, such as UsageError.
    """
    content = pickle.dumps(request)
    child = Child(_MODULE, "serve", memory=memory, environment=inductor_environment())
    entries = Entries(heading)
    watch = _Watch(child, limit_s, entries)
    last: dict[str, Any] = {}
    try:
        with suppress(OSError):  # it ended already: the journal says nothing, the exit status does
            child.requests.write(f"{target}\n".encode() + content)
            child.requests.close()
        for line in child.answers:
            watch.seen()
            found = read_line(line)
            if found is None:
                continue
            kind, value = found
            if kind in ("done", "refused", "broken"):
                last[kind] = value
                break
            enter(entries, kind, value)
            if kind == "running" and progress is not None:
                progress(value)
        return _outcome(child, entries, watch, last)
    finally:
        watch.stop()
        child.close(patience_s=0)


def _outcome(child: Child, entries: Entries, watch: _Watch, last: dict[str, Any]) -> Report:
    if "refused" in last:
        kind, message = last["refused"]
        known = getattr(errors, kind, errors.DeployOpsError)
        raise known(message)
    if "done" in last:
        report: Report = last["done"]
        code = child.wait(_GRACE_S)
        watch.stop()
        # none: what it started holds it up; that is ended with it, and nothing of the report depends on it
        return with_last_act(report, child.ending()) if code else report
    if "broken" in last:
        memory = last["broken"] == "MemoryError"
        log = steady(child.log())
        words = log.splitlines()[-1] if log else ""
        text = "MemoryError" if memory else f"an error of deployops itself ({last['broken']})"
        return unfinished(entries, Ending("out of memory" if memory else "crash", text, words, log))
    late = watch.late
    watch.stop()
    return unfinished(entries, child.ending(late))


class _Watch:
    """Ends the child where it does not get on, and what it has started where it has gone and left that behind."""

    def __init__(self, child: Child, limit_s: float, entries: Entries) -> None:
        self._child, self._limit, self._entries = child, limit_s, entries
        self._last = time.monotonic()
        self._stopped = threading.Event()
        self.late: float | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def seen(self) -> None:
        self._last = time.monotonic()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_S):
            if self._child.wait(0) is not None:
                # a process that it forked holds the journal open
                if not self._stopped.wait(_GRACE_S):
                    self._child.kill()
                return
            own = self._entries.running.backend in ("", ORIGINAL)
            limit = self._limit * (1 if own else _BACKEND_PATIENCE)
            if time.monotonic() - self._last > limit:
                self.late = limit
                self._child.kill()
                return
