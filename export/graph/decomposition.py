"""Decompose a program node by node, where torch would retrace it whole.

`torch.onnx.export` first calls `program.run_decompositions(table)`, a second tracing of the model, to
remove in-place operators and to decompose every operator that has no ONNX function. Operators that have
one are kept. So a program that mutates nothing and whose operators all have ONNX functions comes out as
it went in, and one with a few others needs only those expanded. Anything less plain goes torch's way.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .declared_sizes import decomposing, met
from .fake_values import assumptions, describe, fake_mode, is_complex
from .mutation import functional_form
from .onnx_functions import (
    ASSERTIONS,
    better_decompositions,
    decompositions,
    has_function,
    is_decomposable,
    is_kept,
    op_name,
    overload,
)
from .size_sums import write_sums_as_lists
from .splitting import is_split_of_variable_size
from .type_promotion import without_promotion

if TYPE_CHECKING:
    import torch

    Replace = Callable[[torch.fx.Node, torch.fx.Node], None]

__all__ = ["without_retrace"]

# torch's retrace expands every composite that may alias its input, even where an ONNX function exists.
# Without mutation aliasing makes no difference; of the functions so left out, these are right and frequent
# (that of `narrow`, for one, is wrong for a negative start).
_ALIASING_COMPOSITES = frozenset({"aten::contiguous", "aten::reshape"})


class _NeedsRetrace(Exception):
    """The program holds something that only torch's own route handles."""


def without_retrace(program: torch.export.ExportedProgram, opset: int) -> torch.export.ExportedProgram | None:
    """A copy of `program`, decomposed as far as ONNX needs, whose `run_decompositions` does nothing.

    None when the program needs torch's own decomposition. `program` is not changed; weights are shared.
    """
    import torch
    from torch.export.graph_signature import OutputKind

    if any(isinstance(module, torch.fx.GraphModule) for module in program.graph_module.children()):
        return None  # bodies of control flow
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in program.graph_signature.output_specs):
        return None  # writes to buffers or inputs
    graph = copy.deepcopy(program.graph)
    for original, node in zip(program.graph.nodes, graph.nodes, strict=True):
        node.name = original.name  # the copy calls `input`, the name of a builtin, `input_1`
    signature = copy.deepcopy(program.graph_signature)

    def replace(old: torch.fx.Node, new: torch.fx.Node) -> None:
        if any(user.op == "output" for user in old.users):
            if new.op != "call_function" or any(user.op == "output" for user in new.users):
                raise _NeedsRetrace  # an output that is an input, or the same value twice
            signature.replace_all_uses(old.name, new.name)
        old.replace_all_uses_with(new)
        old.graph.erase_node(old)

    try:
        for node in list(graph.nodes):
            if node.op == "get_attr" or is_complex(node.meta.get("val")):
                return None
            if node.op == "call_function":
                _decompose(node, opset, replace)
    except _NeedsRetrace:
        return None
    clone = torch.export.ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )
    without_promotion(clone)
    vars(clone)["run_decompositions"] = lambda *_, **__: clone
    return clone


def _decompose(node: torch.fx.Node, opset: int, replace: Replace) -> None:
    op = overload(node)
    if op is not None and op._schema.is_mutable:
        functional = functional_form(node)
        if functional is None:
            raise _NeedsRetrace
        replace(node, functional)
        node, op = functional, overload(functional)
    if op is None:
        if not has_function(node.target, opset):
            raise _NeedsRetrace
        return
    name = op_name(op)
    if name in ASSERTIONS:
        node.graph.erase_node(node)  # so would the exporter
        return
    if _is_attention_without_heads(node) or is_split_of_variable_size(node):
        _expand(node, op, opset, replace)
        return
    if is_kept(op, opset):
        return
    if name in _ALIASING_COMPOSITES and has_function(op, opset):
        return
    if not is_decomposable(op, opset):
        raise _NeedsRetrace
    _expand(node, op, opset, replace)


