"""Standard nodes that the parser has no importer for, element types that it does not know, opsets that it is not made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.findings import FAILS, HURTS, NOTE, Finding, where
from ...symbolic.graph_inspection.node_uses import NodeUse, opset_versions
from ...symbolic.graph_inspection.standard_types import as_text, dtype_name, schema_at
from .tensorrt_limits import TensorRTLimits

if TYPE_CHECKING:
    import onnx

__all__ = [
    "OTHER_NAME",
    "means_another",
    "operator_findings",
    "opset_findings",
    "taken_for_standard",
    "type_findings",
    "unknown_operators",
]

_NEWEST = 1 << 20
_OTHERWISE = (
    "Write it with other operators (onnx.inliner does for those that ONNX defines by others), or declare an operator of "
    "your own with a plugin"
)


# The parser goes by a node's type alone. Of these domains it means to take the operators for its own ...
_PARSERS_OWN = ("", "ai.onnx", "trt", "TRT")
# ... but ONNX Runtime's Attention, say, is not ONNX's: of the types that both have, these mean the same.
_SAME_IN_BOTH = ("DequantizeLinear", "Gelu", "Pad", "QuantizeLinear", "Range", "Trilu")
OTHER_NAME = "Give the operator another ONNX name (`onnx=` in its declaration), and export the model again"


def means_another(domain: str, op_type: str) -> bool:
    """Whether a node means something else than the parser's own operator of that type, which it is taken for."""
    if domain == "com.microsoft":
        return op_type not in _SAME_IN_BOTH and schema_at(op_type, _NEWEST) is not None
    return domain not in _PARSERS_OWN


def taken_for_standard(title: str, op_type: str) -> str:
    """What becomes of such a node."""
    return f"{title} is taken for the standard operator {op_type}: TensorRT's parser looks at the name alone"


def operator_findings(uses: Sequence[NodeUse], limits: TensorRTLimits) -> Iterator[Finding]:
    """Nodes of standard operators that the parser has not; where its operators are known."""
    if not limits.exact:
        return
    for use in uses:
        if _is_missing(use, limits):
            what = f"{limits.title}'s parser has no {use.op_type}"
            yield Finding(FAILS, "operator-missing", where(use), what, _OTHERWISE)


def unknown_operators(uses: Sequence[NodeUse], limits: TensorRTLimits) -> Iterator[str]:
    """What of the standard operators could not be checked, one sentence each."""
    if limits.collected is None:
        yield f"standard operators: those that {limits.title} has were not collected"
    elif not limits.exact:
        counts = Counter(use.op_type for use in uses if _is_missing(use, limits))
        named = ", ".join(sorted(counts)[:10]) + (" and more" if len(counts) > 10 else "")
        yield (
            f"which standard operators {limits.title} has: held against {limits.collected}, the nearest older version that is "
            f"known" + (f", which lacks {named}" if counts else "")
        )


def _is_missing(use: NodeUse, limits: TensorRTLimits) -> bool:
    return (
        not use.domain and use.op_type not in limits.operators and schema_at(use.op_type, _NEWEST) is not None
    )


def opset_findings(model: onnx.ModelProto, limits: TensorRTLimits) -> Iterator[Finding]:
    """The model's opset outside of those that the parser is made for."""
    opset = opset_versions(model.opset_import).get("", 0)
    low, high = limits.opsets
    if limits.exact and opset and not low <= opset <= high:
        what = f"the model uses opset {opset}; {limits.title} is made for {low} to {high}, and reads it as if it were one of them"
        yield Finding(HURTS, "opset", "", what, f"Export with --opset {min(max(opset, low), high)}")


def type_findings(
    model: onnx.ModelProto, uses: Sequence[NodeUse], limits: TensorRTLimits
) -> Iterator[Finding]:
    """Element types that the parser does not know, or changes."""
    if limits.collected is None:
        return
    yield from _tensor_findings(model.graph, limits)
    doubles: list[NodeUse] = []
    given = {o.name for o in model.graph.output}
    for use in uses:
        strange = next((d for d in use.produces if d is not None and d not in limits.types), None)
        if strange is not None:
            yield _unknown(where(use), f"{use.title} makes {strange}", limits)
        if "float64" in use.produces or "float64" in use.inputs:
            doubles.append(use)
        inside = use.node is not None and any(
            d == "uint8" and n not in given for d, n in zip(use.produces, use.node.output, strict=False)
        )
        if inside and use.op_type != "Constant":
            what = f"{use.title} makes uint8, which TensorRT has for inputs and outputs of the model alone"
            yield Finding(
                FAILS, "uint8-inside", where(use), what, "Cast to int32, or to the type of the computation"
            )
    if doubles:
        more = f" and {len(doubles) - 1} more" if len(doubles) > 1 else ""
        what = (
            f"{limits.title} has no float64: it computes {where(doubles[0])}{more} in float32 without a word"
        )
        yield Finding(
            HURTS, "float64-as-float32", "", what, "Export the model in float32, and judge it there"
        )


def _tensor_findings(graph: onnx.GraphProto, limits: TensorRTLimits) -> Iterator[Finding]:
    weights = {t.name for t in graph.initializer}
    tensors = [
        *(
            (f"input {as_text(v.name)!r}", v.type.tensor_type.elem_type)
            for v in graph.input
            if v.name not in weights
        ),
        *((f"initializer {as_text(t.name)!r}", t.data_type) for t in graph.initializer),
    ]
    for place, number in tensors:
        dtype = dtype_name(number)
        if dtype is not None and dtype not in limits.types:
            yield _unknown("", f"the {place} is {dtype}", limits)
    for value in (*graph.input, *graph.output):
        if value.name not in weights and not value.type.HasField("tensor_type"):
            what = f"{as_text(value.name)!r} is no tensor ({value.type.WhichOneof('value') or 'no type'})"
            yield Finding(
                FAILS, "unknown-type", "", f"{what}: TensorRT takes and gives tensors alone", "Export again"
            )
    long = [
        v
        for v in (*graph.input, *graph.output)
        if v.type.tensor_type.elem_type == 7 and v.name not in weights
    ]
    if long and limits.takes_plugins_v3:
        names = ", ".join(repr(as_text(v.name)) for v in long[:5])
        what = (
            f"{names} {'is' if len(long) == 1 else 'are'} int64 in the engine too (32 bits before TensorRT 9)"
        )
        yield Finding(NOTE, "int64", "", what, "Bind 64-bit integers")


def _unknown(place: str, what: str, limits: TensorRTLimits) -> Finding:
    text = f"{what}, a type that {limits.title} does not know"
    return Finding(FAILS, "unknown-type", place, text, "Use another type")
