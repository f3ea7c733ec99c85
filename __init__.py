"""deployops: PyTorch models with custom operators, taken to production.

Declare an operator once; export a checked ONNX model; validate it against the original.
The names below are the whole façade. They load on first use, so that `import deployops` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# name -> module that defines it
_FACADE = {
    "DeployOpsError": ".errors",
    "adopt": ".symbolic.adopt",
    "build_engine": ".trt_plugins.engines.build",
    "compile_library": ".ort_ops.library",
    "export_model": ".export.exporter",
    "inspect_model": ".export.inspect",
    "operator": ".symbolic.operator",
    "ort_library": ".ort_ops.library",
    "session": ".ort_ops.session",
    "validate": ".validation.files",
}

__all__ = [*sorted(_FACADE), "__version__"]

if TYPE_CHECKING:
    from .errors import DeployOpsError as DeployOpsError
    from .export import export_model as export_model
    from .export import inspect_model as inspect_model
    from .ort_ops.library import compile_library as compile_library
    from .ort_ops.library import ort_library as ort_library
    from .ort_ops.session import session as session
    from .symbolic import adopt as adopt
    from .symbolic import operator as operator
    from .trt_plugins.engines.build import build_engine as build_engine
    from .validation import validate as validate


def __getattr__(name: str) -> Any:
    if name not in _FACADE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FACADE[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
