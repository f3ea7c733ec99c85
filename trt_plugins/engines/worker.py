"""The process in which TensorRT parses and builds: what a model or a plugin library breaks is only this process.

One request on standard input, as JSON; events on standard output, a line of JSON each, the last one with the outcome:

    {"step": "parsing m.onnx"}              what is being done, for progress and for the case that it crashes; with
                                            "builder": true where the builder begins, which may take hours
    {"phase": "Tactic selection", "done": 3, "of": 10}
    {"said": ["warning", "…"]}              TensorRT's messages
    {"outcome": "built" | "refused" | "usage" | "not checked" | "unknown" | "identified" | "plugins", …}
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

from .gpu import gpu
from .worker_build import Refused, build, loaded_plugins

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


class _Events:
    """Writes events; TensorRT calls from several threads."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, **event: Any) -> None:
        line = json.dumps(event, ensure_ascii=True).encode() + b"\n"
        with self._lock:
            self._stream.write(line)
            self._stream.flush()


def main() -> None:
    """Answer the one request."""
    requests = os.fdopen(os.dup(0), "rb")
    events = _Events(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what libraries print goes where messages go
    request = json.loads(requests.readline())
    _end_with_parent(requests)
    try:
        events(**_answer(request, events))
    except Refused as end:
        events(**end.details)
    except OSError as error:
        events(outcome="usage", text=f"a file that the build needs cannot be read or written: {error}")
    except MemoryError:
        events(outcome="refused", reason="memory", text="out of memory")
    except Exception as error:  # a TensorRT with another interface
        events(outcome="unknown", text=f"{type(error).__name__}: {error}")
    sys.stderr.flush()
    os._exit(0)  # what is left are destructors of strangers' libraries


def _end_with_parent(requests: BinaryIO) -> None:
    """Let nothing be built that nobody waits for."""
    if sys.platform == "linux":
        # also while a library holds Python's lock; the thread that started this process waits for it all the time
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The other end is closed when the parent has what it wanted, or is gone.
    threading.Thread(target=lambda: (requests.read(), os._exit(1)), daemon=True).start()


def _answer(request: Mapping[str, Any], events: _Events) -> dict[str, Any]:
    events(step=f"loading {request['name']}")
    trt = _imported(request)
    if request["do"] == "identify":
        return {"outcome": "identified", "version": trt.__version__, "gpu": gpu()}
    if request["do"] == "plugins":
        return loaded_plugins(trt, request, events)
    return build(trt, request, events)


def _imported(request: Mapping[str, Any]) -> Any:
    try:
        return importlib.import_module(request["module"])
    except Exception as error:  # its package runs code of its own, and loads libraries
        text = f"{request['name']} cannot be loaded: {type(error).__name__}: {error}"
        raise Refused("not checked", text=text) from None
