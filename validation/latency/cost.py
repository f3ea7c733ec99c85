"""What one node must at least move and compute, from its shapes: bytes read, bytes written, floating-point operations.

One rule for nodes of a model (`graph_cost.py`) and for those that a runtime made of it (`roofline.py`, from its profile), so
that only shapes count where a rule can do without attributes:

- A product of two matrices, (M, K) by (K, N) to (M, N), needs 2·M·K·N operations, whichever is transposed:
  2·√(|A|·|B|·|C|), for each of the batch.
- A convolution needs 2·|weight| / output channels for each element of its output; transposed, 2·|weight| / input
  channels for each element of its input. Algorithms with fewer (Winograd, FFT) exist and are not counted.
- Attention needs the two products of its queries, keys and values; where it is causal, half of them.
- Everything else counts operations per element, from the formula: 1 for an addition or a comparison, as for a
  transcendental function, of which no machine has fewer than one.

Bytes are the node's own inputs and outputs, each once. What only renames (Reshape) moves nothing; what picks (Gather,
Slice) reads what it picks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .values import Value

__all__ = ["Cost", "cost", "is_view"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes and operations at least. `counted` is False where the operations of this kind of node are not known."""

    read: int
    written: int
    flops: int
    counted: bool = True

    @property
    def bytes(self) -> int:
        return self.read + self.written


_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Size", "Constant"})
_PICKS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Split", "Compress", "Trilu", "Dropout"})
_MOVES = frozenset(
    {
        "Transpose", "Concat", "Expand", "Tile", "Pad", "Cast", "CastLike", "ScatterElements", "ScatterND", "Scatter",
        "DepthToSpace", "SpaceToDepth", "ConstantOfShape", "EyeLike", "OneHot", "NonZero", "Unique", "ReverseSequence",
        "Where", "SequenceConstruct", "SequenceAt", "ConcatFromSequence", "SplitToSequence", "Range", "TopK",
        "ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost", "QuantizeLinear", "DequantizeLinear",
    }
)  # fmt: skip

# Operations per element of the output.
_PER_OUTPUT = {
    "Softmax": 5, "LogSoftmax": 5, "Softplus": 2, "Mish": 4, "Gelu": 5, "FastGelu": 7, "BiasGelu": 6, "QuickGelu": 4,
    "HardSigmoid": 3, "HardSwish": 4, "Swish": 4, "Elu": 3, "Selu": 4, "Celu": 4, "LeakyRelu": 2, "PRelu": 2,
    "ThresholdedRelu": 1, "Softsign": 2, "Hardmax": 1, "BatchNormalization": 2, "Resize": 1, "Upsample": 1,
    "GridSample": 8, "Mean": 1, "Clip": 2, "BiasSoftmax": 5, "RotaryEmbedding": 3,
}  # fmt: skip
# Operations per element of the input: statistics first, then the result.
_PER_INPUT = {
    "LayerNormalization": 7, "SimplifiedLayerNormalization": 4, "RMSNormalization": 4, "SkipLayerNormalization": 8,
    "SkipSimplifiedLayerNormalization": 5, "GroupNormalization": 7, "GroupNorm": 7, "SkipGroupNorm": 8,
    "InstanceNormalization": 7, "LpNormalization": 3, "MeanVarianceNormalization": 5, "LRN": 4, "CumSum": 1, "CumProd": 1,
    "ArgMax": 1, "ArgMin": 1, "GlobalAveragePool": 1, "GlobalMaxPool": 1, "GlobalLpPool": 2,
}  # fmt: skip
_ELEMENTWISE = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Neg", "Abs", "Sign", "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos",
        "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Sigmoid", "Erf", "Relu", "Ceil",
        "Floor", "Round", "Not", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN",
        "IsInf", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Max", "Min", "Sum", "Shrink",
    }
)  # fmt: skip
_PRODUCTS = frozenset(
    {"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "TransposeMatMul", "GemmFastGelu", "MatMulInteger", "QLinearMatMul",
     "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm", "GemmFloat8"}
)  # fmt: skip
_CONVOLUTIONS = frozenset(
    {"Conv", "FusedConv", "NhwcFusedConv", "NhwcConv", "ConvInteger", "QLinearConv", "DeformConv"}
)


