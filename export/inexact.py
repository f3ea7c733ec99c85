"""Operators whose ONNX form in torch is known to differ from PyTorch at some values: said, because no test may hit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .result import Note

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["inexact_notes"]

_FLOORED = frozenset(
    (
        "floor_divide",
        "floor_divide.Scalar",
        "remainder",
        "remainder.Scalar",
        "remainder.Tensor",
        "floor_divide.Tensor",
    )
)


def inexact_notes(program: ExportedProgram) -> list[Note]:
    """One warning per kind and line of the model."""
    from .graph.translation import user_frame

    notes = []
    for node in program.graph.nodes:
        text = _fault(node) if node.op == "call_function" else None
        if text is not None:
            where = user_frame(node)
            notes.append(Note("warning", text + (f"; at {where}" if where else "")))
    return list(dict.fromkeys(notes))


def _fault(node: torch.fx.Node) -> str | None:
    name = str(getattr(node.target, "name", lambda: "")()).removeprefix("aten::")
    floats = getattr(node.meta.get("val"), "dtype", None)
    is_float = floats is not None and floats.is_floating_point
    mode = node.kwargs.get("rounding_mode")
    if is_float and (name in _FLOORED or (name.startswith("div.") and mode == "floor")):
        return (
            "`//` and `%` on floats: ONNX floors the rounded quotient, PyTorch the exact one; where the quotient is close to "
            "an integer (0.3 // 0.1) the two differ by one step. Use integers, or torch.floor(a / b) on both sides"
        )
    if name == "scaled_dot_product_attention" and _dtype(_argument(node, 3, "attn_mask")) == "bool":
        return (
            "attention with a boolean mask: where a row is masked entirely, PyTorch gives 0 and the file an average of the "
            "values. Mask no row entirely, or use deployops' attention operator"
        )
    return None


def _argument(node: torch.fx.Node, position: int, name: str) -> Any:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name)


def _dtype(argument: Any) -> str:
    value = getattr(argument, "meta", {}).get("val")
    return str(getattr(value, "dtype", "")).removeprefix("torch.")
