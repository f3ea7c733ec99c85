"""What a model must at least move and compute on inputs of known sizes: for each node, and fused as a whole.

Shapes come from ONNX's shape inference with the sizes of the sample put in. A custom node counts as its body: that in the
file, else that of its declaration; a node without a body counts its bytes alone. The whole is a fused lower bound: inputs,
weights and outputs once, and nothing of what passes between nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...symbolic.graph_inspection.domains import is_custom
from .cost import Cost, cost, is_view
from .graph_shapes import element_type, infer_shapes, value_shapes
from .values import Value

if TYPE_CHECKING:
    import onnx

__all__ = ["ModelCost", "NodeCost", "model_cost"]

# Initializers up to this many bytes go into shape inference with their data: shapes, axes, splits.
_SMALL = 4096


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Of one node of the main graph. `dtype`: what it computes in. `cost`: None where its shapes are not known."""

    name: str
    op_type: str
    domain: str
    dtype: str
    cost: Cost | None

    @property
    def title(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Of a model as a whole, and its nodes in their order, those left out that only rename or are constant.

    Attributes:
        read, written: bytes of inputs and weights, and of outputs.
        flops: by the dtype they are computed in.
        uncounted: kinds of nodes whose operations, or shapes, are not known: the whole is at least what is counted.
    """

    read: int
    written: int
    flops: Mapping[str, int]
    nodes: tuple[NodeCost, ...]
    uncounted: tuple[str, ...] = field(default=())


def model_cost(model: onnx.ModelProto, inputs: Mapping[str, Value]) -> ModelCost:
    """The cost of one run on inputs of these types and shapes; the model's external data need not be loaded.

    Raises:
        KeyError: an input of the graph is missing.
    """
    slim = _bound(model, inputs)
    _know_declared(slim)
    values = value_shapes(slim)
    constants = _constants(slim.graph)
    bodies = _Bodies(slim)
    nodes: list[NodeCost] = []
    flops: dict[str, int] = {}
    uncounted: dict[str, None] = {}
    for node in slim.graph.node:
        if is_view(node.op_type) or (node.input and all(n in constants or not n for n in node.input)):
            continue
        given = [values.get(n) if n else None for n in node.input]
        made = [values.get(n) if n else None for n in node.output]
        unknown = any(values.get(n) is None for n in (*node.input, *node.output) if n)
        found = None if unknown else cost(node.op_type, given, made, _attributes(node))
        if found is not None and is_custom(node.domain):
            found = bodies.cost(node, given, found)
        of = NodeCost(node.name, node.op_type, node.domain, _dtype(given, made), found)
        nodes.append(of)
        if found is None or not found.counted:
            uncounted[of.title] = None
        if found is not None and found.flops:
            flops[of.dtype] = flops.get(of.dtype, 0) + found.flops
    given_bytes = sum(v.size for v in inputs.values())
    weights = sum(_weight_bytes(slim.graph, values))
    written = sum(v.size for o in slim.graph.output if (v := values.get(o.name)) is not None)
    return ModelCost(given_bytes + weights, written, flops, tuple(nodes), tuple(uncounted))


def _bound(model: onnx.ModelProto, inputs: Mapping[str, Value]) -> onnx.ModelProto:
    """The model without its weights' data, with the sample's sizes for its own names of them."""
    import onnx

    slim = onnx.ModelProto()
    slim.ir_version = model.ir_version
    slim.opset_import.extend(model.opset_import)
    slim.functions.extend(model.functions)
    graph = slim.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    stored = {t.name for t in model.graph.initializer}
    for tensor in model.graph.initializer:
        kept = graph.initializer.add()
        if tensor.ByteSize() <= _SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.CopyFrom(tensor)
            continue
        kept.name, kept.data_type = tensor.name, tensor.data_type
        kept.dims.extend(tensor.dims)
        kept.data_location = onnx.TensorProto.EXTERNAL  # says that there are no data here
        kept.external_data.add(key="location", value="weights")
    sizes: dict[str, int] = {}
    for value in model.graph.input:
        copied = graph.input.add()
        copied.CopyFrom(value)
        if value.name in stored and value.name not in inputs:
            continue
        dims = copied.type.tensor_type.shape.dim
        known = inputs[value.name].shape
        for dim, size in zip(dims, known, strict=False):
            if dim.dim_param:
                sizes[dim.dim_param] = size
        del dims[:]
        copied.type.tensor_type.shape.SetInParent()
        for size in known:
            dims.add(dim_value=size)
    for values, into in ((model.graph.value_info, graph.value_info), (model.graph.output, graph.output)):
        for value in values:
            copied = into.add()
            copied.CopyFrom(value)
            for dim in copied.type.tensor_type.shape.dim:
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]
                elif not dim.HasField("dim_value"):
                    dim.Clear()
    return slim


def _know_declared(model: onnx.ModelProto) -> None:
    """Shape inference and bodies for declared operators whose body is not in the file."""
    import onnx
    import onnx_ir as ir

    from ...errors import DeclarationError
    from ...symbolic import functions, registry, schema

    local = {(f.domain, f.name) for f in model.functions}
    wanted = {
        (n.domain, n.op_type)
        for n in model.graph.node
        if is_custom(n.domain) and (n.domain, n.op_type) not in local
    }
    declared = {key: op for key in sorted(wanted) if (op := registry.by_onnx_name(*key)) is not None}
    for (domain, op_type), op in declared.items():
        if not onnx.defs.has(op_type, domain):
            schema.register(op)
    if not any(op.body_function is not None for op in declared.values()):
        return
    try:
        typed = ir.from_proto(infer_shapes(model))
        functions.attach(typed, declared)
        with_bodies = ir.to_proto(typed)
    except (DeclarationError, KeyError, ValueError, onnx.shape_inference.InferenceError):
        return  # their bytes are counted all the same, and that their operations are not is said
    model.functions.extend(with_bodies.functions)
    overloads = {n.output[0]: n.overload for n in with_bodies.graph.node if n.output and n.overload}
    for node in model.graph.node:
        if node.output and node.output[0] in overloads:
            node.overload = overloads[node.output[0]]


def _constants(graph: onnx.GraphProto) -> set[str]:
    """Initializers, and what is computed of them alone: runtimes do that once, when they open the model."""
    given = {i.name for i in graph.input}
    found = {t.name for t in graph.initializer if t.name not in given}
    for node in graph.node:
        if node.op_type == "Constant" or (node.input and all(n in found or not n for n in node.input)):
            found.update(node.output)
    return found


def _weight_bytes(graph: onnx.GraphProto, values: Mapping[str, Value]) -> Iterator[int]:
    """Bytes of each weight that a run reads: of a table that rows are picked from, the rows."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in dict.fromkeys(node.input):
            readers.setdefault(name, []).append(node)
    inputs = {i.name for i in graph.input}
    for tensor in graph.initializer:
        if tensor.name in inputs:
            continue  # the caller may give it, and then it is counted there
        size = values[tensor.name].size
        by = readers.get(tensor.name, [])
        if by and all(n.op_type in ("Gather", "GatherND") and n.input[0] == tensor.name for n in by):
            picked = [values.get(n.output[0]) for n in by]
            yield min(size, sum(size if v is None else v.size for v in picked))
        else:
            yield size


class _Bodies:
    """The operations of custom nodes, from their bodies; nodes that are alike are looked at once."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._local = {(f.domain, f.name) for f in model.functions}
        self._known: dict[Any, int | None] = {}

    def cost(self, node: onnx.NodeProto, given: list[Value | None], outside: Cost) -> Cost:
        """The node's own bytes, and the operations of its body."""
        if (node.domain, node.op_type) not in self._local:
            return Cost(outside.read, outside.written, 0, counted=False)
        attributes = tuple(a.SerializeToString(deterministic=True) for a in node.attribute)
        key = (node.domain, node.op_type, node.overload, tuple(given), attributes)
        if key not in self._known:
            self._known[key] = self._flops(node, given)
        flops = self._known[key]
        return Cost(outside.read, outside.written, flops or 0, counted=flops is not None)

    def _flops(self, node: onnx.NodeProto, given: list[Value | None]) -> int | None:
        import onnx
        import onnx.inliner

        alone = onnx.ModelProto(ir_version=self._model.ir_version)
        alone.opset_import.extend(self._model.opset_import)
        alone.functions.extend(self._model.functions)
        alone.graph.name = "body"
        alone.graph.node.add().CopyFrom(node)
        for name, value in {n: v for n, v in zip(node.input, given, strict=True) if v is not None}.items():
            info = onnx.helper.make_tensor_value_info(name, element_type(value.dtype), value.shape)
            alone.graph.input.append(info)
        for name in node.output:
            alone.graph.output.add(name=name)
        try:
            expanded = onnx.inliner.inline_local_functions(alone)
        except Exception:  # a body that calls itself, or what is not there
            return None
        values = value_shapes(expanded)
        total = 0
        constants = _constants(expanded.graph)
        for inner in expanded.graph.node:
            if is_view(inner.op_type) or (inner.input and all(n in constants or not n for n in inner.input)):
                continue
            of = cost(
                inner.op_type,
                [values.get(n) if n else None for n in inner.input],
                [values.get(n) if n else None for n in inner.output],
                _attributes(inner),
            )
            if of is None or not of.counted or any(values.get(n) is None for n in inner.output if n):
                return None
            total += of.flops
        return total


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    import onnx

    plain = (
        onnx.AttributeProto.INT,
        onnx.AttributeProto.INTS,
        onnx.AttributeProto.STRING,
        onnx.AttributeProto.FLOAT,
    )
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.type in plain}


def _dtype(given: list[Value | None], made: list[Value | None]) -> str:
    """The element type that a node computes in: of its first input, or of its result where that is an index."""
    types = [v.dtype for v in (*given, *made) if v is not None]
    return next((t for t in types if "float" in t or t == "double"), types[0] if types else "")