def is_view(op_type: str) -> bool:
    """Does the operator only give a new name or shape to what is there?"""
    return op_type in _VIEWS


def cost(
    op_type: str,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value | None],
    attributes: Mapping[str, Any] | None = None,
) -> Cost | None:
    """The cost of a node; None where a shape that it depends on is unknown.

    Args:
        inputs, outputs: None for an absent one.
        attributes: by name; a rule that cannot do without them says that the operations are not counted.
    """
    made = [v for v in outputs if v is not None]
    given = [v for v in inputs if v is not None]
    if not made and op_type not in ("If", "Loop", "Scan"):
        return None
    if op_type in _VIEWS:
        return Cost(0, 0, 0)
    written = sum(v.size for v in made)
    read = sum(v.size for v in given)
    if op_type in _PICKS and given:
        indices = sum(v.size for v in given[1:])
        read = min(read, written + indices)
    elif op_type in ("ConstantOfShape", "Range", "EyeLike"):
        read = 0
    flops = _flops(op_type, list(inputs), made, given, attributes or {})
    return Cost(read, written, flops or 0, flops is not None)


def _flops(
    op_type: str,
    inputs: list[Value | None],
    made: list[Value],
    given: list[Value],
    attributes: Mapping[str, Any],
) -> int | None:
    if op_type in _PICKS or op_type in _MOVES:
        return 0
    if op_type in _ELEMENTWISE:
        return max(1, len(given) - 1) * made[0].count
    if (rule := _RULES.get(op_type)) is not None:
        return rule(inputs, made, attributes)
    if op_type in _PER_OUTPUT:
        return _PER_OUTPUT[op_type] * made[0].count
    if op_type in _PER_INPUT and given:
        return _PER_INPUT[op_type] * given[0].count
    if op_type.startswith("Reduce") and given:
        return given[0].count
    return None


Rule = Callable[[list[Value | None], list[Value], Mapping[str, Any]], "int | None"]


