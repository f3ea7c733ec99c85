"""What an operator means: its declaration, and all that follows from it for torch and ONNX.

Nothing here knows of runtimes or kernels, and of model files no more than their graphs (`graph_inspection`); those packages ask
this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# At once, unlike the rest: a submodule of the same name, imported later, would put itself in the function's
# place. These load neither torch nor onnx.
from .adopt import adopt
from .operator import Operator, operator

_EXPORTS = {
    "Draw": ".samples",
    "Sample": ".samples",
    "symbolic_function": ".torchscript",
}

__all__ = ["Draw", "Operator", "Sample", "adopt", "operator", "symbolic_function"]

if TYPE_CHECKING:
    from .samples import Draw as Draw
    from .samples import Sample as Sample
    from .torchscript import symbolic_function as symbolic_function


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name], __name__), name)
    globals()[name] = value
    return value
