"""Attributes of nodes as Python values, and what a node is called in a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["attributes_of", "kind_of"]


def attributes_of(attributes: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
    """Numbers, texts (as bytes) and lists of them, by name; tensors and graphs are left out."""
    import onnx

    plain = (
        onnx.AttributeProto.INT,
        onnx.AttributeProto.INTS,
        onnx.AttributeProto.FLOAT,
        onnx.AttributeProto.FLOATS,
        onnx.AttributeProto.STRING,
        onnx.AttributeProto.STRINGS,
    )
    found = {}
    for attribute in attributes:
        if attribute.type in plain:
            value = onnx.helper.get_attribute_value(attribute)
            found[attribute.name] = list(value) if not isinstance(value, int | float | bytes) else value
    return found


def kind_of(node: onnx.NodeProto) -> str:
    """MatMul, acme::Swish."""
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)
