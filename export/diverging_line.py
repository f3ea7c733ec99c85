"""Where the original takes another way at other sizes: the last step of Python that two runs have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from .user_code import is_library

__all__ = ["diverging_line"]

_MOST = 1_000_000  # instructions

_Step = tuple[Any, int, int]  # code, instruction, line


def diverging_line(run: Callable[[], Any], other: Callable[[], Any]) -> str | None:
    """The user's line after which `other` goes on elsewhere than `run`; None where both run the same instructions."""
    some, others = _steps(run), _steps(other)
    for k, (a, b) in enumerate(zip(some, others, strict=False)):
        if a[:2] != b[:2]:
            return _text(some[k - 1]) if k else None
    if len(some) == len(others) or not some or not others:
        return None
    return _text(some[min(len(some), len(others)) - 1])


def _text(step: _Step) -> str:
    code, _, line = step
    return f"{PurePath(code.co_filename).name}:{line} in {getattr(code, 'co_qualname', code.co_name)}"


def _steps(run: Callable[[], Any]) -> list[_Step]:
    found: list[_Step] = []
    theirs: dict[str, bool] = {}

    def trace(frame: Any, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in theirs:
            theirs[file] = not is_library(file)
        if not theirs[file] or len(found) >= _MOST:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            found.append((frame.f_code, frame.f_lasti, frame.f_lineno))
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except Exception:  # it was run before, and whoever calls it knows how it ends
        pass
    finally:
        sys.settrace(previous)
    return found
