"""Decompose a program node by node, where torch would retrace it whole.

`torch.onnx.export` first calls `program.run_decompositions(table)`, a second tracing of the model, to
remove in-place operators and to decompose every operator that has no ONNX function. Operators that have
one are kept. So a program that mutates nothing and whose operators all have ONNX functions comes out as
it went in, and one with a few others needs only those expanded. Anything less plain goes torch's way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

__all__ = ["is_translatable", "without_retrace"]

# torch's retrace decomposes these composites although an ONNX function exists, since they may alias
# their input. In a program without mutation that makes no difference; their ONNX functions are right.
_ALIASING_COMPOSITES = frozenset(
    {
        "aten::chunk",
        "aten::contiguous",
        "aten::expand_as",
        "aten::flatten.using_ints",
        "aten::narrow",
        "aten::reshape",
        "aten::unflatten.int",
        "aten::view_as",
    }
)

# Dropped by the exporter after this step, whatever the route.
_ASSERTIONS = frozenset(
    {
        "aten::_assert_async",
        "aten::_assert_async.msg",
        "aten::_assert_scalar",
        "aten::_assert_tensor_metadata",
        "aten::sym_constrain_range_for_size",
    }
)

# Composites whose result never shares memory with an argument, whatever the arguments.
_FRESH_COMPOSITES = frozenset(
    {
        "aten::batch_norm",
        "aten::conv1d",
        "aten::conv2d",
        "aten::conv3d",
        "aten::group_norm",
        "aten::instance_norm",
        "aten::layer_norm",
        "aten::linear",
        "aten::matmul",
    }
)


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
    signature = copy.deepcopy(program.graph_signature)

    def replace(old: torch.fx.Node, new: torch.fx.Node) -> None:
        if any(user.op == "output" for user in old.users):
            if new.op != "call_function" or any(user.op == "output" for user in new.users):
                raise _NeedsRetrace  # an output that is an input, or the same value twice
            signature.replace_all_uses(old.name, new.name)
        old.replace_all_uses_with(new)

    try:
        for node in list(graph.nodes):
            if _is_complex(node) or node.op == "get_attr":
                return None
            if node.op == "call_function" and _is_overload(node.target):
                _decompose(node, opset, replace)
            elif node.op == "call_function" and node.target not in _registered(opset):
                return None
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
    clone.run_decompositions = lambda *_, **__: clone  # type: ignore[method-assign]
    return clone


def is_translatable(op: OpOverload, opset: int) -> bool:
    """Whether torch itself has an ONNX function or a decomposition for `op`."""
    return op.name() in _ASSERTIONS or _is_kept(op, opset) or _is_composite(op) or op in _table(opset)


def _decompose(
    node: torch.fx.Node, opset: int, replace: Callable[[torch.fx.Node, torch.fx.Node], None]
) -> None:
    target = node.target
    if target._schema.is_mutable:
        node = _without_mutation(node, replace)
        target = node.target
    name = target.name()
    if name in _ASSERTIONS or _is_kept(target, opset):
        return
    if name in _ALIASING_COMPOSITES and name in _registered(opset):
        return
    if name == "aten::dropout" and node.args[2:] == (False,):
        replace(node, node.args[0])  # identity in eval mode
        node.graph.erase_node(node)
        return
    _expand(node, opset, replace)


def _expand(node: torch.fx.Node, opset: int, replace: Callable[[torch.fx.Node, torch.fx.Node], None]) -> None:
    """Replace `node` by the operators that its decomposition calls, traced on its fake arguments."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    if not _is_composite(node.target) and node.target not in _table(opset):
        raise _NeedsRetrace  # no decomposition: torch's route says so
    run = _inference_batch_norm if _is_inference_batch_norm(node) else node.target
    flat, spec = pytree.tree_flatten((node.args, node.kwargs))
    holes = [index for index, value in enumerate(flat) if isinstance(value, torch.fx.Node)]

    def call(*values: Any) -> Any:
        filled = list(flat)
        for index, value in zip(holes, values, strict=True):
            filled[index] = value
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return run(*args, **kwargs)

    values = [flat[index].meta.get("val") for index in holes]
    guards = _guards(values)
    try:
        traced = make_fx(call, decomposition_table=_table(opset))(*values)
        traced.graph.eliminate_dead_code()
    except Exception as error:  # whatever a decomposition may raise: torch's route decides
        raise _NeedsRetrace from error
    if _guards(values) != guards:
        raise _NeedsRetrace  # tracing it alone assumed more about the sizes than the program does
    results = _inline(traced.graph, node, [flat[index] for index in holes], opset)
    _substitute(node, results, replace)


