"""What the manifests of all libraries tell of an operator in the same words: its kernels' dtypes, and its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..symbolic.attributes import encode_attribute
from .signature import kernel_rows

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["attribute_entries", "signature_entries"]


def signature_entries(op: Operator) -> list[dict[str, Any]]:
    """Each combination of dtypes that has a kernel: dtype names by input and by output."""
    return [{"inputs": dict(row.inputs), "outputs": dict(row.outputs)} for row in kernel_rows(op)]


def attribute_entries(op: Operator) -> list[dict[str, Any]]:
    """Name, ONNX type, whether a node must have it, and the default; in the order of the declaration, counts last."""
    return [
        {
            "name": a.name,
            "type": a.onnx_type,
            "required": a.required and not a.optional,
            "default": None if a.default is None else encode_attribute(op.name, a, a.default),
        }
        for a in op.interface.attributes
    ] + [
        {"name": name, "type": "INT", "required": True, "default": None}
        for name in op.interface.count_attributes
    ]
