"""TensorRT plugins from CUDA kernels: which operators can be carried, the C++ around them, the library, what it needs.

`library.compile_plugins` builds one `libdeployops_trt.so`; `cpp/` is the plugin itself, which a generated table makes
into each operator's; `headers` and `doctor` find what the machine has. `emulation` runs the kernels on the CPU.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_EXPORTS = {"PluginLibrary": ".library", "compile_plugins": ".library"}

__all__ = ["PluginLibrary", "compile_plugins"]

if TYPE_CHECKING:
    from .library import PluginLibrary as PluginLibrary
    from .library import compile_plugins as compile_plugins


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
