"""A model file becomes a checked ONNX model: reading it safely, tracing, graph passes, checks, writing.

What operators mean is asked of `symbolic`; running the result beyond the checks is `validation`'s work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {"ExportedModel": ".result", "export_model": ".exporter", "inspect_model": ".inspect"}

__all__ = ["ExportedModel", "export_model", "inspect_model"]

if TYPE_CHECKING:
    from .exporter import export_model as export_model
    from .inspect import inspect_model as inspect_model
    from .result import ExportedModel as ExportedModel


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
