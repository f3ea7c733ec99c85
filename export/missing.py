"""Everything that keeps operators from being exported, in one message, with what to write for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from ..symbolic import registry, translate
from ..symbolic.adopt import has_fake
from .operator_origin import import_lines

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["refuse_complex", "refuse_missing", "refuse_unmapped"]

_FAKE = "no fake kernel (the rule for its output's shape and dtype)"


@dataclass(slots=True)
class _Report:
    """What is said of each operator, and the file that the user can make of it."""

    texts: list[str] = field(default_factory=list)
    imports: dict[str, None] = field(default_factory=dict)
    blocks: list[str] = field(default_factory=list)

    def add(self, overload: Any, where: str | None, *, fake: bool, declaration: bool) -> None:
        """An operator that lacks a fake kernel, a declaration, or both."""
        op = registry.by_overload(overload)
        lines = [f"{_schema_text(overload)}{_at(where)}"]
        gaps = [_FAKE] * fake + ["no declaration"] * declaration
        lines += [f"    ({k}) it has {gap}" for k, gap in enumerate(gaps, 1)]
        if fake and op is not None and op.custom_op is not None:  # made by @operator: its file is the place
            function = getattr(op.reference, "__name__", "op")
            place = f"in {PurePath(op.source).name}, " if op.source else ""
            lines[-1] += f"; {place}below `def {function}`, write:"
            lines += [f"          {line}" for line in _fake_text(overload, f"@{function}.fake")]
        elif fake:
            self._place(overload, _fake_text(overload, f'@torch.library.register_fake("{overload.name()}")'))
        if declaration:
            self._place(overload, _adopt_text(overload))
        self.texts.append("\n".join(lines))

    def _place(self, overload: Any, lines: list[str]) -> None:
        self.imports.update(dict.fromkeys(import_lines(overload)))
        self.blocks.append("\n".join(lines))

    def refuse(self) -> None:
        """Raise ExportError if there is anything to say."""
        if not self.texts:
            return
        count = "one operator" if len(self.texts) == 1 else f"{len(self.texts)} operators"
        file = ""
        if self.blocks:
            head = "\n".join(["import torch", "import deployops", *self.imports])
            file = (
                "\nPut this into a file and pass it: --ops FILE.py (in Python: import it before the export):\n\n"
                + "\n\n".join([head, *self.blocks])
                + "\n"
            )
        raise ExportError(
            f"{count} cannot be exported yet:\n" + "\n".join(f"  {t}" for t in self.texts) + file
        )


def refuse_missing(called: Mapping[Any, str | None], opset: int) -> None:
    """Raise ExportError naming every operator without a fake kernel or a declaration.

    `called` maps torch overloads to the line that calls each first.
    """
    from .graph.onnx_functions import has_function

    report = _Report()
    for overload, where in called.items():
        declaration = registry.by_overload(overload) is None and not has_function(overload, opset)
        fake = not has_fake(overload)
        if fake or declaration:
            report.add(overload, where, fake=fake, declaration=declaration)
    report.refuse()


def refuse_unmapped(program: ExportedProgram, opset: int) -> None:
    """Raise ExportError naming every operator of a traced program that nothing translates."""
    from .graph.translation import unmapped, user_frame

    report = _Report()
    for overload, node in unmapped(program, lambda o: registry.by_overload(o) is not None):
        if overload.namespace == "aten" and overload._schema.is_mutable:
            continue  # functionalised before it is translated
        where = user_frame(node)
        if overload.namespace in ("aten", "prims"):
            report.texts.append(
                f"{overload}{_at(where)}: torch {_torch_version()} has no ONNX translation for this operator of its own.\n"
                "    Write that step with other operators, or as an operator of yours (@deployops.operator)"
            )
        else:
            report.add(overload, where, fake=False, declaration=True)
    report.refuse()


def refuse_complex(program: ExportedProgram) -> None:
    """Raise ExportError naming declared operators that take or return complex tensors: as nodes they would get real ones."""
    from .graph.fake_values import is_complex
    from .graph.translation import user_frame

    found: dict[str, None] = {}
    for _, node, op, _ in translate.custom_calls(program):
        where = _at(user_frame(node))
        if is_complex(node.meta.get("val")):
            found[
                f"{op.overload.name()} returns a complex tensor{where}\n    Return torch.view_as_real(y) from it"
            ] = None
        if any(is_complex(argument.meta.get("val")) for argument in node.all_input_nodes):
            found[
                f"{op.overload.name()} takes a complex tensor{where}\n    Give it torch.view_as_real(x)"
            ] = None
    if found:
        raise ExportError(
            "a custom node cannot carry complex tensors: the exported model has a last dim of 2 in their place, real and "
            "imaginary part:\n" + "\n".join(f"  - {line}" for line in found)
        )


def _at(where: str | None) -> str:
    return f", called at {where}" if where else ""


def _schema_text(overload: Any) -> str:
    """The schema, with floats as people write them (1e-05)."""
    return re.sub(r"-?\d+\.\d+(e[-+]?\d+)?", lambda m: repr(float(m[0])), str(overload._schema))


def _fake_text(overload: Any, decorator: str) -> list[str]:
    arguments = overload._schema.arguments
    first = next((a.name for a in arguments if "Tensor" in str(a.type)), "x")
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in arguments)
    count = len(overload._schema.returns)
    if not count:
        body = "return None"
    elif count == 1:
        body = f"return torch.empty_like({first})  # the shape and dtype of the result"
    else:
        empty = ", ".join([f"torch.empty_like({first})"] * count)
        body = f"return {empty}  # shapes and dtypes"
    note = "  # it writes into its arguments: nothing more to say" if writes and not count else ""
    return [decorator, f"def _({_parameters(arguments)}):", f"    {body}{note}"]


def _parameters(arguments: Any) -> str:
    """As Python writes them, defaults and the star of keyword-only ones included."""
    parts = []
    for a in arguments:
        if a.kwarg_only and "*" not in parts:
            parts.append("*")
        parts.append(f"{a.name}={a.default_value!r}" if a.has_default_value() else a.name)
    return ", ".join(parts)


def _adopt_text(overload: Any) -> list[str]:
    from ..symbolic.onnx_names import free_type

    name = str(overload.name())
    namespace, _, short = name.partition("::")
    parameters = ", ".join(["op", *(a.name for a in overload._schema.arguments)])
    return [
        f'op = deployops.adopt("{name}", onnx="{namespace}::{free_type(short.split(".")[0])}")',
        "# @op.body  # optional: standard ONNX operators, so that runtimes without your kernel run it too",
        f"# def _({parameters}):",
        "#     return op.Identity(...)",
    ]


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
