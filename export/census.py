"""One run of the original model before it is traced: which operators it calls, and from which lines.

A trace stops at its first obstacle. The run lets every missing declaration be reported at once, and finds
what a trace hides: random operators, and modules that compute with the statistics of the batch.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import Any

from ..errors import ExportError

_Frame = tuple[str, int, str]  # file, line, scope

__all__ = ["Census", "take_census", "user_line"]

_PACKAGE = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(slots=True)
class Census:
    """What one run showed. Operators by overload, with the user's line that called each first."""

    outputs: Any = None
    custom: dict[Any, str | None] = field(default_factory=dict)
    random: dict[str, str | None] = field(default_factory=dict)


def take_census(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Census:
    """Run `model` once without gradient. Its buffers are put back as they were.

    Raises ExportError where the model itself fails on these inputs.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    census = Census()
    mine = ("aten", "prims", "prim", "profiler", "onnx", "onnx_symbolic")

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace not in mine:
                if func not in census.custom:
                    census.custom[func] = user_line()
            elif torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args):
                census.random.setdefault(str(func).split(".")[1], user_line())
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), _buffers_kept(model), Watch():  # type: ignore[no-untyped-call]
        try:
            census.outputs = model(*args, **kwargs)
        except ExportError:
            raise
        except Exception as e:
            where = user_line(e)
            reason = (str(e).strip().splitlines() or [""])[0]
            raise ExportError(
                f"the model itself fails on these inputs: {type(e).__name__}: {reason}"
                + (f"\n  at {where}" if where else "")
                + "\n  Check --input: dtypes, sizes and the order of the inputs"
            ) from e
    return census


def _draws(func: Any, args: Any) -> bool:
    """Whether a random operator really draws: dropout in eval mode and with p = 0 does not."""
    name = str(func)
    if "dropout" in name and len(args) > 2:
        return bool(args[2]) and args[1] != 0
    if "scaled_dot_product" in name:  # its dropout_p is 0 in eval mode
        return any(isinstance(a, float) and a > 0 for a in args[4:6])
    if "rrelu" in name:
        return len(args) > 4 and bool(args[4])
    return True


@contextlib.contextmanager
def _buffers_kept(model: Any) -> Iterator[None]:
    """A run may count calls or update statistics: the exported model must start where the user's does."""
    import torch

    if not isinstance(model, torch.nn.Module):
        yield
        return
    before = [(b, b.detach().clone(), b._version) for b in model.buffers()]
    places = (
        [(m, dict(m._buffers)) for m in model.modules()]
        if not isinstance(model, torch.jit.ScriptModule)
        else []
    )
    try:
        yield
    finally:
        with torch.no_grad():
            for module, buffers in places:  # `self.count = self.count + 1` replaces the buffer itself
                for name, buffer in buffers.items():
                    if module._buffers.get(name) is not buffer:
                        module._buffers[name] = buffer
            for buffer, value, version in before:
                if buffer._version != version:
                    buffer.copy_(value)


def user_line(error: BaseException | None = None) -> str | None:
    """The innermost line that is neither torch's nor ours: ``net.py:12 in Net.forward``.

    Of an error's traceback where one is given, else of the current call stack.
    """
    import torch

    found = _frames_of_stack() if error is None else _frames_of_error(error)
    libraries = (
        _PACKAGE,
        os.path.dirname(torch.__file__) + os.sep,
        os.path.dirname(contextlib.__file__) + os.sep,
    )
    theirs = [f for f in found if not f[0].startswith(libraries)]
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
    return (
        code.co_filename,
        line,
        getattr(code, "co_qualname", code.co_name),
    )  # Python 3.10 has no co_qualname


def _inside_model(found: list[_Frame], frame: _Frame) -> bool:
    """Below the model's own forward stand the caller's script and the test runner: is it above them?"""
    starts = [k for k, f in enumerate(found) if f[0] == __file__ and f[2].endswith("take_census")]
    return not starts or found.index(frame) > starts[-1]
