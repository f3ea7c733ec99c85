"""Shipped operators in the place of a standard one that ONNX Runtime would compute together with the node before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.graph_view import GraphView, attribute
from .blocked_layout import is_made_blocked
from .fusions import is_residual_sum

if TYPE_CHECKING:
    import onnx

__all__ = ["STAND_INS"]


def _after_conv(view: GraphView, into: str, before: onnx.NodeProto, node: onnx.NodeProto) -> bool:
    return before.op_type == "Conv" and view.only_reader(into) is node


def _after_gemm(view: GraphView, into: str, before: onnx.NodeProto, node: onnx.NodeProto) -> bool:
    if before.op_type == "Gemm":
        return view.only_reader(into) is node
    return False


def _after_sum(view: GraphView, into: str, before: onnx.NodeProto, node: onnx.NodeProto) -> bool:
    return before.op_type == "Add" and node.input[0] == into and is_residual_sum(view, before)


def _scales_conv(view: GraphView, into: str, before: onnx.NodeProto, node: onnx.NodeProto) -> bool:
    constant = all(n in view.constants for n in node.input[1:] if n)
    return _after_conv(view, into, before, node) and constant and attribute(node, "axis", 1) == 1


def _adds_to_conv(view: GraphView, into: str, before: onnx.NodeProto, node: onnx.NodeProto) -> bool:
    rest = [n for n in node.input if n != into]
    blocked = len(rest) == 1 and is_made_blocked(view, into) and is_made_blocked(view, rest[0])
    return blocked and _after_conv(view, into, before, node)


_StandIn = tuple[str, str, Callable[[GraphView, str, "onnx.NodeProto", "onnx.NodeProto"], bool]]
# Shipped operators in the place of a standard one that would be fused: fusion, standard operator, where.
STAND_INS: Mapping[str, tuple[_StandIn, ...]] = {
    "deployops::RectifiedLinear": (
        ("conv-activation", "Relu", _after_conv),
        ("gemm-activation", "Relu", _after_gemm),
    ),
    "deployops::StableSigmoid": (
        ("conv-activation", "Sigmoid", _after_conv),
        ("gemm-activation", "Sigmoid", _after_gemm),
    ),
    "deployops::AddRelu": (("conv-add-relu", "Add and Relu", _adds_to_conv),),
    "deployops::ScaleBiasAct": (("conv-mul", "Mul, Add and activation", _scales_conv),),
    "deployops::LayerNorm": (("add-layernorm", "LayerNormalization", _after_sum),),
}
