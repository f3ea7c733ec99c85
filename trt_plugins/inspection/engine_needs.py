"""What an engine needs besides the model: a range for every size that varies, and memory for sizes that the data decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...symbolic import dims
from ...symbolic.graph_inspection.findings import FAILS, NOTE, Finding
from ...symbolic.graph_inspection.standard_types import as_text
from ...symbolic.nested_graphs import graphs_within

if TYPE_CHECKING:
    import onnx

__all__ = ["engine_findings"]

_SHOWN = 8
_MOST_LEVELS = 24  # in the sources of the parser, 10.0 to 10.10, and seen with TensorRT-RTX 1.7
# Places of inputs whose values are sizes.
_SIZES = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (3,),
    "Slice": (1, 2, 4),
    "Tile": (1,),
    "TopK": (1,),
}


def engine_findings(graph: onnx.GraphProto) -> Iterator[Finding]:
    """Of the main graph's inputs and outputs."""
    if not graph.output:
        what = "the graph has no outputs, and no engine is built without"
        yield Finding(FAILS, "no-outputs", "", what, "Export the model with what it is to give")
    if _is_deeper(graph, _MOST_LEVELS):
        what = f"graphs stand inside of more than {_MOST_LEVELS} others (If, Loop, Scan), which the parser refuses"
        yield Finding(FAILS, "too-deep", "", what, "Export the model with fewer branches inside of branches")
    weights = {t.name for t in graph.initializer}
    inputs = [v for v in graph.input if v.name not in weights]
    varying = []
    for value in inputs:
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and not kind.HasField("shape"):
            what = f"the file does not tell the rank of the input {as_text(value.name)!r}: TensorRT takes it for a single number"
            yield Finding(FAILS, "rank-unknown", "", what, "Export with the input's dims, fixed or named")
        sizes = [as_text(d.dim_param) or "?" for d in kind.shape.dim if not d.HasField("dim_value")]
        if sizes:
            varying.append(f"{as_text(value.name)} ({', '.join(sizes[:_SHOWN])})")
    if varying:
        more = f" and {len(varying) - _SHOWN} more" if len(varying) > _SHOWN else ""
        what = f"an engine needs an optimisation profile: these inputs have sizes that vary: {'; '.join(varying[:_SHOWN])}{more}"
        advice = (
            "deployops engine build makes one of the ranges declared at export (n=1..64), or takes --profile"
        )
        yield Finding(NOTE, "profile", "", what, advice)
    yield from _size_inputs(graph, {v.name for v in inputs})
    yield from _decided_by_data(graph, inputs)


def _is_deeper(graph: onnx.GraphProto, levels: int) -> bool:
    """Whether there are nodes below so many levels of graphs; those inside of functions are not looked at."""
    level = [graph]
    for _ in range(levels + 1):
        level = [inner for outer in level for node in outer.node for inner in graphs_within(node)]
    return any(g.node for g in level)


def _size_inputs(graph: onnx.GraphProto, inputs: set[str]) -> Iterator[Finding]:
    found = dict.fromkeys(
        as_text(node.input[k])
        for node in graph.node
        for k in _SIZES.get(node.op_type, ())
        if node.domain in ("", "ai.onnx")
        if k < len(node.input) and node.input[k] in inputs
    )
    if found:
        names = ", ".join(list(found)[:_SHOWN])
        what = f"the values of {names} are sizes: their profile needs values, not shapes"
        yield Finding(
            NOTE, "shape-input", "", what, "Make them constants, or give their values in the profile"
        )


def _decided_by_data(graph: onnx.GraphProto, inputs: list[onnx.ValueInfoProto]) -> Iterator[Finding]:
    given = [as_text(d.dim_param) for v in inputs for d in v.type.tensor_type.shape.dim if d.dim_param]
    known = {name for text in given for name in dims.names(text)}
    for value in graph.output:
        names = {
            name
            for d in value.type.tensor_type.shape.dim
            if d.dim_param
            for name in dims.names(as_text(d.dim_param))
        }
        if names - known:
            what = (
                f"the output {as_text(value.name)!r} has a size that no input has ({', '.join(sorted(names - known)[:_SHOWN])}): "
                "where the data decides it, whoever runs the engine must give an output allocator"
            )
            yield Finding(NOTE, "data-dependent", "", what, "Give an upper bound, or an IOutputAllocator")
