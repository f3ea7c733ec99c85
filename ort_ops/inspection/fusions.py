"""Pairs of standard nodes that ONNX Runtime makes one, and a custom node that keeps them apart.

Each rule has a case of its name in `benchmarks/fusion_models.py`, which tells by experiment in which runtimes the fusion
is done, and lost with the custom node. A rule asks for what the runtime asks for: where a size or type that decides is
not known, it does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.graph_view import GraphView, attribute
from .blocked_layout import is_made_blocked

if TYPE_CHECKING:
    import onnx

__all__ = ["PAIRS", "Pair", "PairRule", "is_residual_sum", "rules_for"]

_ACTIVATIONS_OF_CONV = {"Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"}
_ACTIVATIONS_OF_GEMM = {
    "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
}  # fmt: skip
_QUANTISED = {
    "Add", "AveragePool", "Concat", "Conv", "GlobalAveragePool", "LeakyRelu", "MatMul", "Mul", "Sigmoid", "Softmax",
}  # fmt: skip
_KEEPS_ORDER = {"Abs", "Elu", "Erf", "Exp", "LeakyRelu", "Neg", "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh"}


@dataclass(frozen=True, slots=True)
class Pair:
    """`before` makes the value `into` for the custom node alone; `after` reads its result `out`, and nothing else does."""

    view: GraphView
    before: onnx.NodeProto
    into: str
    out: str
    after: onnx.NodeProto

    @property
    def types(self) -> tuple[str, str]:
        return self.before.op_type, self.after.op_type

    def other(self) -> str | None:
        """The second operand of `after`, where it has two."""
        rest = [name for name in self.after.input if name != self.out]
        return rest[0] if len(self.after.input) == 2 and len(rest) == 1 else None

    def constant_parameters(self, node: onnx.NodeProto) -> bool:
        return len(node.input) > 1 and all(n in self.view.constants for n in node.input[1:] if n)


@dataclass(frozen=True, slots=True)
class PairRule:
    """`first`: types of the node before. `does`: what ONNX Runtime does, with {before} and {after} for their types."""

    name: str
    first: frozenset[str]
    does: str
    matches: Callable[[Pair], bool]


def _conv_activation(p: Pair) -> bool:
    bounds = all(n in p.view.constants for n in p.after.input[1:] if n)
    return p.before.op_type == "Conv" and p.after.op_type in _ACTIVATIONS_OF_CONV and bounds


def _batch_norm_of(kind: str) -> Callable[[Pair], bool]:
    def matches(p: Pair) -> bool:
        constant = p.constant_parameters(p.before) and p.constant_parameters(p.after)
        return p.types == (kind, "BatchNormalization") and constant and p.after.input[0] == p.out

    return matches


def _conv_channelwise(kind: str) -> Callable[[Pair], bool]:
    def matches(p: Pair) -> bool:
        other = p.other()
        if p.types != ("Conv", kind) or other not in p.view.constants or not p.constant_parameters(p.before):
            return False
        size, weight = p.view.size(other or ""), p.view.size(p.before.input[1])
        if size is None or weight is None or len(weight) != 4:
            return False
        return size in ((weight[0], 1, 1), (1, weight[0], 1, 1))

    return matches


def _conv_add_relu(p: Pair) -> bool:
    other = p.other()
    if p.types != ("Conv", "Add") or other is None or other in p.view.constants:
        return False
    return is_made_blocked(p.view, p.into) and is_made_blocked(p.view, other)


def _pad_conv(p: Pair) -> bool:
    zeros = attribute(p.before, "mode", "constant") == "constant" and len(p.before.input) == 2
    explicit = attribute(p.after, "auto_pad", "NOTSET") == "NOTSET"
    first = p.after.input[0] == p.out
    return p.types == ("Pad", "Conv") and zeros and explicit and first and p.constant_parameters(p.before)


def _matmul_add(rank: int) -> Callable[[Pair], bool]:
    def matches(p: Pair) -> bool:
        other = p.other()
        if p.types != ("MatMul", "Add") or other not in p.view.constants:
            return False
        weight, bias = p.view.size(p.before.input[1]), p.view.size(other or "")
        if weight is None or len(weight) != 2 or bias != (weight[1],):
            return False
        return p.constant_parameters(p.before) and p.view.rank(p.before.input[0]) == rank

    return matches


def _matmul_batch_norm(p: Pair) -> bool:
    flat = p.types[0] == "MatMul" and p.view.rank(p.before.input[0]) == 2
    constant = p.constant_parameters(p.before) and p.constant_parameters(p.after)
    return flat and p.types[1] == "BatchNormalization" and constant


def _is_scale(view: GraphView, node: onnx.NodeProto, value: str) -> bool:
    """`value` times or over one constant number."""
    if node.op_type == "Div":
        return len(node.input) == 2 and node.input[0] == value and view.is_single_number(node.input[1])
    rest = [n for n in node.input if n != value]
    return node.op_type == "Mul" and len(rest) == 1 and view.is_single_number(rest[0])


def _matmul_scale(p: Pair) -> bool:
    return p.before.op_type == "MatMul" and _is_scale(p.view, p.after, p.out)


def _scale_matmul(p: Pair) -> bool:
    live = p.view.data_inputs(p.before)
    return p.after.op_type == "MatMul" and len(live) == 1 and _is_scale(p.view, p.before, live[0])


def _gemm_activation(p: Pair) -> bool:
    if p.after.op_type not in _ACTIVATIONS_OF_GEMM:
        return False
    if p.before.op_type == "Gemm":
        return True
    live = p.view.data_inputs(p.before)
    product = p.view.maker(live[0]) if p.before.op_type == "Add" and len(live) == 1 else None
    if product is None or p.view.only_reader(live[0]) is not p.before:
        return False
    inner = Pair(p.view, product, live[0], live[0], p.before)
    return _matmul_add(2)(inner)


def _swaps_last_two(node: onnx.NodeProto) -> bool:
    order = attribute(node, "perm")
    if node.op_type != "Transpose" or not isinstance(order, list) or len(order) < 2:
        return False
    rank = len(order)
    return order == [*range(rank - 2), rank - 1, rank - 2]


def _transpose_matmul(p: Pair) -> bool:
    return p.after.op_type == "MatMul" and _swaps_last_two(p.before)


def _transpose_gemm(p: Pair) -> bool:
    return p.after.op_type == "Gemm" and p.out in p.after.input[:2] and _swaps_last_two(p.before)


def _gemm_transpose(p: Pair) -> bool:
    return p.before.op_type == "Gemm" and _swaps_last_two(p.after)


def _transposes(p: Pair) -> bool:
    """Also where a few nodes that work on single elements stand after the custom node."""
    node: onnx.NodeProto | None = p.after
    for _ in range(4):
        if node is None or node.op_type not in _KEEPS_ORDER or not node.output:
            break
        node = p.view.only_reader(node.output[0])
    if node is None or p.before.op_type != "Transpose" or node.op_type != "Transpose":
        return False
    first, second = attribute(p.before, "perm"), attribute(node, "perm")
    if not isinstance(first, list) or not isinstance(second, list) or len(first) != len(second):
        return False
    together = [first[k] if 0 <= k < len(first) else -1 for k in second]
    return together == list(range(len(first)))


def _add_layer_norm(p: Pair) -> bool:
    if p.types != ("Add", "LayerNormalization") or p.after.input[0] != p.out:
        return False
    return is_residual_sum(p.view, p.before) and attribute(p.after, "axis", -1) in (-1, 2)


def is_residual_sum(view: GraphView, node: onnx.NodeProto) -> bool:
    """Two tensors of the same three dims."""
    sizes = [view.size(name) for name in node.input]
    return len(sizes) == 2 and sizes[0] is not None and len(sizes[0]) == 3 and sizes[0] == sizes[1]


def _bias_gelu(p: Pair) -> bool:
    constant = [n for n in p.before.input if n in p.view.constants]
    exact = attribute(p.after, "approximate", "none") == "none"
    return p.types == ("Add", "Gelu") and exact and len(constant) == 1 and p.view.rank(constant[0]) == 1


def _quantised_pair(p: Pair) -> bool:
    return p.types == ("DequantizeLinear", "QuantizeLinear") and p.after.input[0] == p.out


def _quantised_operator(p: Pair) -> bool:
    """Between an operator on dequantised inputs and the quantisation of its result, or before such an operator."""
    view = p.view
    if p.after.op_type == "QuantizeLinear" and p.before.op_type in _QUANTISED and p.after.input[0] == p.out:
        makers = [view.maker(name) for name in p.before.input if name]
        return bool(makers) and all(m is not None and m.op_type == "DequantizeLinear" for m in makers[:2])
    if p.before.op_type == "DequantizeLinear" and p.after.op_type in _QUANTISED and p.after.output:
        reader = view.only_reader(p.after.output[0])
        return reader is not None and reader.op_type == "QuantizeLinear"
    return False


def _of(*types: str) -> frozenset[str]:
    return frozenset(types)


PAIRS: tuple[PairRule, ...] = (
    PairRule(
        "conv-activation",
        _of("Conv"),
        "computes a {after} inside of the {before} before it",
        _conv_activation,
    ),
    PairRule(
        "conv-batchnorm",
        _of("Conv"),
        "folds a {after} into the weights of the {before} before it",
        _batch_norm_of("Conv"),
    ),
    PairRule(
        "convtranspose-batchnorm",
        _of("ConvTranspose"),
        "folds a {after} into the weights of the {before} before it",
        _batch_norm_of("ConvTranspose"),
    ),
    PairRule(
        "conv-mul",
        _of("Conv"),
        "folds a constant {after} into the weights of the {before} before it",
        _conv_channelwise("Mul"),
    ),
    PairRule(
        "conv-add",
        _of("Conv"),
        "folds a constant {after} into the bias of the {before} before it",
        _conv_channelwise("Add"),
    ),
    PairRule(
        "conv-add-relu",
        _of("Conv"),
        "computes a residual {after} inside of the {before} before it",
        _conv_add_relu,
    ),
    PairRule("pad-conv", _of("Pad"), "makes a {before} the padding of the {after} behind it", _pad_conv),
    PairRule("matmul-add", _of("MatMul"), "makes {before} and {after} one Gemm", _matmul_add(2)),
    PairRule("matmul-add-stacked", _of("MatMul"), "makes {before} and {after} one Gemm", _matmul_add(3)),
    PairRule("matmul-batchnorm", _of("MatMul"), "makes {before} and {after} one Gemm", _matmul_batch_norm),
    PairRule(
        "matmul-scale",
        _of("MatMul"),
        "computes a {after} with a constant inside of the {before} before it",
        _matmul_scale,
    ),
    PairRule(
        "scale-matmul",
        _of("Mul", "Div"),
        "computes a {before} with a constant inside of the {after} behind it",
        _scale_matmul,
    ),
    PairRule(
        "gemm-activation",
        _of("Gemm", "Add"),
        "computes a {after} inside of the {before} before it",
        _gemm_activation,
    ),
    PairRule(
        "transpose-matmul",
        _of("Transpose"),
        "reads transposed instead of running {before} before a {after}",
        _transpose_matmul,
    ),
    PairRule(
        "transpose-gemm",
        _of("Transpose"),
        "reads transposed instead of running {before} before a {after}",
        _transpose_gemm,
    ),
    PairRule(
        "gemm-transpose",
        _of("Gemm"),
        "swaps operands instead of running {after} after a {before}",
        _gemm_transpose,
    ),
    PairRule(
        "transposes",
        _of("Transpose"),
        "removes two Transposes that undo each other around nodes that work on single elements",
        _transposes,
    ),
    PairRule(
        "add-layernorm", _of("Add"), "makes {before} and {after} one SkipLayerNormalization", _add_layer_norm
    ),
    PairRule("bias-gelu", _of("Add"), "makes {before} and {after} one BiasGelu", _bias_gelu),
    PairRule(
        "quantised-operator",
        _of(*_QUANTISED, "DequantizeLinear"),
        "runs an operator between DequantizeLinear and QuantizeLinear on integers",
        _quantised_operator,
    ),
    PairRule(
        "quantised-pair",
        _of("DequantizeLinear"),
        "removes a {before} and {after} that follow each other",
        _quantised_pair,
    ),
)


@lru_cache(maxsize=256)
def rules_for(op_type: str) -> tuple[PairRule, ...]:
    """The rules for pairs that begin with an operator."""
    return tuple(rule for rule in PAIRS if op_type in rule.first)
