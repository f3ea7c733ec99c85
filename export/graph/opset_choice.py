"""The smallest opset whose operators take the dtypes of a model: Conv takes bfloat16 from 22 on, for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...symbolic import dtypes

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["sufficient_opset"]


def sufficient_opset(model: ir.Model, opset: int, choices: Iterable[int]) -> tuple[int | None, list[str]]:
    """The smallest of `choices` from `opset` on whose operators take the model's dtypes, and what `opset` refuses.

    The latter as `Conv (bfloat16)`. The opset is None where no choice does. Unknown dtypes count as taken.
    """
    nodes = [n for n in model.graph.all_nodes() if n.domain == ""]
    refused = [n for n in nodes if not _takes(n, opset)]
    names = sorted({_name(n, opset) for n in refused})
    for version in (v for v in choices if v >= opset):
        if all(_takes(n, version) for n in refused):
            return version, names
    return None, names


def _takes(node: ir.Node, opset: int) -> bool:
    return not _strangers(node, opset)


def _name(node: ir.Node, opset: int) -> str:
    return f"{node.op_type} ({', '.join(dict.fromkeys(_strangers(node, opset)))})"


def _strangers(node: ir.Node, opset: int) -> list[str]:
    """The dtypes that the operator's schema does not allow where they stand."""
    import onnx_ir as ir

    found = []
    for values, allowed in zip((node.inputs, node.outputs), _allowed(node.op_type, opset), strict=True):
        for k, value in enumerate(values):
            if value is None or not isinstance(value.type, ir.TensorType) or not allowed:
                continue
            texts = allowed[min(k, len(allowed) - 1)]
            try:
                name, text = dtypes.name_of(int(value.type.dtype)), dtypes.onnx_text(int(value.type.dtype))
            except KeyError:  # a type that torch has not
                continue
            if text not in texts:
                found.append(name)
    return found


@cache
def _allowed(op_type: str, opset: int) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """The type texts that each input and output may have; nothing where `opset` has no such operator."""
    import onnx

    if not onnx.defs.has(op_type, max_inclusive_version=opset):
        return [], []
    schema = onnx.defs.get_schema(op_type, opset)
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}

    def texts(formal: Sequence[Any]) -> list[frozenset[str]]:
        return [constraints.get(p.type_str, frozenset((p.type_str,))) for p in formal]

    return texts(schema.inputs), texts(schema.outputs)
