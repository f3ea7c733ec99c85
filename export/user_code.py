"""Which lines are the user's: neither torch's, nor Python's, nor ours."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import PurePath
from types import CodeType, FrameType

__all__ = ["is_library", "user_line"]

_Frame = tuple[str, int, str]  # file, line, scope

# Not the whole of our folder: in a clone, examples, tests and the virtual environment lie in it.
_OURS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(__file__)), name)
    for name in (
        "cli.py",
        *(f"{p}{os.sep}" for p in ("export", "ort_ops", "symbolic", "trt_plugins", "validation")),
    )
)
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = re.compile(r"[/\\](site|dist)-packages[/\\]")


def is_library(file: str) -> bool:
    """Whether code in `file` is torch's, Python's or ours; generated code is nobody's line either."""
    import torch

    if file.startswith(("<", os.path.dirname(torch.__file__) + os.sep, *_OURS)):
        return True
    packages = _PACKAGES.search(file)
    if packages is None:
        return file.startswith(_PYTHON)
    return file[packages.end() :].startswith(
        ("torch/", "torch\\")
    )  # a traced program brings other machines' paths


def user_line(error: BaseException | None = None) -> str | None:
    """The innermost line that is the user's: ``net.py:12 in Net.forward``.

    Of an error's traceback where one is given, else of the current call stack.
    """
    found = _frames_of_stack() if error is None else _frames_of_error(error)
    theirs = [f for f in found if not is_library(f[0])]
    if not theirs or (error is None and not _inside_model(found, theirs[-1])):
        return None
    file, line, scope = theirs[-1]
    return f"{PurePath(file).name}:{line} in {scope}"


def _frames_of_error(error: BaseException) -> list[_Frame]:
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        found.append(_frame(traceback.tb_frame.f_code, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found


def _frames_of_stack() -> list[_Frame]:
    found = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        found.append(_frame(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


def _frame(code: CodeType, line: int) -> _Frame:
    # Python 3.10 has no co_qualname
    return code.co_filename, line, getattr(code, "co_qualname", code.co_name)


def _inside_model(found: list[_Frame], frame: _Frame) -> bool:
    """Below the model's own forward stand the caller's script and the test runner: is it above them?"""
    ours = [
        k
        for k, f in enumerate(found)
        if f[2] in ("take_census", "capture", "call_original") and is_library(f[0])
    ]
    return not ours or found.index(frame) > ours[-1]
