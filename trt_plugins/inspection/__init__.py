"""What of an ONNX model would fail in TensorRT, or run otherwise than meant; read, and nothing run or loaded.

`check.py` collects the findings; each other file finds one kind: plugins that a node does not find, attributes that the
plugin reads as something else, element types, standard operators that the parser lacks, what an engine needs besides,
libraries that do not load. `tensorrt_limits.py` reads what is known of each TensorRT. No TensorRT is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "Checked": ".check",
    "TensorRTLimits": ".tensorrt_limits",
    "check_model": ".check",
    "limits_for": ".tensorrt_limits",
}

__all__ = ["Checked", "TensorRTLimits", "check_model", "limits_for"]

if TYPE_CHECKING:
    from .check import Checked as Checked
    from .check import check_model as check_model
    from .tensorrt_limits import TensorRTLimits as TensorRTLimits
    from .tensorrt_limits import limits_for as limits_for


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