def _is_inference_batch_norm(node: torch.fx.Node) -> bool:
    return node.target.name() == "aten::batch_norm" and node.args[5] is False


def _inference_batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, _: bool, *rest: Any) -> Any:
    """What torch's retrace makes of `batch_norm` in eval mode; traced alone, its kernel is picked per device."""
    import torch

    momentum, eps, _cudnn = rest
    normalized = torch.ops.aten._native_batch_norm_legit_no_training
    return normalized(x, weight, bias, mean, var, momentum, eps)[0]


def _inline(body: torch.fx.Graph, node: torch.fx.Node, arguments: list[torch.fx.Node], opset: int) -> Any:
    """Copy the nodes of `body` before `node`; returns what `body` returns, in terms of the copies."""
    import torch

    copies = dict(zip(body.find_nodes(op="placeholder"), arguments, strict=True))
    for inner in body.nodes:
        if inner.op == "placeholder":
            continue
        if inner.op == "output":
            return torch.fx.map_arg(inner.args[0], copies.__getitem__)
        known = (
            _is_kept(inner.target, opset)
            if _is_overload(inner.target)
            else inner.target in _registered(opset)
        )
        if inner.op != "call_function" or not known or _is_complex(inner) or "val" not in inner.meta:
            raise _NeedsRetrace
        with node.graph.inserting_before(node):
            copies[inner] = node.graph.node_copy(inner, copies.__getitem__)
        copies[inner].meta = {**node.meta, **inner.meta, **_origin(node)}
    raise AssertionError("a traced graph ends in its output")


def _origin(node: torch.fx.Node) -> dict[str, Any]:
    return {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}


def _substitute(
    node: torch.fx.Node, results: Any, replace: Callable[[torch.fx.Node, torch.fx.Node], None]
) -> None:
    import operator

    import torch

    if isinstance(results, torch.fx.Node):
        pairs = [(node, results)]
    elif all(user.target is operator.getitem for user in node.users):
        pairs = [(user, results[user.args[1]]) for user in node.users]
    else:
        raise _NeedsRetrace
    for old, new in pairs:
        if not isinstance(new, torch.fx.Node) or _signature(old) != _signature(new):
            raise _NeedsRetrace
        replace(old, new)
        if old is not node:
            node.graph.erase_node(old)
    node.graph.erase_node(node)


def _without_mutation(
    node: torch.fx.Node, replace: Callable[[torch.fx.Node, torch.fx.Node], None]
) -> torch.fx.Node:
    """`relu_(x)` becomes `relu(x)`, where x is a temporary that no other value shares memory with."""
    import torch

    target, source = node.target, node.args[0] if node.args else None
    functional = _functional(target)
    if functional is None or not isinstance(source, torch.fx.Node) or not _is_fresh(source):
        raise _NeedsRetrace
    later, earlier = _split_users(source, node)
    if not all(_is_fresh(user) for user in earlier):
        raise _NeedsRetrace  # perhaps a view, which would see the write
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    guards = _guards([source.meta["val"]])
    value = functional(*args, **kwargs)
    if _describe(value) != _signature(source) or _guards([source.meta["val"]]) != guards:
        raise _NeedsRetrace  # the write also casts, say from float64 to x's float32
    with node.graph.inserting_before(node):
        new = node.graph.call_function(functional, node.args, node.kwargs)
    new.meta = {**node.meta, "val": value}
    for user in later:
        if user.op == "output":
            raise _NeedsRetrace
        user.replace_input_with(source, new)
    replace(node, new)
    node.graph.erase_node(node)
    return new


