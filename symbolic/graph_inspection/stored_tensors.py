"""Weights of a model that do not fit what they say of themselves: more or fewer bytes than their dims need, negative dims, an
index outside of a sparse tensor, two of one name.

Nothing is loaded: bytes are counted, and of a side file its size is asked for. The rules are ONNX Runtime's. Of a weight that
nothing reads it minds the element type alone: what else is wrong with one is a note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ..nested_graphs import nested_graphs, nested_nodes
from .findings import FAILS, NOTE, Finding, where
from .node_uses import NodeUse
from .standard_types import as_text

if TYPE_CHECKING:
    import onnx

__all__ = ["tensor_findings"]

_AGAIN = "Copy the model again with its side files, or export it anew"
_MOST_INDICES = 1_000_000  # of a sparse tensor, that are looked at
# Bits of an element as it is stored in bytes, by the names of TensorProto.DataType.
_BITS = {
    "FLOAT": 32, "UINT8": 8, "INT8": 8, "UINT16": 16, "INT16": 16, "INT32": 32, "INT64": 64, "BOOL": 8, "FLOAT16": 16,
    "DOUBLE": 64, "UINT32": 32, "UINT64": 64, "COMPLEX64": 64, "COMPLEX128": 128, "BFLOAT16": 16, "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8, "FLOAT8E5M2": 8, "FLOAT8E5M2FNUZ": 8, "FLOAT8E8M0": 8, "UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4,
    "UINT2": 2, "INT2": 2,
}  # fmt: skip
# The field that holds the numbers where they are not stored as bytes, and how many of its entries make an element.
_FIELDS = {
    "FLOAT": ("float_data", 1), "COMPLEX64": ("float_data", 2), "DOUBLE": ("double_data", 1), "COMPLEX128": ("double_data", 2),
    "INT64": ("int64_data", 1), "UINT32": ("uint64_data", 1), "UINT64": ("uint64_data", 1), "STRING": ("string_data", 1),
}  # fmt: skip


def tensor_findings(model: onnx.ModelProto, folder: Path | None = None) -> Iterator[Finding]:
    """Of the initializers and the Constant nodes of all graphs, functions included, in time linear in their number.

    `folder`: where side files lie; None: their sizes are not looked at.
    """
    for graph in nested_graphs(model.graph):
        yield from _graph_findings(graph, folder)
    for function in model.functions:
        yield from _constant_findings(nested_nodes(function.node), folder)


def _graph_findings(graph: onnx.GraphProto, folder: Path | None) -> Iterator[Finding]:
    read = {o.name for o in graph.output}
    for node in nested_nodes(graph.node):  # graphs within may read it too
        read.update(node.input)
    seen: dict[str, onnx.TensorProto] = {}
    for tensor in graph.initializer:
        name = as_text(tensor.name)
        yield from _fault_findings(tensor, f"the initializer {name!r}", "", tensor.name in read, folder)
        other = seen.setdefault(tensor.name, tensor)
        if other is not tensor:
            alike = other.data_type == tensor.data_type and other.dims == tensor.dims
            what = f"two initializers are named {name!r}" + (
                "; ONNX Runtime takes the last"
                if alike
                else ", and their sizes or element types are not the same"
            )
            yield Finding(
                NOTE if alike else FAILS, "initializer-twice", "", what, "Give each a name of its own"
            )
    for sparse in graph.sparse_initializer:
        fault = _sparse_fault(sparse)
        if fault:
            name = as_text(sparse.values.name)
            yield Finding(FAILS, "sparse-data", "", f"the sparse initializer {name!r} {fault}", _AGAIN)
    yield from _constant_findings(graph.node, folder)


def _constant_findings(nodes: Iterator[onnx.NodeProto], folder: Path | None) -> Iterator[Finding]:
    for node in nodes:
        if node.op_type not in ("Constant", "ConstantOfShape"):
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield from _fault_findings(
                    attribute.t, f"the value of {node.op_type}", _where(node), True, folder
                )
                if node.op_type == "ConstantOfShape" and list(attribute.t.dims) not in ([], [1]):
                    what = f"the value of ConstantOfShape has the dims {_dims(attribute.t.dims)}; it must be one number"
                    yield Finding(FAILS, "tensor-data", _where(node), what, "Export again")
            if attribute.HasField("sparse_tensor") and (fault := _sparse_fault(attribute.sparse_tensor)):
                yield Finding(
                    FAILS, "sparse-data", _where(node), f"the sparse value of Constant {fault}", _AGAIN
                )


def _where(node: onnx.NodeProto) -> str:
    result = as_text(next(iter(node.output), ""))
    return where(NodeUse("", "", None, name=as_text(node.name), result=result, node=node))


def _fault_findings(
    tensor: onnx.TensorProto, title: str, place: str, is_read: bool, folder: Path | None
) -> Iterator[Finding]:
    kind = _kind(tensor.data_type)
    if kind is None:
        what = f"{title} has the element type {tensor.data_type}, which is none"
        yield Finding(FAILS, "tensor-data", place, what, _AGAIN)
        return
    fault = _data_fault(tensor, kind, folder)
    if fault:
        unread = "" if is_read else ". Nothing reads it"
        yield Finding(FAILS if is_read else NOTE, "tensor-data", place, f"{title} {fault}{unread}", _AGAIN)


def _kind(number: int) -> str | None:
    """The name of an element type that a tensor can have."""
    import onnx

    try:
        name = str(onnx.TensorProto.DataType.Name(number))
    except ValueError:
        return None
    return None if name == "UNDEFINED" else name


def _data_fault(tensor: onnx.TensorProto, kind: str, folder: Path | None) -> str:
    """What the data have that the dims do not need, or the other way about; "" where they fit."""
    import onnx

    if any(dim < 0 for dim in tensor.dims):
        return f"has the dims {_dims(tensor.dims)}; none can be negative"
    count = prod(tensor.dims)
    bits = _BITS.get(kind)
    needs = "" if bits is None else f"{(count * bits + 7) // 8:,}"
    dims = f"of dims {_dims(tensor.dims)} and type {kind.lower()}"
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return "" if bits is None else _external_fault(tensor, (count * bits + 7) // 8, dims, folder)
    if tensor.HasField("raw_data") and (tensor.raw_data or kind == "STRING"):
        if bits is None:
            return "is of strings, and has bytes in the place of them"
        found = len(tensor.raw_data)
        return "" if found == (count * bits + 7) // 8 else f"{dims} has {found:,} bytes; it needs {needs}"
    field, each = _FIELDS.get(kind, ("int32_data", 1))
    wanted = count * each
    if field == "int32_data" and bits is not None and bits < 8:  # several of them are packed into a byte
        wanted = (count * bits + 7) // 8
    found = len(getattr(tensor, field))
    return "" if found == wanted else f"{dims} has {found:,} numbers; it needs {wanted:,}"


def _external_fault(tensor: onnx.TensorProto, needed: int, dims: str, folder: Path | None) -> str:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    numbers = {}
    for key in ("offset", "length"):
        text = as_text(entries.get(key, "0"))
        if not re.fullmatch("[0-9]{1,19}", text):
            return f"lies in a side file with the {key} {text[:40]!r}, which is no size"
        numbers[key] = int(text)
    if numbers["length"] and numbers["length"] != needed:
        return f"{dims} has {numbers['length']:,} bytes of its side file; it needs {needed:,}"
    if folder is None:
        return ""
    try:
        size = (folder / entries.get("location", "")).stat().st_size
    except (OSError, ValueError):
        return "lies in a side file that cannot be read"
    end = numbers["offset"] + needed
    return "" if size >= end else f"{dims} ends at byte {end:,} of its side file, which has {size:,}"


def _sparse_fault(sparse: onnx.SparseTensorProto) -> str:
    """What ONNX Runtime refuses when it makes a dense tensor of it; "" for nothing."""
    dims, indices, values = list(sparse.dims), sparse.indices, sparse.values
    if not dims or any(dim <= 0 for dim in dims) or prod(dims) >= 1 << 62:
        return f"has the dims {_dims(dims)}"
    for tensor, title in ((values, "values"), (indices, "indices")):
        kind = _kind(tensor.data_type)
        if kind is None:
            return f"has {title} without an element type"
        if fault := _data_fault(tensor, kind, None):
            return f"has {title} that do not fit: the tensor {fault}"
    count = prod(values.dims)
    if list(indices.dims) not in ([count], [count, len(dims)]):
        return f"has {count:,} values, and indices of the dims {_dims(indices.dims)}"
    found = _indices(indices)
    bounds = [prod(dims)] if len(indices.dims) == 1 else dims
    for k, index in enumerate(found[: _MOST_INDICES * len(bounds)]):
        if not 0 <= index < bounds[k % len(bounds)]:
            return f"has the index {index} where {bounds[k % len(bounds)]:,} is the size"
    return ""


def _indices(tensor: onnx.TensorProto) -> list[int]:
    """Those that are stored in the file as ONNX Runtime mostly finds them: int64."""
    import onnx
    from numpy import frombuffer

    if tensor.data_type != onnx.TensorProto.INT64 or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return []
    if tensor.raw_data:
        return [int(i) for i in frombuffer(tensor.raw_data, "<i8")]
    return list(tensor.int64_data)


def _dims(dims: object) -> str:
    text = str(list(dims))  # type: ignore[call-overload]
    return text if len(text) <= 80 else text[:79] + "…"
