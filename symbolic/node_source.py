"""Where a node of an ONNX model comes from in the user's PyTorch model, as the file's metadata tell it.

Exporters call nodes `node_Conv_12` or `n0__3`, which nobody has written. `deployops export` notes the module at each node
(`SOURCE_KEY`), torch's own exporter the modules and the stack. One way to say it, for every command.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["SOURCE_KEY", "source_words"]

SOURCE_KEY = "deployops.source"
"""Metadata of a node: the module of the PyTorch model that it comes from, say `encoder.layers.3.norm1`."""

_SCOPES, _STACK = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
_READ = 20_000  # characters of an entry: those of a hostile file can be of any length
_SHOWN = 120
_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in ')
# Where code lies that is not the user's; generated code is nobody's line either.
_NOT_THEIRS = re.compile(
    r"[/\\](site|dist)-packages[/\\]|^<|[/\\]lib[/\\]python3\.\d+[/\\]|[/\\]torch[/\\]nn[/\\]"
)


def source_words(node: onnx.NodeProto) -> str:
    """`encoder.conv1, net.py:12`: the module path, and file and line; either alone, or "" where the file tells neither."""
    entries = {p.key: p.value[:_READ] for p in node.metadata_props if isinstance(p.value, str)}
    module = entries.get(SOURCE_KEY) or _innermost(entries.get(_SCOPES, ""))
    words = ", ".join(part for part in (module, _line(entries.get(_STACK, ""))) if part)
    words = "".join(c if c.isprintable() else "?" for c in words)
    return words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"


def _innermost(scopes: str) -> str:
    """Of `['', 'encoder', 'encoder.norm1', 'layer_norm']` the module: the last is the operator."""
    try:
        found = ast.literal_eval(scopes) if scopes else []
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ""
    # torch names nodes that belong to no module with a leading underscore
    modules = (
        [s for s in found[:-1] if isinstance(s, str) and s and s[0] != "_"] if isinstance(found, list) else []
    )
    return modules[-1] if modules else ""


def _line(stack: str) -> str:
    frames = [f for f in _FRAME.finditer(stack) if not _NOT_THEIRS.search(f["file"])]
    return f"{PurePath(frames[-1]['file']).name}:{frames[-1]['line']}" if frames else ""
