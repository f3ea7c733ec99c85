"""Declared operators in a `torch.export` graph -> ONNX nodes, one way for all of them.

`lower` replaces each call by torch's own placeholder for ONNX nodes (`torch.ops.onnx_symbolic._symbolic_multi_out`,
what `torch.onnx.ops.symbolic_multi_out` records), which every exporter of torch translates to a node as it
stands. Mutating operators (functionalised by `run_decompositions`), lists of tensors, empty lists and absent
optionals all pass through here. `finish` then writes the attributes, which the placeholder cannot carry exactly.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..errors import ExportError
from . import dtypes, registry
from .plugin_attributes import plugin_attributes

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch
    from torch.export import ExportedProgram

    from .operator import Operator

__all__ = ["Lowered", "custom_calls", "finish", "keep_absent_inputs", "lower"]

_KEY = "deployops.call"  # node metadata that leads from the ONNX node back to its call


@dataclass(slots=True)
class Lowered:
    """What `finish` needs: the operator and encoded attributes of every call, by its key."""

    calls: dict[str, tuple[Operator, Mapping[str, Any]]]

    @property
    def operators(self) -> dict[tuple[str, str], Operator]:
        """The operators that occur, by ONNX domain and type."""
        return {(op.domain, op.op_type): op for op, _ in self.calls.values()}


def custom_calls(
    program: ExportedProgram,
) -> Iterator[tuple[torch.fx.Graph, torch.fx.Node, Operator, Mapping[str, Any]]]:
    """Every call of a declared operator: its graph, node, operator, and arguments by name."""
    import torch

    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.op != "call_function":
                continue
            overload, arguments = node.target, None
            if str(node.target) in ("auto_functionalized_v2", "auto_functionalized"):
                overload, arguments = node.args[0], _functionalized_arguments(node)
            if not isinstance(overload, torch._ops.OpOverload):
                continue
            op = registry.by_overload(overload)
            if op is None:
                continue
            if arguments is None:
                arguments = dict(zip(op.interface.arguments, node.args, strict=False)) | dict(node.kwargs)
            yield module.graph, node, op, arguments


def _functionalized_arguments(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a mutating operator as torch's wrapper for it spells them."""
    overload, kwargs = node.args[0], dict(node.kwargs)
    bases = kwargs.get("_all_bases") or []
    arguments = {}
    for argument in overload._schema.arguments:  # type: ignore[union-attr]
        index = kwargs.get(f"_{argument.name}_base_index")
        if index is not None:
            if any(
                k.startswith(f"_{argument.name}_")
                and k not in (f"_{argument.name}_base_index", f"_{argument.name}_alias")
                for k in kwargs
            ):
                raise ExportError(
                    f"{overload}: `{argument.name}` is a view of another tensor; the operator writes into a part of "
                    "it. Give it a tensor of its own (`.clone()`) and write the result back"
                )
            arguments[argument.name] = bases[index]  # type: ignore[index]
        elif argument.name in kwargs:
            arguments[argument.name] = kwargs[argument.name]
    return arguments


def lower(program: ExportedProgram) -> Lowered:
    """Replace the calls of declared operators in place by placeholders for ONNX nodes.

    Mutating operators must have been functionalised (`run_decompositions`). Raises ExportError with all
    calls that cannot be carried.
    """
    calls: dict[str, tuple[Operator, Mapping[str, Any]]] = {}
    faults: list[str] = []
    graphs = []
    for graph, node, op, arguments in custom_calls(program):
        try:
            bound = op.interface.bind((), arguments)
            _check_dtypes(op, bound.tensors)
        except ExportError as e:
            faults.append(f"{e}{_at(node)}")
            continue
        key = str(len(calls))
        calls[key] = (op, bound.attributes)
        _replace(program, graph, node, op, op.interface.flat_inputs(bound), key)
        graphs.append(graph)
    if faults:
        raise ExportError("\n".join(dict.fromkeys(faults)))
    for graph in graphs:
        graph.lint()
    if graphs:
        for module in program.graph_module.modules():
            if hasattr(module, "recompile"):
                module.recompile()
    return Lowered(calls)