def _functional(op: OpOverload) -> OpOverload | None:
    """The operator without the write: `aten::add.Tensor` for `aten::add_.Tensor`."""
    import torch

    space, _, name = op._schema.name.partition("::")
    packet = getattr(torch.ops.aten, name[:-1], None) if space == "aten" and name.endswith("_") else None
    other = getattr(packet, op._overloadname, None)
    if other is None or other._schema.is_mutable:
        return None
    mine, its = op._schema.arguments, other._schema.arguments
    same = [(a.name, str(a.real_type)) for a in mine] == [(a.name, str(a.real_type)) for a in its]
    written = [a for a in mine if a.alias_info is not None]
    return other if same and written == mine[:1] else None


def _split_users(
    source: torch.fx.Node, node: torch.fx.Node
) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    later, earlier = [], []
    for user in source.users:
        if user is not node:
            (later if node < user else earlier).append(user)
    return later, earlier


def _is_fresh(node: torch.fx.Node) -> bool:
    """Whether the result of `node` surely is new memory."""
    if node.op != "call_function" or not _is_overload(node.target):
        return False
    op = node.target
    if op.namespace != "aten" or op._schema.is_mutable:
        return False
    if any(result.alias_info is not None for result in op._schema.returns):
        return False
    return op.name() in _FRESH_COMPOSITES or not _is_composite(op)


def _is_kept(op: OpOverload, opset: int) -> bool:
    """Whether torch's own decomposition step leaves `op` as it is, and an ONNX function exists."""
    from torch._export.utils import _is_cia_op, _is_preservable_cia_op

    if op.name().startswith("onnx::"):
        return True
    if op.name() not in _registered(opset) or op._schema.is_mutable:
        return False
    return not _is_cia_op(op) or _is_preservable_cia_op(op)


def _is_composite(op: OpOverload) -> bool:
    from torch._export.utils import _is_cia_op

    return bool(_is_cia_op(op))


def _is_overload(target: Any) -> bool:
    import torch

    return isinstance(target, torch._ops.OpOverload)


def _is_complex(node: torch.fx.Node) -> bool:
    import torch

    value = node.meta.get("val")
    values: Iterable[Any] = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(item, torch.Tensor) and item.is_complex() for item in values)


def _guards(values: list[Any]) -> int:
    """How many facts about symbolic sizes have been assumed so far."""
    import torch

    for value in values:
        mode = getattr(value, "fake_mode", None)
        if isinstance(value, torch.Tensor) and mode is not None and mode.shape_env is not None:
            return len(mode.shape_env.guards)
    return 0


def _signature(node: torch.fx.Node) -> str:
    return _describe(node.meta.get("val"))


def _describe(value: Any) -> str:
    """Dtype and sizes as text: comparing symbolic sizes themselves would add guards."""
    import torch

    return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else str(value)


@lru_cache(maxsize=4)
def _registry(opset: int) -> Any:
    import logging

    from torch.onnx._internal.exporter._registration import ONNXRegistry

    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        return ONNXRegistry.from_torchlib(opset_version=opset)
    finally:
        logger.setLevel(before)


@lru_cache(maxsize=4)
def _registered(opset: int) -> frozenset[Any]:
    """Names of operators, and Python functions, with an ONNX function for real values."""
    functions = _registry(opset).functions.items()
    return frozenset(key for key, metas in functions if any(not meta.is_complex for meta in metas))


@lru_cache(maxsize=4)
def _table(opset: int) -> dict[Any, Any]:
    """What torch's ONNX exporter would decompose."""
    from torch.onnx._internal.exporter import _decomp

    implemented = set(_decomp.get_onnx_implemented_overloads(_registry(opset)))
    return dict(_decomp.create_onnx_friendly_decomposition_table(implemented))
