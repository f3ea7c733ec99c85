"""Graph passes whose time grows with the graph and no faster.

torch's own optimiser ends in a pattern rewriter that takes minutes on a deep model. These passes leave out
the patterns and keep what every model needs: constants folded, nothing computed twice, nothing unused.
The result is the same for the same model, byte for byte.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...symbolic.node_source import SOURCE_KEY
from .rewrites import simplify

if TYPE_CHECKING:
    import onnx_ir as ir

_log = logging.getLogger(__name__)

__all__ = ["RANDOM", "SOURCE_KEY", "optimize", "strip_metadata"]

OpType = tuple[str, str]  # domain, operator

RANDOM: frozenset[OpType] = frozenset(
    ("", name)
    for name in (
        "Bernoulli",
        "Dropout",  # in training mode; in eval mode it is folded away before
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)
"""Standard operators that give another result each time."""

# Larger tensors are not folded: the sum of two embeddings is not worth a third in the file.
_FOLD_INPUT_ELEMENTS = 8192
_FOLD_OUTPUT_ELEMENTS = 512 * 512
# Attributes with larger tensors are not compared; constants are initializers by then.
_COMPARE_BYTES = 1024


def optimize(model: ir.Model, *, stateful: frozenset[OpType] = frozenset()) -> None:
    """Fold constants and remove what is redundant, in place. Names of inputs and outputs stay.

    Args:
        stateful: custom operators, as (domain, operator), of which two equal calls may differ: those that
            draw random numbers or keep state. They are never merged. The standard ones are known.
    """
    import onnx_ir.passes.common as common

    output_names = [output.name for output in model.graph.outputs]
    kept_apart = _with_functions(model, RANDOM | stateful)
    _fold_constants(model, kept_apart)
    common.RemoveUnusedNodesPass()(model)
    simplify(model)
    for graph in model.graphs():
        _merge_equal_nodes(graph, kept_apart)  # constants above all, before each becomes an initializer
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.LiftSubgraphInitializersToMainGraphPass()(model)
    _merge_initializers(model.graph)
    for graph in model.graphs():
        _merge_equal_nodes(graph, kept_apart)
    common.RemoveUnusedNodesPass()(model)
    common.OutputFixPass()(model)
    for output, name in zip(model.graph.outputs, output_names, strict=True):
        output.name = name
    common.NameFixPass()(model)


def strip_metadata(model: ir.Model) -> None:
    """Remove what torch notes on graph, nodes and values: paths of this machine, shapes of this run.

    Each node keeps the name of the module that it comes from, under `SOURCE_KEY`.
    """
    graphs: list[Any] = [*model.graphs(), *model.functions.values()]
    for graph in graphs:
        graph.metadata_props.clear()
        graph.doc_string = None
        for value in [*graph.inputs, *graph.outputs, *getattr(graph, "initializers", {}).values()]:
            _strip(value)
        for node in graph:
            source = node.metadata_props.get(SOURCE_KEY) or _source(node)
            node.metadata_props.clear()
            node.doc_string = None
            if source:
                node.metadata_props[SOURCE_KEY] = source
            for value in node.outputs:
                _strip(value)


def _strip(value: ir.Value) -> None:
    value.metadata_props.clear()
    value.doc_string = None


def _source(node: ir.Node) -> str | None:
    """The innermost module of torch's scopes, `['', 'encoder', 'encoder.norm1', 'layer_norm']`."""
    import ast

    try:
        scopes = ast.literal_eval(node.metadata_props.get("pkg.torch.onnx.name_scopes", "[]"))
    except (SyntaxError, ValueError):
        return None
    # The last is the operator; torch names nodes that belong to no module with a leading underscore.
    modules = [scope for scope in scopes[:-1] if isinstance(scope, str) and scope and scope[0] != "_"]
    return modules[-1] if modules else None


def _with_functions(model: ir.Model, stateful: frozenset[OpType]) -> frozenset[OpType]:
    """`stateful`, and the model-local functions that call one of them."""
    found = set(stateful)
    calls = {
        (function.domain, function.name): {(node.domain, node.op_type) for node in function.all_nodes()}
        for function in model.functions.values()
    }
    while new := {name for name, called in calls.items() if name not in found and called & found}:
        found |= new
    return frozenset(found)


