"""Types that the file states of its values: those that are none, and those that are not what a node makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.findings import FAILS, Finding, where
from ...symbolic.graph_inspection.node_uses import ModelUses
from ...symbolic.graph_inspection.standard_types import as_text
from ...symbolic.nested_graphs import nested_graphs

if TYPE_CHECKING:
    import onnx

__all__ = ["declared_type_findings"]

_MOST_LEVELS = 8  # of sequences in sequences; no runtime takes two


def declared_type_findings(model: onnx.ModelProto, uses: ModelUses) -> Iterator[Finding]:
    """Of inputs, outputs and the results of nodes; what the file states of other values is not read by the runtime."""
    for graph in nested_graphs(model.graph):
        made = {name for node in graph.node for name in node.output}
        values = [
            *(("input", v) for v in graph.input),
            *(("output", v) for v in graph.output),
            *(("value", v) for v in graph.value_info if v.name in made),
        ]
        for title, value in values:
            fault = _type_fault(value.type)
            if fault:
                what = f"the {title} {as_text(value.name)!r} has a type that is none: {fault}"
                yield Finding(
                    FAILS, "value-type", "", what, "Export the model again with the types of its values"
                )
    for other in uses.declared_otherwise:
        what = f"{other.use.title} makes {other.name!r} as {other.made}, and the file says that it is {other.declared}"
        yield Finding(
            FAILS, "type-declared", where(other.use), what, "Export again, or state the type that is made"
        )


def _type_fault(kind: onnx.TypeProto) -> str:
    """What is wrong; "" for nothing, and for a type that is not stated at all."""
    around = ""
    for _ in range(_MOST_LEVELS):
        word = kind.WhichOneof("value")
        if word is None:
            return f"{around} of nothing" if around else ""
        if word in ("tensor_type", "sparse_tensor_type"):
            return _element_fault(getattr(kind, word).elem_type)
        if word == "map_type":
            if fault := _element_fault(kind.map_type.key_type):
                return f"a map of which the keys have {fault}"
            around, kind = "a map", kind.map_type.value_type
        elif word == "sequence_type":
            if around == "a sequence":
                return "a sequence of sequences, which ONNX Runtime does not have"
            around, kind = "a sequence", kind.sequence_type.elem_type
        elif word == "optional_type":
            around, kind = "an optional", kind.optional_type.elem_type
        else:
            return ""
    return f"more than {_MOST_LEVELS} levels"


def _element_fault(number: int) -> str:
    import onnx

    if number == onnx.TensorProto.UNDEFINED:
        return "no element type"
    return "" if number in onnx.TensorProto.DataType.values() else f"the element type {number}"
