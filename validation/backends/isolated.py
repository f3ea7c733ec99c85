"""An engine in a process of its own: custom-operator libraries are native code, and native code crashes.

The child reads requests from its standard input and answers on what was its standard output, which it first
moves out of the way of libraries that print. It ends when its input does, so it cannot outlive this process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ... import errors
from ...ort_ops.arrays import Slot
from ...ort_ops.engine import Engine, EngineError
from . import frames

__all__ = ["IsolatedEngine", "serve"]

Array = npt.NDArray[Any]

# -I keeps the working directory and the environment out of sys.path; the parent's own is handed over.
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {module} import serve; serve()"


class IsolatedEngine:
    """The interface of `Engine`, in a child process with a time limit for each answer."""

    def __init__(
        self,
        path: Path,
        *,
        threads: int | None,
        optimize: bool,
        libraries: Sequence[str] = (),
        limit_s: float = 600.0,
    ) -> None:
        self._limit = limit_s
        self._request = {
            "do": "open",
            "path": str(path.resolve()),
            "threads": threads,
            "optimize": optimize,
            "libraries": list(libraries),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        command = [sys.executable, "-I", "-c", _START.format(module=__name__), json.dumps(sys.path)]
        self._log.seek(0)
        self._log.truncate()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )
        answer, _ = self._ask(self._request)
        self.load_ms: float = answer["load_ms"]
        self.inputs: list[Slot] = [(n, t) for n, t in answer["inputs"]]
        self.outputs: list[Slot] = [(n, t) for n, t in answer["outputs"]]

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Run once. Raises EngineError if the runtime refuses, crashes or does not answer in time."""
        if self._process is None:  # it crashed on an earlier sample
            self._open()
        _, results = self._ask({"do": "run"}, arrays)
        return list(results.values())

    def time(self) -> float:
        """Milliseconds of one more run on the same inputs, as the child's clock sees it."""
        answer, _ = self._ask({"do": "time"})
        return float(answer["ms"])

    def close(self) -> None:
        """End the child."""
        self._stop()
        self._log.close()

    def _ask(
        self, request: Mapping[str, Any], arrays: Mapping[str, Array] | None = None
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EngineError("the runtime is not running")
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        watch = threading.Timer(self._limit, stop)
        watch.start()
        try:
            frames.write(process.stdin, request, arrays)
            answer, results = frames.read(process.stdout)
        except (EOFError, OSError):
            code = process.wait()
            said = self._last_words()
            self._stop()
            if late.is_set():
                raise EngineError(
                    f"the runtime did not answer within {self._limit:g} s and was stopped"
                ) from None
            raise EngineError(f"the runtime's process ended: {_ending(code)}{said}") from None
        finally:
            watch.cancel()
        if "error" in answer:
            raise _error(answer["error"], answer["message"])
        return answer, results

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read()[-4000:].decode(errors="replace").strip().splitlines()
        return f". Its last words: {lines[-1][:300]}" if lines else ""

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # unsent bytes to a process that is gone
                    stream.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve() -> None:
    """The child: answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    engine: Engine | None = None
    while True:
        try:
            request, arrays = frames.read(requests)
        except EOFError:
            return
        do = request.pop("do")
        try:
            if do == "open":
                engine = Engine(Path(request.pop("path")), **request)
                answer: dict[str, Any] = {
                    "load_ms": engine.load_ms,
                    "inputs": engine.inputs,
                    "outputs": engine.outputs,
                }
                frames.write(answers, answer)
            elif engine is None:
                raise EngineError("no session is open")
            elif do == "run":
                results = engine.run(arrays)
                frames.write(answers, {}, {str(i): r for i, r in enumerate(results)})
            else:
                frames.write(answers, {"ms": engine.time()})
        except Exception as error:
            frames.write(answers, {"error": type(error).__name__, "message": str(error)})


def _error(kind: str, message: str) -> Exception:
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.DeployOpsError):
        return known(message)
    return EngineError(message if kind == EngineError.__name__ else f"{kind}: {message}")


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"crash, {signal.Signals(-code).name}"
    except ValueError:
        return f"crash, signal {-code}"
