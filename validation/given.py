"""What the user gave: the file, and what a model file brings along."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import UsageError

__all__ = ["existing", "stored_inputs", "title_of", "unnamed_dims"]

StrPath = str | os.PathLike[str]


def existing(onnx: StrPath) -> Path:
    path = Path(onnx)
    if not path.is_file():
        raise UsageError(f"{path}: no such file" if not path.exists() else f"{path}: not a file")
    return path


def stored_inputs(model: Any) -> Any:
    """The example inputs that a model file brought along."""
    args, kwargs = getattr(model, "example_args", None), getattr(model, "example_kwargs", None)
    if args and kwargs:
        raise UsageError("the file's example inputs are positional and by keyword: give them as samples")
    return args or kwargs or None


def title_of(model: Any) -> str:
    file = getattr(model, "file", None)
    if file is not None and hasattr(model, "example_args"):
        return str(getattr(file, "path", file))
    if type(model).__name__ in ("ExportedProgram", "GraphModule"):
        return "a torch.export program"
    inner = getattr(model, "original_name", None)  # a ScriptModule
    return str(inner or getattr(model, "__name__", type(model).__name__))


def unnamed_dims(graph: Any) -> list[str]:
    """What the open dims are whose names a tool made up: `torch.export` keeps names only where the user gave some."""
    found = {
        dim.dim_param: f"dimension {axis} of the input {value.name}"
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param == f"{value.name}_dim_{axis}"
    }
    if not found:
        return []
    listed = ", ".join(f"{name} is {what}" for name, what in found.items())
    return [f"{listed}: the model file has no name for it. To name it, give `--input` to the export"]
