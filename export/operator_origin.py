"""Which Python module registers an operator with torch, and the line that imports it."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .user_code import is_library

__all__ = ["import_lines"]

_NATIVE = re.compile(r"\.(c|cc|cpp|cxx|cu|h|hpp|cuh)$", re.IGNORECASE)


def import_lines(overload: Any) -> list[str]:
    """Lines of Python after which torch knows the operator; a comment where nothing tells which.

    None are needed for an operator of a C++ library, which is loaded before, or of the running script.
    """
    name = str(overload.name())
    for file in _files(name):
        if _NATIVE.search(file):
            return []
        module = next((n for n, m in list(sys.modules.items()) if _is_file(m, file)), None)
        if module == "__main__":
            return []
        if module is not None:
            return _importing(module, Path(file), name)
    return [f"# import the module that registers {name} here"]


def _files(name: str) -> Iterator[str]:
    """Source files that torch notes for an operator, the likeliest first."""
    import torch
    from torch._library.custom_ops import _maybe_get_opdef

    definition = _maybe_get_opdef(name)
    if definition is not None:
        yield definition._init_fn.__code__.co_filename
    dump = torch._C._dispatch_dump(name)
    for file in re.findall(r"registered at (\S.*?):\d+", dump):
        if _NATIVE.search(file) or not is_library(file):
            yield file


def _is_file(module: Any, file: str) -> bool:
    known = getattr(module, "__file__", None)
    return isinstance(known, str) and (known == file or os.path.abspath(known) == os.path.abspath(file))


def _importing(module: str, file: Path, name: str) -> list[str]:
    line = f"import {module}  # registers {name}"
    found = None
    known = sys.modules.pop(module)  # a name in use is not looked for anew
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        pass
    finally:
        sys.modules[module] = known
    if found is not None and found.origin and os.path.abspath(found.origin) == os.path.abspath(file):
        return [line]
    folder = os.path.relpath(file.parent)
    return ["import sys", f"sys.path.insert(0, {folder!r})", line.replace(module, file.stem, 1)]
