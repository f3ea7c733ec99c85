"""In-place operators on temporaries become the operators that return a new tensor.

`x = conv(...); x.relu_()` is `x = relu(conv(...))` as long as no other tensor shares memory with x. That
covers `nn.ReLU(inplace=True)` and `out += residual`; a write that could be seen elsewhere (through a view,
or in a buffer or an input) is left to torch's functionalisation.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from .fake_values import assumptions, describe
from .onnx_functions import is_composite, op_name, overload

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

__all__ = ["functional_form"]

# Composites whose result never shares memory with an argument, whatever the arguments. Of operators that
# are not composite, the schema tells.
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


def functional_form(node: torch.fx.Node) -> torch.fx.Node | None:
    """Insert the form of `node` that writes to nothing before it, and hand it the later uses of its input.

    None where the write could be seen elsewhere or has no such form. `node` itself stays, for the caller
    to replace.
    """
    import torch

    op, source = overload(node), node.args[0] if node.args else None
    form = _without_write(op) if op is not None else None
    if form is None or not isinstance(source, torch.fx.Node) or not _is_fresh(source):
        return None
    others = [user for user in source.users if user is not node]
    later = [user for user in others if node < user]
    if any(user.op == "output" for user in later):
        return None
    if not all(_is_fresh(user) for user in others if user not in later):
        return None  # perhaps a view, which would see the write
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    mode = source.meta["val"].fake_mode
    before = assumptions(mode)
    value = form(*args, **kwargs)
    if describe(value) != describe(source.meta["val"]) or assumptions(mode) != before:
        return None  # the write also casts, say from float64 to x's float32
    with node.graph.inserting_before(node):
        new = node.graph.call_function(form, node.args, node.kwargs)
    new.meta = {**node.meta, "val": value}
    for user in later:
        user.replace_input_with(source, new)
    return new


def _without_write(op: OpOverload[..., Any]) -> OpOverload[..., Any] | None:
    """`aten::add.Tensor` for `aten::add_.Tensor`."""
    import torch

    space, _, name = op._schema.name.partition("::")
    packet = getattr(torch.ops.aten, name[:-1], None) if space == "aten" and name.endswith("_") else None
    form: OpOverload[..., Any] | None = getattr(packet, op._overloadname, None)
    if form is None or form._schema.is_mutable:
        return None
    mine, its = op._schema.arguments, form._schema.arguments
    same = [(a.name, str(a.real_type)) for a in mine] == [(a.name, str(a.real_type)) for a in its]
    writes_first_only = [a.alias_info is not None for a in mine] == [True] + [False] * (len(mine) - 1)
    return form if same and writes_first_only else None


def _is_fresh(node: torch.fx.Node) -> bool:
    """Whether the result of `node` surely is new memory."""
    import torch

    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return _is_fresh(node.args[0])
    op = overload(node)
    if op is None or op.namespace != "aten" or op._schema.is_mutable:
        return False
    if any(result.alias_info is not None for result in op._schema.returns):
        return False
    return op_name(op) in _FRESH_COMPOSITES or not is_composite(op)
