"""A backend in a process of its own: custom operators are native code, and native code crashes, hangs and eats memory.

Each of these becomes a `RunnerFault`; the next run starts a new process, until two in a row have ended so.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from ... import errors
from ...ort_ops.arrays import Slot, UnfitTypeError
from ...ort_ops.engine import EngineError
from . import frames
from .child import Child
from .endings import Ending, is_out_of_memory, steady
from .runner import GaveUp, ReopenError, RunnerFault

__all__ = ["IsolatedEngine"]

Array = npt.NDArray[Any]

_MODULE = f"{__package__}.serving"
_MOST_FAULTS = 2  # in a row
_GARBLED = "the runtime's process sent something that is no answer: a library in it writes to file descriptors that are not its own"


class IsolatedEngine:
    """The interface of `serving.Opened`, in a child process with a time limit for each answer.

    Args:
        backend, options: what the child opens.
        threads: of the pools that libraries make when they are loaded (OpenMP, MKL).
        memory: bytes that the child may allocate; None: no limit.
    """

    def __init__(
        self,
        backend: str,
        options: Mapping[str, Any],
        *,
        limit_s: float,
        memory: int | None = None,
        threads: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._request = {"do": "open", "backend": backend, "options": dict(options)}
        self._limit, self._memory = limit_s, memory
        self._environment = dict(environment or {})
        if threads is not None:
            self._environment |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._child: Child | None = None
        self._faults = 0
        self._last_fault = ""
        self.last_act: Ending | None = (
            None  # how its process ended after it was told to, where that went wrong
        )
        self.notes: list[str] = []
        self._open()

    def _open(self) -> None:
        self._child = Child(_MODULE, "serve", memory=self._memory, environment=self._environment)
        try:
            answer, _ = self._ask(self._request)
        except BaseException:
            self._stop()
            raise
        self.load_ms: float = answer["load_ms"]
        self.inputs: list[Slot] = [(n, t) for n, t in answer["inputs"]]
        self.outputs: list[Slot] = [(n, t) for n, t in answer["outputs"]]
        self.versions: dict[str, str] = answer["versions"]
        self.pools: dict[str, int] = answer["pools"]
        self.notes = answer["notes"]

    def run(self, arrays: Mapping[str, Array], call: Any = None) -> list[Array]:
        """Run once. Raises EngineError where the runtime refuses, RunnerFault where its process ends, GaveUp."""
        if self._child is None:  # it ended on an earlier sample
            if self._faults >= _MOST_FAULTS:
                raise GaveUp(
                    f"not run: its process ended {self._faults} times in a row, last: {self._last_fault}"
                )
            self._open()
        answer, results = self._ask({"do": "run", "call": call}, arrays)
        self.notes = answer["notes"]
        self._faults = 0
        return list(results.values())

    def time(self) -> float:
        """Milliseconds of one more run on the same inputs, as the child's clock sees it."""
        answer, _ = self._ask({"do": "time"})
        return float(answer["ms"])

    def profile(self, runs: int) -> str:
        """A trace of more runs, as `serving.Opened` gives it."""
        answer, _ = self._ask({"do": "profile", "runs": runs})
        return str(answer["trace"])

    def close(self) -> None:
        """End the child."""
        self.last_act = self._stop(patience_s=1) or self.last_act

    def _ask(
        self, request: Mapping[str, Any], arrays: Mapping[str, Array] | None = None
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        child = self._child
        if child is None:
            raise EngineError("the runtime is not running: it ended on the last run")
        late = threading.Event()

        def stop() -> None:
            late.set()
            child.kill()

        watch = threading.Timer(self._limit, stop)
        watch.daemon = True
        watch.start()
        try:
            frames.write(child.requests, request, arrays)
            answer, results = frames.read(child.answers)
        except frames.Garbled:
            log = steady(child.log())
            self._stop()
            raise self._fault(RunnerFault("crash", _GARBLED, log)) from None
        except (EOFError, OSError):
            raise self._ended(child, self._limit if late.is_set() else None) from None
        except BaseException:  # an interrupt: the answer to this request would be taken for the next one's
            self._stop()
            raise
        finally:
            watch.cancel()
        if "error" in answer:
            raise self._error(child, answer["error"], answer["message"])
        return answer, results

    def _ended(self, child: Child, late_s: float | None) -> RunnerFault:
        ending = child.ending(late_s)
        self._stop()
        said = f". Its last words: {ending.words}" if ending.words else ""
        if ending.kind == "hang":
            text = f"the runtime did not answer within {late_s:g} s and was stopped"
        else:
            quietly = (
                ", in the middle of a run: a library in it called exit"
                if ending.text == "exit code 0"
                else ""
            )
            text = f"the runtime's process ended: {ending.text}{quietly}{said}"
        return self._fault(RunnerFault(ending.kind, text, ending.log))

    def _error(self, child: Child, kind: str, message: str) -> Exception:
        if kind == "MemoryError" or is_out_of_memory(f"{kind}: {message}"):
            ending = child.ending() if child.wait(0) is not None else None
            log = ending.log if ending else child.log()
            self._stop()  # what is left of it is in no state to go on
            words = " ".join(message.split())[:300]
            return self._fault(RunnerFault("out of memory", f"out of memory: {words or kind}", steady(log)))
        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, errors.DeployOpsError):
            return known(message)
        for other in (UnfitTypeError, ReopenError):
            if kind == other.__name__:
                return other(message)
        return EngineError(message if kind == EngineError.__name__ else f"{kind}: {message}")

    def _fault(self, fault: RunnerFault) -> RunnerFault:
        self._faults += 1
        self._last_fault = str(fault)
        return fault

    def _stop(self, patience_s: float = 0) -> Ending | None:
        child, self._child = self._child, None
        return None if child is None else child.close(patience_s)
