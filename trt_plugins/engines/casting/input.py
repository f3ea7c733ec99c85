"""A model before it is cast: tensors that hold what they say, functions put where they are called, within bounds.

onnx's own tools trust both: a tensor of the wrong size ends in numpy's errors, and thirty functions that each call the next
one twice become a billion nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ....errors import ModelFileError, UsageError
from ....symbolic.graph_inspection.expansion import MOST_NODES, expansion, too_large
from ....symbolic.nested_graphs import nested_nodes
from ..source_model import graphs_of
from .plugin_dtypes import PluginDtypes
from .values import STANDARD

if TYPE_CHECKING:
    import onnx

__all__ = ["check_tensors", "inlined"]

_CAST_LIKE = 15  # the opset that has it


def check_tensors(model: onnx.ModelProto) -> None:
    """See that every tensor is loaded and has as many values as its dims say.

    Raises UsageError for a tensor in a side file, ModelFileError for one of another size.
    """
    import onnx

    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise UsageError(
                f"the weight {tensor.name:.200} is in a side file and not loaded: load the model with onnx.load(path)"
            )
        wrong = _wrong_size(tensor)
        if wrong:
            dims = "×".join(map(str, tensor.dims)) or "one value"
            raise ModelFileError(
                f"the model is damaged: the tensor {tensor.name:.200} is to be {dims}, and has {wrong}. Export it again"
            )


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in graphs_of(model):
        if hasattr(graph, "initializer"):  # a function has none
            yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                yield from attribute.tensors
                if attribute.HasField("t"):
                    yield attribute.t


def _wrong_size(tensor: onnx.TensorProto) -> str:
    """What is there instead of the values; empty where they are. Types of less than a byte are left to onnx."""
    from onnx import helper

    if any(d < 0 for d in tensor.dims):
        return "a negative dim"
    count = math.prod(tensor.dims)
    try:
        size = int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
        listed = getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type))
    except (KeyError, ValueError, TypeError, AttributeError):
        return ""  # an unknown type: inference says so
    if tensor.data_type in _packed() or tensor.data_type == tensor.STRING:
        return ""
    if tensor.HasField("raw_data"):
        there = len(tensor.raw_data)
        return "" if there == count * size else f"{there:,} bytes for values of {size}"
    there = len(listed)
    parts = 2 if tensor.data_type in (tensor.COMPLEX64, tensor.COMPLEX128) else 1
    return "" if there == count * parts else f"{there:,} values"


def _packed() -> set[int]:
    import onnx

    names = ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
    kinds: Any = onnx.TensorProto
    return {int(getattr(kinds, name)) for name in names if hasattr(kinds, name)}


# --- functions ---------------------------------------------------------------------------------------------------


def inlined(
    light: onnx.ModelProto, plugins: Mapping[tuple[str, str], PluginDtypes]
) -> tuple[onnx.ModelProto, dict[tuple[str, str], frozenset[int] | None]]:
    """Functions without a plugin put where they are called; of the others, the inputs that some call leaves out.

    Raises ModelFileError where functions call themselves, become too many nodes, or have a body of another opset that means
    something else there.
    """
    from onnx import inliner

    functions = [(f.domain, f.name) for f in light.functions]
    _check_expanded(light, plugins)
    light = _in_one_opset(light, plugins)
    if any(key not in plugins for key in functions):
        light = inliner.inline_selected_functions(light, [key for key in functions if key not in plugins])
    optional: dict[tuple[str, str], frozenset[int] | None] = {}
    for function in light.functions:
        key = (function.domain, function.name)
        if _opset(function) < _CAST_LIKE:
            optional[key] = None
            continue
        missing: set[int] = set()
        for graph in graphs_of(light):
            for node in graph.node:
                if (node.domain, node.op_type) == key:
                    given = [*node.input, *[""] * (len(function.input) - len(node.input))]
                    missing |= {k for k, name in enumerate(given) if not name}
        optional[key] = frozenset(missing)
    return light, optional


def _opset(holder: onnx.ModelProto | onnx.FunctionProto) -> int:
    return next((o.version for o in holder.opset_import if o.domain in STANDARD), 0)


def _check_expanded(light: onnx.ModelProto, plugins: Mapping[tuple[str, str], PluginDtypes]) -> None:
    """Count the nodes that there will be; in the bodies of functions with a plugin too, which stay in the file."""
    found = expansion(light, lambda node: (node.domain, node.op_type) in plugins)
    if found.recursive:
        raise ModelFileError(
            f"the model is invalid: its function {found.recursive[0]} calls itself. Export it again"
        )
    if max(found.nodes, found.largest_nodes) > MOST_NODES:
        what, advice = too_large(found)
        raise ModelFileError(f"{what}. {advice}")


def _in_one_opset(light: onnx.ModelProto, plugins: Mapping[tuple[str, str], PluginDtypes]) -> onnx.ModelProto:
    """Bodies that say another opset than the model, and mean the same in the model's, say the model's."""
    version = _opset(light)
    others = [
        f for f in light.functions if (f.domain, f.name) not in plugins and _opset(f) not in (0, version)
    ]
    if not others:
        return light
    if not version:
        raise ModelFileError(
            "the model is invalid: it has functions of ONNX's operators and names no opset. Export it again"
        )
    changed = type(light)()
    changed.CopyFrom(light)
    for function in changed.functions:
        own = _opset(function)
        if (function.domain, function.name) in plugins or own in (0, version):
            continue
        for node in nested_nodes(function.node):
            if node.domain in STANDARD and _since(node.op_type, own) != _since(node.op_type, version):
                raise ModelFileError(
                    f"the function {function.domain}::{function.name} is of opset {own} and the model of opset {version}, and "
                    f"{node.op_type:.200} is not the same in both. Export the model with functions of its own opset, or "
                    "without functions"
                )
        for entry in function.opset_import:
            if entry.domain in STANDARD:
                entry.version = version
    return changed


def _since(operator: str, opset: int) -> int:
    from onnx import defs

    try:
        return int(defs.get_schema(operator, opset, "").since_version)
    except defs.SchemaError:
        return -1