def _replace(
    program: ExportedProgram,
    graph: torch.fx.Graph,
    node: torch.fx.Node,
    op: Operator,
    inputs: list[Any],
    key: str,
) -> None:
    import torch

    values = node.meta["val"]
    # Where each output of the ONNX node is found in the call's result.
    results = values if isinstance(values, (list, tuple)) else [values]
    places = [k for k, v in enumerate(results) if isinstance(v, torch.Tensor)]
    outputs = [results[k] for k in places]
    shapes = [list(t.shape) for t in outputs]
    if graph is not program.graph:
        shapes = [[_size_node(graph, node, size) for size in shape] for shape in shapes]
    with graph.inserting_before(node):
        placeholder = graph.call_function(
            torch.ops.onnx_symbolic._symbolic_multi_out.default,
            (inputs, op.op_type, [dtypes.onnx_number(t.dtype) for t in outputs]),
            {
                "shapes": shapes,
                "attr_keys": [], "attr_types": [], "attr_pos": [], "attr_ints": [], "attr_floats": [], "attr_strs": [],
                "metadata_props_keys": [_KEY],
                "metadata_props_values": [key],
                "domain": op.domain,
                "version": op.version,
            },
        )  # fmt: skip
    placeholder.meta = {**node.meta, "val": outputs}
    if not isinstance(values, (list, tuple)):
        with graph.inserting_after(placeholder):
            only = graph.call_function(python_operator.getitem, (placeholder, 0))
        only.meta = {**node.meta, "val": outputs[0]}
        node.replace_all_uses_with(only)
        program.graph_signature.replace_all_uses(node.name, only.name)
    else:
        for user in list(node.users):
            if user.target is not python_operator.getitem:
                raise ExportError(f"{op.name}: its list of results is used whole by {user.target}{_at(user)}")
            user.args = (placeholder, places.index(cast(int, user.args[1])))
    graph.erase_node(node)


def _size_node(graph: torch.fx.Graph, before: torch.fx.Node, size: Any) -> Any:
    """A variable size inside a branch of control flow, where torch runs the graph as code: read off a tensor."""
    import torch

    if isinstance(size, int):
        return size
    for node in graph.nodes:
        if node is before:
            raise ExportError(
                f"{before.target} stands in a branch of control flow, and no tensor there has the size {size} of its result: "
                f"compute it outside the branch{_at(before)}"
            )
        for axis, other in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if str(other) == str(size):
                with graph.inserting_before(before):
                    found = graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
                found.meta = {**before.meta, "val": other}
                return found
    raise AssertionError("the node is in the graph")


def _check_dtypes(op: Operator, tensors: Mapping[str, Any]) -> None:
    for name, value in tensors.items():
        for node in value if isinstance(value, (list, tuple)) else [value]:
            tensor = getattr(node, "meta", {}).get("val") if node is not None else None
            if tensor is None:
                continue
            dtype = str(tensor.dtype).removeprefix("torch.")
            if not op.types.accepts(name, dtype):
                declared = ", ".join(op.types.variables[op.types.of_input[name]])
                raise ExportError(
                    f"{op.name}: `{name}` is {dtype} here; the operator is declared for {declared}"
                )


def _at(node: torch.fx.Node) -> str:
    """Where in the user's model a node comes from."""
    trace = [line.strip() for line in str(node.meta.get("stack_trace") or "").strip().splitlines()]
    places = [k for k, line in enumerate(trace) if line.startswith("File ")]
    return f" ({trace[places[-1]]})" if places else ""


def finish(model: ir.Model, lowered: Lowered) -> None:
    """Write each custom node's attributes, all of them and explicitly, in the declaration's order.

    After them those by which every TensorRT finds the node's plugin (`plugin_attributes`).
    """
    import onnx_ir as ir

    for node in model.graph.all_nodes():
        key = node.metadata_props.pop(_KEY, None)
        if key is None:
            continue
        op, values = lowered.calls[key]
        node.attributes.clear()
        kinds = {a.name: a.onnx_type for a in op.interface.attributes}
        for name, value in values.items():
            node.attributes[name] = ir.Attr(name, ir.AttributeType[kinds.get(name, "INT")], value)
        for name, value in plugin_attributes(op).items():
            told = ir.AttrString(name, value) if isinstance(value, str) else ir.AttrInt64s(name, value)
            node.attributes[name] = told
        model.opset_imports[op.domain] = op.version
    for function in model.functions.values():
        for node in function:
            if node.metadata_props.get(_KEY) is not None:
                raise ExportError(
                    f"{node.domain}::{node.op_type} stands inside a subgraph function, which is not supported"
                )


def keep_absent_inputs(model: ir.Model, operators: Mapping[Any, Operator]) -> None:
    """Put back the absent inputs before an empty list, which torch and the passes drop at a node's end."""
    least = {(op.domain, op.op_type): op.interface.least_inputs for op in operators.values()}
    for node in model.graph.all_nodes():
        count = least.get((node.domain, node.op_type), 0)
        if len(node.inputs) < count:
            node.resize_inputs(count)
