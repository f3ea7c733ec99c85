"""Control flow that runs under a watching mode: operators in the branches of `torch.cond` are seen as any others.

torch runs a branch with the mode switched off, and only the one that the values choose.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ExportError
from ..symbolic.autograd_functions import is_adopted, subclasses
from .user_code import user_line

__all__ = ["compiled_apart", "run_watched"]

_LOOPS = ("while_loop", "scan")


def run_watched(
    mode: Any,
    func: Any,
    args: Any,
    kwargs: Any,
    failed: Callable[[str | None], None] | None = None,
    functions: dict[str, None] | None = None,
) -> Any:
    """Call the control flow operator `func` with `mode` on in its branches and bodies.

    With `failed`, the branch of `torch.cond` that the values do not choose is run too, on copies, its results thrown
    away; `failed` is told the user's line where it cannot take them. `functions` collects the names of the
    autograd.Functions with a `symbolic` that branches call: a trace goes through them there.
    """
    name = getattr(func, "_name", str(func))
    if name == "cond" and len(args) == 4:
        predicate, yes, no, operands = args
        chosen, other = (yes, no) if bool(predicate) else (no, yes)
        with _functions_seen(functions):
            if failed is not None:
                _run_other(mode, other, operands, failed)
            with mode:
                return chosen(*operands)
    if name in _LOOPS:
        args = [_watched(mode, a) for a in args]
    return func(*args, **kwargs)


@contextlib.contextmanager
def compiled_apart(ran: Callable[[], bool]) -> Iterator[None]:
    """dynamo compiles `torch.cond` for each run, under our watch too, and a later trace would meet that in its cache.

    Where branches `ran`, it forgets everything, what a user compiled as well: it is compiled anew then.
    """
    import torch

    try:
        yield
    finally:
        if ran():
            torch._dynamo.reset()


def _run_other(mode: Any, branch: Any, operands: Any, failed: Callable[[str | None], None]) -> None:
    import torch
    from torch.utils import _pytree as pytree

    copies = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, operands)
    try:
        with mode:
            branch(*copies)
    except ExportError:
        raise
    except Exception as e:
        failed(user_line(e))


@contextlib.contextmanager
def _functions_seen(found: dict[str, None] | None) -> Iterator[None]:
    import torch

    names = {
        code: cls.__qualname__
        for cls in subclasses(torch.autograd.Function)
        if any("symbolic" in vars(c) for c in cls.__mro__ if c is not torch.autograd.Function)
        and not is_adopted(cls)
        and (code := getattr(cls.forward, "__code__", None)) is not None
    }
    if found is None or not names:
        yield
        return

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in names:
            found[names[frame.f_code]] = None

    previous = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(previous)


def _watched(mode: Any, value: Any) -> Any:
    import torch

    if isinstance(value, (torch._ops.OpOverload, type)) or not callable(value):
        return value

    def body(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return value(*args, **kwargs)

    return body
