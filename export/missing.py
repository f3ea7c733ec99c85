"""Everything that keeps operators from being exported, in one message, with what to write for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from ..symbolic import registry
from ..symbolic.adopt import has_fake

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["refuse_missing", "refuse_unmapped"]


def refuse_missing(called: Mapping[Any, str | None], opset: int) -> None:
    """Raise ExportError naming every operator without a fake kernel or a declaration.

    `called` maps torch overloads to the line that calls each first.
    """
    from .graph.onnx_functions import has_function

    texts = []
    for overload, where in called.items():
        gaps = []
        if registry.by_overload(overload) is None and not has_function(overload, opset):
            gaps.append(("no declaration", _adopt_text(overload)))
        if not has_fake(overload):
            gaps.insert(
                0, ("no fake kernel (the rule for its output's shape and dtype)", _fake_text(overload))
            )
        if gaps:
            texts.append(_describe(overload, where, gaps))
    _raise(texts)


def refuse_unmapped(program: ExportedProgram, opset: int) -> None:
    """Raise ExportError naming every operator of a traced program that nothing translates."""
    from .graph.translation import unmapped, user_frame

    texts = []
    for overload, node in unmapped(program, lambda o: registry.by_overload(o) is not None):
        if overload.namespace == "aten" and overload._schema.is_mutable:
            continue  # functionalised before it is translated
        where = user_frame(node)
        if overload.namespace in ("aten", "prims"):
            texts.append(
                f"{overload}{_at(where)}: torch {_torch_version()} has no ONNX translation for this operator of its own.\n"
                "    Write that step with other operators, or as an operator of yours (@deployops.operator)"
            )
        else:
            texts.append(_describe(overload, where, [("no declaration", _adopt_text(overload))]))
    _raise(texts)


def _raise(texts: list[str]) -> None:
    if texts:
        count = "one operator" if len(texts) == 1 else f"{len(texts)} operators"
        hint = (
            "\nPut the lines into a file and pass it: --ops FILE.py"
            if any("write:" in t for t in texts)
            else ""
        )
        raise ExportError(f"{count} cannot be exported yet:\n" + "\n".join(f"  {t}" for t in texts) + hint)


def _describe(overload: Any, where: str | None, gaps: list[tuple[str, str]]) -> str:
    lines = [f"{overload._schema}{_at(where)}"]
    for number, (what, text) in enumerate(gaps, 1):
        lines.append(f"    ({number}) it has {what}; write:")
        lines += [f"          {line}" for line in text.splitlines()]
    return "\n".join(lines)


def _at(where: str | None) -> str:
    return f", called at {where}" if where else ""


def _qualname(overload: Any) -> str:
    return str(overload.name())


def _fake_text(overload: Any) -> str:
    names = ", ".join(a.name for a in overload._schema.arguments)
    first = next((a.name for a in overload._schema.arguments if "Tensor" in str(a.type)), "x")
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in overload._schema.arguments)
    count = len(overload._schema.returns)
    if not count:
        body = "return None"
    elif count == 1:
        body = f"return torch.empty_like({first})  # the shape and dtype of the result"
    else:
        body = (
            "return "
            + ", ".join(f"torch.empty_like({first})" for _ in range(count))
            + "  # shapes and dtypes"
        )
    note = "  # it writes into its arguments: nothing more to say" if writes and not count else ""
    return f'@torch.library.register_fake("{_qualname(overload)}")\ndef _({names}):\n    {body}{note}'


def _adopt_text(overload: Any) -> str:
    from ..symbolic.operator import _camel_case

    namespace, _, short = _qualname(overload).partition("::")
    return f'deployops.adopt("{_qualname(overload)}", onnx="{namespace}::{_camel_case(short.split(".")[0])}")'


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