def _expand(node: torch.fx.Node, op: Callable[..., Any], opset: int, replace: Replace) -> None:
    """Replace `node` by the operators that its decomposition calls, traced on its fake arguments."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    flat, spec = pytree.tree_flatten((node.args, node.kwargs))
    holes = [index for index, value in enumerate(flat) if isinstance(value, torch.fx.Node)]
    run = _inference_batch_norm if _is_inference_batch_norm(node) else better_decompositions().get(op, op)

    def call(*values: Any) -> Any:
        filled = list(flat)
        for index, value in zip(holes, values, strict=True):
            filled[index] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return run(*args, **kwargs)

    values = [flat[index].meta.get("val") for index in holes]
    mode = fake_mode(node.graph)
    if mode is None:
        raise _NeedsRetrace
    before = assumptions(mode)
    try:
        with mode, decomposing(node):
            traced = make_fx(call, decomposition_table=decompositions(opset))(*values)
    except Exception as error:  # whatever a decomposition may raise: torch's route decides
        raise _NeedsRetrace from error
    if not met(mode.shape_env, before):
        raise _NeedsRetrace  # tracing it alone assumed more about the sizes than was declared of them
    for inner in list(traced.graph.nodes):
        _replace_write(inner)
    traced.graph.eliminate_dead_code()
    write_sums_as_lists(traced.graph)
    results = _inline(traced.graph, node, [flat[index] for index in holes], opset)
    _substitute(node, results, replace)


def _replace_write(node: torch.fx.Node) -> None:
    op = overload(node)
    if op is not None and op._schema.is_mutable:
        functional = functional_form(node)
        if functional is None:
            raise _NeedsRetrace
        node.replace_all_uses_with(functional)
        node.graph.erase_node(node)


def _is_attention_without_heads(node: torch.fx.Node) -> bool:
    """Attention that torch's ONNX function, for tensors of 4 dims only, would refuse."""
    import torch

    if node.target is not torch.ops.aten.scaled_dot_product_attention.default:
        return False
    tensors = [node.args[k] for k in range(3)]
    return any(isinstance(t, torch.fx.Node) and t.meta["val"].dim() != 4 for t in tensors)


def _is_inference_batch_norm(node: torch.fx.Node) -> bool:
    import torch

    return node.target is torch.ops.aten.batch_norm.default and node.args[5] is False


def _inference_batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, _: bool, *rest: Any) -> Any:
    """What torch's retrace makes of `batch_norm` in eval mode. Traced alone, it would name a kernel."""
    import torch

    momentum, eps, _cudnn = rest
    normalized = torch.ops.aten._native_batch_norm_legit_no_training
    return normalized(x, weight, bias, mean, var, momentum, eps)[0]


def _inline(body: torch.fx.Graph, node: torch.fx.Node, arguments: list[torch.fx.Node], opset: int) -> Any:
    """Copy the nodes of `body` before `node`; returns what `body` returns, in terms of the copies."""
    import torch

    copies = dict(zip(body.find_nodes(op="placeholder"), arguments, strict=True))
    origin = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
    for inner in body.nodes:
        if inner.op == "placeholder":
            continue
        if inner.op == "output":
            return torch.fx.map_arg(inner.args[0], copies.__getitem__)
        op = overload(inner)
        known = is_kept(op, opset) if op is not None else has_function(inner.target, opset)
        if inner.op != "call_function" or not known or is_complex(inner.meta.get("val")):
            raise _NeedsRetrace
        with node.graph.inserting_before(node):
            copies[inner] = node.graph.node_copy(inner, copies.__getitem__)
        copies[inner].meta = {**node.meta, **inner.meta, **origin}
    raise AssertionError("a traced graph ends in its output")


def _substitute(node: torch.fx.Node, results: Any, replace: Replace) -> None:
    import torch

    if isinstance(results, torch.fx.Node):
        pairs = [(node, results)]
    elif all(user.target is operator.getitem for user in node.users):
        pairs = [(user, results[user.args[1]]) for user in node.users]
    else:
        raise _NeedsRetrace
    for old, new in pairs:
        same = isinstance(new, torch.fx.Node) and describe(old.meta.get("val")) == describe(
            new.meta.get("val")
        )
        if not same:
            raise _NeedsRetrace
        replace(old, new)
    if not isinstance(results, torch.fx.Node):
        node.graph.erase_node(node)