def _product(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
    """The second matrix is the second input; those of quantised products come later."""
    operands = _operands(inputs)
    if operands is None:
        return None
    a, b = operands
    if not a.count or not b.count or not made[0].count:
        return 0
    # The inner size: by what the output has of both. Of vectors, (K) by (K, N), the same holds.
    rows_a, rows_b = a.shape[-2:], b.shape[-2:]
    out = made[0].shape
    if len(rows_a) == 1 or len(rows_b) == 1:
        inner = rows_a[0] if len(rows_a) == 1 else rows_b[0]
    else:
        columns = out[-1] * out[-2]
        inner = math.isqrt(math.prod(rows_a) * math.prod(rows_b) // columns) if columns else 0
    bias = made[0].count if len([v for v in inputs if v is not None]) > 2 else 0
    return 2 * made[0].count * inner + bias


def _operands(inputs: list[Value | None]) -> tuple[Value, Value] | None:
    """The two matrices: the inputs of rank one or more that are no scales and zero points of a quantised product."""
    matrices = [v for v in inputs if v is not None and len(v.shape) >= 1]
    if len(matrices) < 2:
        return None
    # QLinearMatMul: a, a_scale, a_zero, b, ...: scales are floats among integers
    first = matrices[0]
    second = next((v for v in matrices[1:] if len(v.shape) >= 2), matrices[1])
    return first, second


def _convolution(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
    kernels = [v for v in inputs[1:] if v is not None and len(v.shape) >= 3]
    if not kernels:
        return None
    weight = kernels[0]
    bias = 1 if any(v is not None and len(v.shape) == 1 for v in inputs[2:]) else 0
    return (2 * math.prod(weight.shape[1:]) + bias) * made[0].count


def _transposed(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
    if len(inputs) < 2 or inputs[0] is None or inputs[1] is None:
        return None
    bias = made[0].count if len(inputs) > 2 and inputs[2] is not None else 0
    return 2 * inputs[0].count * math.prod(inputs[1].shape[1:]) + bias


def _pool(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
    kernel = attributes.get("kernel_shape")
    return None if kernel is None else math.prod(kernel) * made[0].count


def _attention(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
    """ONNX's Attention (opset 23) and com.microsoft's MultiHeadAttention, queries, keys and values given apart.

    (B, H, S, D) each, or (B, S, H·D) with heads that change nothing in the count.
    """
    query, key, value = (inputs + [None] * 3)[:3]
    if query is None or key is None or value is None:
        return None
    ranks = {len(v.shape) for v in (query, key, value)}
    if ranks not in ({3}, {4}):  # packed, or com.microsoft's Attention, which holds the projections too
        return None
    rows, columns = query.shape[-2], key.shape[-2]
    past = inputs[4] if len(inputs) > 4 else None
    if past is not None and len(past.shape) == 4:
        columns += past.shape[-2]
    lanes = query.count // max(rows, 1)  # batch · heads · head size
    if len(query.shape) == 4:
        values = math.prod(query.shape[:2]) * value.shape[-1]
    else:
        heads = int(attributes.get("q_num_heads") or attributes.get("num_heads") or 0)
        shared = int(attributes.get("kv_num_heads") or heads) or 1
        values = query.shape[0] * value.shape[-1] * max(1, heads // shared)
    pairs = rows * columns
    if attributes.get("is_causal") or attributes.get("unidirectional"):
        pairs = rows * (rows + 1) // 2 + rows * max(0, columns - rows)
    return 2 * pairs * (lanes + values)


def _recurrent(gates: int) -> Rule:
    def rule(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
        if len(inputs) < 3 or any(v is None for v in inputs[:3]):
            return None
        x, w, r = (v for v in inputs[:3] if v is not None)
        steps = x.shape[0] * x.shape[1]  # sequence · batch, whichever comes first
        return 2 * steps * (w.count + r.count)

    return rule


def _einsum(inputs: list[Value | None], made: list[Value], attributes: Mapping[str, Any]) -> int | None:
    """Of the cheapest order of contractions: numpy's, which tries them all."""
    import numpy as np

    equation = attributes.get("equation")
    operands = [v for v in inputs if v is not None]
    if equation is None or not operands:
        return None
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    if len(operands) == 1:
        return operands[0].count
    sizes = _index_sizes(text, operands)
    if sizes is not None and len(operands) == 2:
        summed = any(k not in text.partition("->")[2] for k in sizes) if "->" in text else True
        return (2 if summed else 1) * math.prod(sizes.values())
    # arrays that take no memory: one element, seen as many
    views = [np.broadcast_to(np.zeros(()), v.shape) for v in operands]
    try:
        report = np.einsum_path(text, *views, optimize="optimal" if len(operands) < 7 else "greedy")[1]
    except ValueError:
        return None
    line = next((one for one in str(report).splitlines() if "Optimized FLOP count" in one), "")
    try:
        return int(float(line.partition(":")[2]))
    except ValueError:
        return None


def _index_sizes(equation: str, operands: Sequence[Value]) -> dict[str, int] | None:
    """The size of each index; None where an ellipsis stands for some."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if "..." in equation or len(terms) != len(operands):
        return None
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != len(operand.shape):
            return None
        for index, size in zip(term, operand.shape, strict=True):
            sizes[index] = max(sizes.get(index, 1), size)
    return sizes


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool", "QLinearAveragePool"), _pool),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    "ConvTranspose": _transposed,
    "Einsum": _einsum,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
}
