"""What torch's ONNX exporter can translate, and what it would decompose first.

Reads the exporter's registry, which has no public form; nothing of torch is changed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from .adaptive_pooling import adaptive_poolings
from .antialiased_resize import antialiased_resizes
from .logs import quiet
from .splitting import splits

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

__all__ = [
    "ASSERTIONS",
    "better_decompositions",
    "decompositions",
    "has_complex_function",
    "has_function",
    "is_composite",
    "is_decomposable",
    "is_kept",
    "op_name",
    "overload",
]

# Torch's ONNX functions of these are wrong where the decomposition is right: log(sigmoid(x)) is -inf below -104, and
# x < 0 does not see the sign of -0.
_WRONG = frozenset({"aten::log_sigmoid", "aten::log_sigmoid_forward", "aten::signbit"})

# Dropped by the exporter after decomposition, whatever comes of them.
ASSERTIONS = frozenset(
    {
        "aten::_assert_async",
        "aten::_assert_async.msg",
        "aten::_assert_scalar",
        "aten::_assert_tensor_metadata",
        "aten::sym_constrain_range_for_size",
    }
)


def overload(node: torch.fx.Node) -> OpOverload[..., Any] | None:
    """The torch operator that `node` calls; None where it calls something else."""
    import torch

    is_operator = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    return cast("OpOverload[..., Any]", node.target) if is_operator else None


def op_name(op: OpOverload[..., Any]) -> str:
    """`aten::add.Tensor`; `aten::relu` for a default overload."""
    name: Any = op.name
    return str(name())


def has_function(target: Any, opset: int) -> bool:
    """Whether torch has an ONNX function for `target`, an operator or a Python function, on real values."""
    import torch

    key = op_name(target) if isinstance(target, torch._ops.OpOverload) else target
    return key in _registered(opset)


def has_complex_function(target: Any, opset: int) -> bool:
    """Whether torch has an ONNX function for `target` on complex values, carried as pairs of real ones."""
    metas = _registry(opset).functions.get(op_name(target), ())
    return any(meta.is_complex for meta in metas)


def is_kept(op: OpOverload[..., Any], opset: int) -> bool:
    """Whether torch's own decomposition step leaves `op` as it is, and an ONNX function exists."""
    from torch._export.utils import _is_preservable_cia_op

    if op_name(op).startswith("onnx::"):
        return True  # torch.onnx.ops: ONNX operators already
    if op._schema.is_mutable or op_name(op) in _WRONG or not has_function(op, opset):
        return False
    return not is_composite(op) or bool(_is_preservable_cia_op(op))


def is_composite(op: OpOverload[..., Any]) -> bool:
    """Whether torch implements `op` by calling other operators (CompositeImplicitAutograd)."""
    from torch._export.utils import _is_cia_op

    return bool(_is_cia_op(op))


def is_decomposable(op: OpOverload[..., Any], opset: int) -> bool:
    """Whether torch knows how to express `op` in other operators."""
    return is_composite(op) or op in decompositions(opset)


@lru_cache(maxsize=4)
def decompositions(opset: int) -> dict[Any, Any]:
    """The table that torch's exporter passes to `run_decompositions`, but for operators that write.

    Those end in a copy; `mutation` does better where it can.
    """
    from torch.onnx._internal.exporter import _decomp

    implemented = set(_decomp.get_onnx_implemented_overloads(_registry(opset)))
    table = _decomp.create_onnx_friendly_decomposition_table(implemented)
    return {op: function for op, function in table.items() if not _writes(op)} | better_decompositions()


@lru_cache(maxsize=1)
def better_decompositions() -> dict[Any, Any]:
    """Those that take the place of torch's, or that torch has not."""
    return _by_sign() | adaptive_poolings() | antialiased_resizes() | splits()


def _by_sign() -> dict[Any, Any]:
    """Operators that torch decomposes into a look at the sign bit, which ONNX cannot see: 1/x tells -0 from 0.

    The sign of a NaN is lost: it counts as positive.
    """
    import torch

    def signbit(x: torch.Tensor) -> torch.Tensor:
        negative = x < 0
        return negative | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else negative

    def copysign(size: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
        dtype = torch.result_type(size, sign)
        dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
        one = torch.ones((), dtype=dtype, device=size.device)
        return size.abs().to(dtype) * torch.where(
            signbit(sign), -one, one
        )  # ONNX Runtime's Where loses the sign of 0

    return {torch.ops.aten.signbit.default: signbit, torch.ops.aten.copysign.Tensor: copysign}


def _writes(op: Any) -> bool:
    import torch

    return isinstance(op, torch._ops.OpOverload) and bool(op._schema.is_mutable)


@lru_cache(maxsize=4)
def _registered(opset: int) -> frozenset[Any]:
    functions = _registry(opset).functions.items()
    return frozenset(key for key, metas in functions if any(not meta.is_complex for meta in metas))


@lru_cache(maxsize=4)
def _registry(opset: int) -> Any:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    with quiet(
        ONNXRegistry.__module__
    ):  # it warns of each operator of torchvision when that is not installed
        return ONNXRegistry.from_torchlib(opset_version=opset)