def _fold_constants(model: ir.Model, kept_apart: frozenset[OpType]) -> None:
    from onnxscript.optimizer._constant_folding import FoldConstantsPass

    from .logs import quiet

    def should_fold(node: ir.Node) -> bool | None:
        if (node.domain, node.op_type) in kept_apart:
            return False
        return False if _would_double(node) else None  # None: by size

    class Folder(FoldConstantsPass):
        def process_node(self, node: ir.Node, *rest: Any, **named: Any) -> Any:
            try:
                return super().process_node(node, *rest, **named)
            except Exception:  # onnxscript's rules have gaps: the node stays as it is
                _log.debug("%s (%s) is not folded", node.name, node.op_type, exc_info=True)
                return None

    with quiet("onnxscript.optimizer._constant_folding"):
        Folder(
            shape_inference=any(map(_splits_by_computed_sizes, model.graph.all_nodes())),
            input_size_limit=_FOLD_INPUT_ELEMENTS,
            output_size_limit=_FOLD_OUTPUT_ELEMENTS,
            should_fold=should_fold,
        )(model)


def _splits_by_computed_sizes(node: ir.Node) -> bool:
    """A split whose number of parts only shape inference tells; without it a sequence stays in the file."""
    if node.op_type != "SplitToSequence" or node.domain or len(node.inputs) < 2:
        return False
    sizes = node.inputs[1]
    producer = sizes.producer() if sizes is not None else None
    return producer is not None and producer.op_type != "Constant"


def _would_double(node: ir.Node) -> bool:
    """A Transpose of a weight that others use too, a tied one: folded, the file would hold it twice."""
    weight = node.inputs[0] if node.op_type == "Transpose" and node.domain == "" else None
    if weight is None or not weight.is_initializer() or len(weight.uses()) < 2:
        return False
    return any(use.node.op_type != "Transpose" for use in weight.uses())


def _merge_initializers(graph: ir.Graph) -> None:
    """One initializer for equal weights, tied ones above all; the first name stays."""
    seen: dict[tuple[Any, ...], list[ir.Value]] = {}
    for value in list(graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or value.is_graph_input() or value.is_graph_output() or tensor.dtype.is_string():
            continue
        array = tensor.numpy()
        # The ends tell almost all apart, so that few tensors are read whole.
        ends = (array.flat[:32].tobytes(), array.flat[-32:].tobytes())
        key = (tensor.dtype, tuple(tensor.shape), ends)
        alike = seen.setdefault(key, [])
        for other in alike:
            assert other.const_value is not None
            if array.tobytes() == other.const_value.numpy().tobytes():
                value.replace_all_uses_with(other)
                assert value.name is not None
                del graph.initializers[value.name]
                break
        else:
            alike.append(value)


def _merge_equal_nodes(graph: ir.Graph, kept_apart: frozenset[OpType]) -> None:
    """Common subexpressions: of equal nodes on equal inputs, the first is kept."""
    seen: dict[tuple[Any, ...], ir.Node] = {}
    for node in graph:
        if (node.domain, node.op_type) in kept_apart or any(
            output.is_graph_output() for output in node.outputs
        ):
            continue
        attributes = _comparable_attributes(node.attributes.values())
        if attributes is None:
            continue
        used = tuple(output.name != "" for output in node.outputs)  # an omitted output is not there to use
        key = (*node.op_identifier(), used, tuple(map(id, node.inputs)), attributes)
        first = seen.setdefault(key, node)
        if first is not node:
            for mine, other in zip(node.outputs, first.outputs, strict=True):
                other.shape = other.shape or mine.shape
                mine.replace_all_uses_with(other)
            graph.remove(node, safe=True)


def _comparable_attributes(attributes: Iterable[ir.Attr]) -> tuple[Any, ...] | None:
    """Attributes as a key that is equal exactly when they are; None where that cannot be told cheaply."""
    key = []
    for attribute in attributes:
        convert = None if attribute.is_ref() else _COMPARABLE.get(attribute.type.name)
        value = None if convert is None else convert(attribute.value)
        if value is None:
            return None
        key.append((attribute.name, attribute.type.name, value))
    return tuple(sorted(key))


def _floats(values: Iterable[float]) -> bytes:
    return b"".join(struct.pack("<d", value) for value in values)  # tells 0.0 from -0.0, and finds NaN equal


def _tensor(value: ir.TensorProtocol) -> tuple[Any, ...] | None:
    if value.dtype.is_string() or value.nbytes > _COMPARE_BYTES:
        return None
    return (value.dtype.name, tuple(value.shape), value.tobytes())


# By type: 1 and 1.0 are equal in Python.
_COMPARABLE: dict[str, Callable[[Any], Any]] = {
    "FLOAT": lambda value: _floats([value]),
    "FLOATS": _floats,
    "INT": int,
    "INTS": tuple,
    "STRING": str,
    "STRINGS": tuple,
    "TENSOR": _tensor,
}
