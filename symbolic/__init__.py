"""What an operator means: its declaration, and all that follows from it for torch and ONNX.

Nothing here knows of model files, runtimes or kernels; those packages ask this one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "Draw": ".samples",
    "Operator": ".operator",
    "Sample": ".samples",
    "adopt": ".adopt",
    "operator": ".operator",
    "symbolic_function": ".torchscript",
}

__all__ = ["Draw", "Operator", "Sample", "adopt", "operator", "symbolic_function"]

if TYPE_CHECKING:
    from .adopt import adopt as adopt
    from .operator import Operator as Operator
    from .operator import operator as operator
    from .samples import Draw as Draw
    from .samples import Sample as Sample
    from .torchscript import symbolic_function as symbolic_function


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name], __name__), name)
    globals()[name] = value  # the submodule `operator` has the same name as the decorator: the decorator wins
    return value
