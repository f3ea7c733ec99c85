"""C++ and Python written from templates: what all templates have in common, and the names that generated code shows."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .cpp_types import identifier

if TYPE_CHECKING:
    import jinja2

    from ..symbolic.operator import Operator

__all__ = ["symbol_of", "template"]

_OURS = Path(__file__).resolve().parent / "templates"


@lru_cache
def _environment(folder: Path) -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # it is code, and what is pasted into it went through `literal` or `identifier`
    )


def template(name: str, folder: Path = _OURS) -> jinja2.Template:
    """A template of `folder`, by default `templates/` beside this file."""
    return _environment(folder).get_template(name)


def symbol_of(op: Operator, prefix: str, suffix: str = "") -> str:
    """The name of a C function for an operator, its own in a library that holds several: `a::b__c` and `a__b::c` are two."""
    distinct = hashlib.sha256(op.name.encode()).hexdigest()[:8]
    readable = identifier(op.name.replace("::", "__").replace(".", "__"))
    return f"deployops_{prefix}_{readable[:60]}_{distinct}_v{op.version}{suffix}"
