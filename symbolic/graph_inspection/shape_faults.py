"""Nodes that shape inference refuses: an axis that is not there, sizes that do not fit, a stride of 0, a wrong equation.

ONNX's own inference is native code, and the model may be a stranger's. It therefore runs in a process of its own
(`shape_worker.py`), bounded in time and memory, and gets the graph without its weights. ONNX Runtime refuses what it refuses:
it runs the same functions, of its own copy of ONNX.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..nested_graphs import nested_nodes
from .findings import FAILS, Finding
from .standard_types import as_text

if TYPE_CHECKING:
    import onnx

__all__ = ["NOT_INFERRED", "Inferred", "infer"]

MOST_NODES = 50_000
MOST_BYTES = 64 << 20  # of the graph without its weights
LIMIT_S = 60
_SMALL = 4096  # bytes of a tensor whose values shape inference may want: sizes, axes
_MOST_FINDINGS = 1_000
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from deployops.symbolic.graph_inspection.shape_worker import main; main()"
)
_WHAT = "the shapes at the nodes"


@dataclass(frozen=True, slots=True)
class Inferred:
    """`not_checked`: what could not be looked at, one phrase each."""

    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()


NOT_INFERRED = Inferred()


def infer(model: onnx.ModelProto, *, limit_s: float = LIMIT_S) -> Inferred:
    """Infer the shapes of the main graph, its subgraphs and the functions that they call, node by node.

    Nothing is inferred of nodes with subgraphs themselves, of custom operators, and of nodes that read a value of unknown type.
    """
    count = sum(1 for _ in nested_nodes(model.graph.node)) + sum(len(f.node) for f in model.functions)
    if count > MOST_NODES:
        return Inferred(not_checked=(f"{_WHAT}: the model has {count:,}, and {MOST_NODES:,} are looked at",))
    content = _without_weights(model)
    if content is None:
        text = f"{_WHAT}: the graph has more than {MOST_BYTES >> 20} MiB without its weights"
        return Inferred(not_checked=(text,))
    path = json.dumps([entry for entry in sys.path if entry])
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _START, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    late = False
    try:
        printed, _ = process.communicate(content, timeout=limit_s)
    except subprocess.TimeoutExpired:
        late = True
        process.kill()
        printed, _ = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    return _read(printed, late, process.returncode, limit_s)


def _read(printed: bytes, late: bool, code: int, limit_s: float) -> Inferred:
    findings: list[Finding] = []
    at, done, partly = "", False, ""
    for line in printed.decode(errors="replace").splitlines():
        if line.startswith("@"):
            at = line[1:]
        elif line.startswith("{"):
            entry = json.loads(line)
            done |= "done" in entry
            partly = entry.get("partly", partly)
            if "what" in entry and len(findings) < _MOST_FINDINGS:
                advice = (
                    "Export again: every runtime works out shapes by the rules of ONNX, and refuses the node"
                )
                findings.append(Finding(FAILS, "shape", entry["where"], entry["what"], advice))
    if done:
        return Inferred(tuple(findings), (f"{_WHAT}: {partly}",) if partly else ())
    why = f"not done after {limit_s:g} s" if late else f"the process that infers them ended with {code}"
    return Inferred(tuple(findings), (f"{_WHAT}, all of them: {why}{f', at {at}' if at else ''}",))


def _without_weights(model: onnx.ModelProto) -> bytes | None:
    """The model as the worker wants it; None where it is too large."""
    import onnx

    slim = onnx.ModelProto(ir_version=model.ir_version)
    slim.opset_import.extend(model.opset_import)
    left = _fill(slim.graph, model.graph, MOST_BYTES)
    for function in model.functions:
        own = slim.functions.add(
            domain=as_text(function.domain), name=as_text(function.name), overload=as_text(function.overload)
        )
        own.input.extend(map(as_text, function.input))
        own.output.extend(map(as_text, function.output))
        own.opset_import.extend(function.opset_import)
        left = _fill_nodes(own.node, function.node, left)
        left -= sum(a.ByteSize() for a in function.attribute_proto) + sum(
            v.ByteSize() for v in function.value_info
        )
        if left < 0:
            return None
        own.attribute_proto.extend(function.attribute_proto)
        own.value_info.extend(function.value_info)
    return slim.SerializeToString() if left >= 0 else None


def _fill(own: onnx.GraphProto, graph: onnx.GraphProto, left: int) -> int:
    """Copy a graph; how many bytes are left of those that may be copied, negative where there were too few."""
    left -= sum(v.ByteSize() for values in (graph.input, graph.output, graph.value_info) for v in values)
    if left < 0:
        return left
    own.input.extend(graph.input)
    own.output.extend(graph.output)
    own.value_info.extend(graph.value_info)
    for tensor in graph.initializer:
        left -= _fill_tensor(own.initializer.add(), tensor)
    return _fill_nodes(own.node, graph.node, left)


def _fill_nodes(own: Any, nodes: Iterable[onnx.NodeProto], left: int) -> int:
    for node in nodes:
        size = node.ByteSize()
        if size <= _SMALL:
            left -= size
            own.add().CopyFrom(node)
        else:
            copy = own.add(
                op_type=as_text(node.op_type),
                domain=as_text(node.domain),
                name=as_text(node.name)[:200],
                overload=as_text(node.overload),
            )
            copy.input.extend(map(as_text, node.input))
            copy.output.extend(map(as_text, node.output))
            copy.metadata_props.extend(p for p in node.metadata_props if p.ByteSize() <= _SMALL)
            for attribute in node.attribute:
                left = _fill_attribute(copy.attribute.add(), attribute, left)
        if left < 0:
            return left
    return left


def _fill_attribute(own: onnx.AttributeProto, attribute: onnx.AttributeProto, left: int) -> int:
    own.name, own.type = as_text(attribute.name), attribute.type
    if attribute.HasField("t"):
        return left - _fill_tensor(own.t, attribute.t)
    if attribute.HasField("g"):
        return _fill(own.g, attribute.g, left)
    if attribute.graphs or attribute.tensors:
        return left  # no operator of ONNX has them
    left -= attribute.ByteSize()
    if left >= 0:
        own.CopyFrom(attribute)
    return left


def _fill_tensor(own: onnx.TensorProto, tensor: onnx.TensorProto) -> int:
    """Copy a tensor, with its values where they are few; without them it says that they lie elsewhere."""
    size = int(tensor.ByteSize())
    if size <= _SMALL and not tensor.external_data:
        own.CopyFrom(tensor)
        return size
    own.name, own.data_type = as_text(tensor.name), tensor.data_type
    own.dims.extend(tensor.dims)
    own.data_location = tensor.EXTERNAL
    return int(own.ByteSize())
