"""Which line of the model made a condition on the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..user_code import is_library

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .signature import Signature

__all__ = ["condition_line"]


def condition_line(
    program: ExportedProgram, signature: Signature, names: Mapping[str, str], at: Mapping[str, int]
) -> str | None:
    """The line whose guard does not hold at the sizes `at`; None where torch did not note one.

    `names`: placeholder in the traced graph -> input.
    """
    symbols: dict[str, int] = {}  # torch's symbol -> size
    environment: Any = None
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.name not in names or not hasattr(value, "shape"):
            continue
        environment = environment or getattr(getattr(value, "fake_mode", None), "shape_env", None)
        for axis, size in enumerate(value.shape):
            symbol = signature.symbol_of(names[node.name], axis)
            if symbol is not None and symbol in at and str(size).isidentifier():
                symbols[str(size)] = at[symbol]
    for guard in getattr(environment, "guards", ()):
        free = {str(s): s for s in getattr(guard.expr, "free_symbols", ())}
        frame = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        if frame is None or not free or not free.keys() <= symbols.keys() or is_library(frame.filename):
            continue
        if guard.expr.subs({s: symbols[n] for n, s in free.items()}) == False:  # noqa: E712 - a sympy truth value
            return f"{PurePath(frame.filename).name}:{frame.lineno} in {frame.name}"
    return None
