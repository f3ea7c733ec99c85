"""Small rewrites, each exact for every input that the original accepts.

A rule looks at one node and those right before it. It returns a value that equals the node's output, or
None. Nothing is searched, so that the time is that of one walk over the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["simplify"]

# Slice takes an end beyond the axis for its end; torch writes the largest integer, some tools int32's.
_FAR = 2**31 - 1


def simplify(model: ir.Model) -> None:
    """Apply the rules to every node of the model, in order, in place."""
    for graph in model.graphs():
        for node in graph:
            rule = _RULES.get(node.op_type) if node.domain == "" else None
            if rule is None or node.outputs[0].is_graph_output():
                continue
            equal = rule(node)
            if equal is not None:
                equal.shape = equal.shape or node.outputs[0].shape
                node.outputs[0].replace_all_uses_with(equal)
                graph.remove(node, safe=True)


def _slice(node: ir.Node) -> ir.Value | None:
    """Slice(x, 0, end of the axis) is x."""
    starts, ends, steps = _ints(node, 1), _ints(node, 2), _ints(node, 4)
    if len(node.inputs) > 4 and node.inputs[4] is not None and (steps is None or set(steps) != {1}):
        return None
    whole = starts is not None and ends is not None and set(starts) == {0} and min(ends) >= _FAR
    return node.inputs[0] if whole else None


def _transpose(node: ir.Node) -> ir.Value | None:
    """Transpose(Transpose(x)) is x where the second undoes the first."""
    before = _producer(node, "Transpose")
    second, first = _perm(node), _perm(before)
    if before is None or second is None or first is None:
        return None
    undone = [first[axis] for axis in second] == list(range(len(first)))
    return before.inputs[0] if undone else None


def _squeeze(node: ir.Node) -> ir.Value | None:
    """Squeeze(Unsqueeze(x, axes), axes) is x."""
    return _undone(node, "Unsqueeze")


def _unsqueeze(node: ir.Node) -> ir.Value | None:
    """Unsqueeze(Squeeze(x, axes), axes) is x."""
    return _undone(node, "Squeeze")


def _undone(node: ir.Node, inverse: str) -> ir.Value | None:
    before = _producer(node, inverse)
    if before is None:
        return None
    second, first = _ints(node, 1), _ints(before, 1)
    # Both name axes of the tensor of the higher rank, also when counted from the end.
    return before.inputs[0] if second is not None and second == first else None


def _reshape(node: ir.Node) -> ir.Value | None:
    """A dim as a vector: Reshape(Squeeze(Shape(x)[i : i + 1]), [-1]) is the slice itself."""
    if _ints(node, 1) == [-1]:
        squeeze = _producer(node, "Squeeze")
        if squeeze is not None and len(squeeze.inputs) == 1 and _is_one_dim(squeeze.inputs[0]):
            return squeeze.inputs[0]
    _infer_only_dynamic_dim(node)
    return None


def _infer_only_dynamic_dim(node: ir.Node) -> None:
    """Reshape(x, Concat(dim, constants)) becomes Reshape(x, [-1, constants]).

    With one unknown, and no constant 0 or -1, the number of elements leaves only one value for it.
    """
    import numpy as np
    import onnx_ir as ir

    concat = _producer(node, "Concat", 1)
    if concat is None or node.graph is None:
        return
    sizes: list[int] = []
    for part in concat.inputs:
        known = _constant(part)
        if known is not None and known.ndim == 1:
            sizes += known.tolist()
        elif part is not None and _is_one_dim(part):
            sizes.append(-1)
        else:
            return
    if sizes.count(-1) == 1 and min(size for size in [*sizes, 1] if size != -1) > 0:
        tensor = ir.tensor(np.array(sizes, dtype=np.int64))
        constant = ir.node("Constant", inputs=[], attributes={"value": tensor})
        constant.outputs[0].const_value = tensor
        constant.outputs[0].name = f"{node.outputs[0].name}_sizes"
        constant.metadata_props.update(node.metadata_props)
        node.graph.insert_before(node, constant)
        node.replace_input_with(1, constant.outputs[0])


def _is_one_dim(value: ir.Value | None) -> bool:
    """Whether `value` is a vector that holds exactly one size of a tensor."""
    node = value.producer() if value is not None else None
    if node is None or (node.domain, node.op_type) != ("", "Shape") or node.inputs[0] is None:
        return False
    shape = node.inputs[0].shape
    start = node.attributes["start"].as_int() if "start" in node.attributes else 0
    end = node.attributes["end"].as_int() if "end" in node.attributes else None
    return shape is not None and end is not None and 0 <= start < len(shape) and end == start + 1


def _producer(node: ir.Node, op_type: str, index: int = 0) -> ir.Node | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    before = value.producer() if value is not None else None
    return before if before is not None and (before.domain, before.op_type) == ("", op_type) else None


def _perm(node: ir.Node | None) -> list[int] | None:
    return list(node.attributes["perm"].as_ints()) if node is not None and "perm" in node.attributes else None


def _ints(node: ir.Node, index: int) -> list[int] | None:
    """The constant integers that input `index` holds; None where absent or computed."""
    array = _constant(node.inputs[index]) if index < len(node.inputs) else None
    return None if array is None or array.dtype.kind != "i" or not array.size else array.reshape(-1).tolist()


def _constant(value: ir.Value | None) -> Any:
    if value is None or value.const_value is None or value.is_graph_input() or value.const_value.size > 64:
        return None
    return value.const_value.numpy()


_RULES: dict[str, Callable[[ir.Node], ir.Value | None]] = {
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
