"""What becomes of custom nodes in the file: with bodies, alone, or expanded into standard operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ExportError
from ..symbolic import functions
from .result import Note

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..symbolic.operator import Operator

__all__ = ["CustomOps", "choose_mode", "expand", "forget_stand_ins", "undeclared_nodes"]

CustomOps = Literal["function", "node", "standard"]


def choose_mode(
    asked: CustomOps | None, used: Mapping[Any, Operator], undeclared: Sequence[str], notes: list[Note]
) -> Literal["function", "mixed", "node", "standard"]:
    """How the file holds custom nodes: as asked; else with bodies, those that have one (`mixed`: others have none).

    Raises ExportError where bodies are asked for that are not there.
    """
    bare = [op.onnx_name for op in used.values() if op.body_function is None] + list(undeclared)
    if asked in ("function", "standard") and bare:
        adopt = (
            " (first adopt the autograd.Function that emits it: deployops.adopt(CLASS, onnx='domain::Type'))"
            if undeclared
            else ""
        )
        raise ExportError(
            f"--custom-ops {asked} needs a body of standard ONNX operators for {', '.join(bare)}: add one with "
            f"@op.body{adopt}, or export with --custom-ops node"
        )
    with_body = [op.onnx_name for op in used.values() if op.body_function is not None]
    if asked is None and bare and with_body:
        notes.append(
            Note(
                "info",
                f"exported without a body: {', '.join(bare)}, which has none: only a runtime with its kernel runs the file. With "
                f"a body: {', '.join(sorted(with_body))}; --custom-ops node leaves bodies out",
            )
        )
        return "mixed"
    if asked is None and bare:
        notes.append(
            Note(
                "info",
                f"exported without bodies, because {', '.join(bare)} has none: only a runtime with its kernel runs it",
            )
        )
    return asked or ("node" if bare else "function")


def undeclared_nodes(model: ir.Model, used: Mapping[Any, Operator]) -> list[str]:
    """Custom nodes that no declaration stands behind: those that a `symbolic` method emits."""
    found = {
        f"{n.domain}::{n.op_type}"
        for n in model.graph.all_nodes()
        if n.domain not in ("", "ai.onnx")
        and (n.domain, n.op_type) not in used
        and n.op_identifier() not in model.functions
    }
    return sorted(found)


def forget_stand_ins(model: ir.Model) -> None:
    """Values inside an `autograd.Function`'s symbolic carry a stand-in type: let inference find the true one."""
    for node in model.graph.all_nodes():
        known = node.metadata_props.pop("deployops.symbolic", None)
        for value, mark in zip(node.outputs, (known or "").split(","), strict=False):
            if mark == "unknown":
                value.type = value.shape = None


def expand(model: ir.Model, used: Mapping[tuple[str, str], Operator]) -> None:
    """No custom node is left: bodies in their place."""
    import onnx_ir.passes.common as common

    functions.attach(model, used)
    common.InlinePass()(model)
    for domain, _ in used:
        model.opset_imports.pop(domain, None)
