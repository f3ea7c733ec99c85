"""Control flow that runs under a watching mode: operators in the branches of `torch.cond` are seen as any others.

torch runs a branch with the mode switched off, and only the one that the values choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ExportError
from .user_code import user_line

__all__ = ["run_watched"]

_LOOPS = ("while_loop", "scan")


def run_watched(
    mode: Any, func: Any, args: Any, kwargs: Any, failed: Callable[[str | None], None] | None = None
) -> Any:
    """Call the control flow operator `func` with `mode` on in its branches and bodies.

    With `failed`, the branch of `torch.cond` that the values do not choose is run too, on copies, its results thrown
    away; `failed` is told the user's line where it cannot take them.
    """
    name = getattr(func, "_name", str(func))
    if name == "cond" and len(args) == 4:
        predicate, yes, no, operands = args
        chosen, other = (yes, no) if bool(predicate) else (no, yes)
        if failed is not None:
            _run_other(mode, other, operands, failed)
        with mode:
            return chosen(*operands)
    if name in _LOOPS:
        args = [_watched(mode, a) for a in args]
    return func(*args, **kwargs)


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


def _watched(mode: Any, value: Any) -> Any:
    import torch

    if isinstance(value, (torch._ops.OpOverload, type)) or not callable(value):
        return value

    def body(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return value(*args, **kwargs)

    return body
