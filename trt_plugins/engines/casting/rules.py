"""Which operators stay float32 in a model that is cast to a narrower type, and why.

The list is that of `torch.autocast`, which models are trained under: its operators that "autocast to float32", by their
names in ONNX. They sum many values, or have results beyond the range or the digits of float16. TensorRT warns of the same
for normalisations ("Running layernorm after self-attention in FP16 may cause overflow"). MatMul, Gemm and Conv are not
among them: TensorRT accumulates their products in float32. Where one makes a sum of squares, `normalisers` tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .narrow_weights import NarrowPrecision

if TYPE_CHECKING:
    import onnx

__all__ = [
    "AS_THEY_ARE",
    "BOUNDED",
    "COMPARES",
    "CONTRACTS",
    "DIGITS",
    "DIVISORS",
    "ENDS_A_SUM",
    "ENDS_HUGE",
    "FLAGGED_SUMS",
    "MOVES",
    "SENSITIVE",
    "SPREADS_A_SUM",
    "SPREADS_INTEGERS",
    "SPREADS_PLAIN",
    "Form",
    "adds_up",
    "form",
]

_SUMS = "it adds up many values, which float16 overflows or rounds away"
_NORM = "a normalisation: its sums of squares overflow float16"
_EXPONENTIAL = "its result leaves the range or the digits of float16 for moderate inputs"
_SCALES = "scales of quantization lose digits in a narrower type"
_RANDOM = "it draws its numbers in float32"
_PLACES = "its coordinates need the digits"

# operator -> reason
SENSITIVE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
            "ReduceLogSumExp", "CumSum", "CumProd", "GlobalLpPool", "LpPool",
            "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "DFT", "STFT", "Det", "Col2Im",
        ),
        _SUMS,
    ),
    **dict.fromkeys(
        (
            "LayerNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization",
            "LpNormalization", "MeanVarianceNormalization", "LRN",
        ),
        _NORM,
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax"), "it adds up exponentials, and its probabilities need the digits"),
    **dict.fromkeys(
        ("Exp", "Log", "Pow", "Reciprocal", "Softplus", "Sinh", "Cosh", "Tan", "Acos", "Asin", "Acosh", "Asinh", "Atanh"),
        _EXPONENTIAL,
    ),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), _SCALES),
    **dict.fromkeys(
        ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"), _RANDOM
    ),
    **dict.fromkeys(("RoiAlign", "MaxRoiPool", "AffineGrid"), _PLACES),
}  # fmt: skip

# Results of these may lie beyond float16 themselves: what is computed from them at once stays float32 too, so that the
# variance and the epsilon of a normalisation written in single nodes are never in float16.
FLAGGED_SUMS = frozenset(
    {
        "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "CumSum", "CumProd",
        "LpPool", "GlobalLpPool", "DFT", "STFT", "Det", "Col2Im", "Exp", "Pow", "Reciprocal", "Sinh", "Cosh", "Tan",
    }
)  # fmt: skip
# What comes out was there before: moved, copied or selected.
MOVES = frozenset(
    {
        "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Concat", "Gather", "Identity",
        "Tile", "Split", "Trilu", "Pad", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND",
        "TensorScatter", "DepthToSpace", "SpaceToDepth", "Compress", "Unique", "ReverseSequence", "TopK", "MaxPool",
        "MaxUnpool", "ReduceMax", "ReduceMin", "OneHot", "CenterCropPad", "Dropout", "Where", "SequenceConstruct",
        "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceEmpty", "SplitToSequence", "ConcatFromSequence",
        "Optional", "OptionalGetElement", "Resize", "Upsample",
    }
)  # fmt: skip
_PLAIN = frozenset({"Add", "Sub", "Sum", "Mean", "Max", "Min", "Clip", "Neg", "Abs"})
COMPARES = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"})
SPREADS_A_SUM = _PLAIN | COMPARES | MOVES | {
    "Sqrt", "Reciprocal", "Log", "Relu", "LeakyRelu", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
}  # fmt: skip
ENDS_A_SUM = frozenset({"Mul", "Div"})
SPREADS_PLAIN = _PLAIN | MOVES | {"Mod"}
SPREADS_INTEGERS = SPREADS_PLAIN | {
    "Mul", "Div", "Floor", "Ceil", "Round", "Sqrt", "Pow", "Reciprocal", "Exp", "Log", "Range", "Sign", "Relu",
    "CumSum", "ReduceSum", "ReduceMean", "ReduceProd",
}  # fmt: skip
BOUNDED = frozenset(
    {"Sin", "Cos", "Sigmoid", "Tanh", "Sign", "Erf"}
)  # integers go in, small numbers come out

# Of a constant beyond the range, what comes out of these is not beyond it for that alone. Any other operator passes it on.
CONTRACTS = frozenset(
    {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "GRU", "LSTM", "RNN", "DeformConv"}
)
ENDS_HUGE = BOUNDED | CONTRACTS | COMPARES | {
    "Softmax", "Hardmax", "HardSigmoid", "Softsign", "Atan", "Exp", "Log", "Reciprocal", "Attention", "ArgMax", "ArgMin",
    "LayerNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization", "LpNormalization",
    "MeanVarianceNormalization", "LRN", "Shape", "Size", "IsNaN", "IsInf", "NonZero", "NonMaxSuppression",
    "QuantizeLinear", "DynamicQuantizeLinear", "Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike",
}  # fmt: skip

# Places that are divided by: where one value of them became zero, the result would be infinite.
DIVISORS: Mapping[str, frozenset[int]] = {"Div": frozenset({1}), "BatchNormalization": frozenset({4})}

# Inputs that stay as they are though the type could be narrower: operator -> places.
AS_THEY_ARE: Mapping[str, frozenset[int]] = {  # both in coordinates
    "Resize": frozenset({1}),
    "GridSample": frozenset({1}),
}

# Inputs that need the digits, so that what computes them stays float32 as well: operator -> place -> what it is. A scale of
# quantization is none: it is the largest of activations, and all that computes those would stay float32.
DIGITS: Mapping[str, Mapping[int, str]] = {
    "GridSample": {1: "the grid of GridSample"},
    "Resize": {1: "the region of Resize", 2: "the scales of Resize"},
    "Upsample": {1: "the scales of Upsample"},
    "AffineGrid": {0: "the transform of AffineGrid"},
    "RoiAlign": {1: "the regions of RoiAlign"},
    "MaxRoiPool": {1: "the regions of MaxRoiPool"},
    "NonMaxSuppression": {0: "the boxes of NonMaxSuppression"},
}


def adds_up(node: onnx.NodeProto) -> bool:
    """Sums that an attribute asks for: a scatter that reduces, an Einsum that sums within one operand.

    An index that two operands have is a product of matrices, as in MatMul.
    """
    if node.op_type in ("ScatterElements", "ScatterND"):
        return any(a.name == "reduction" and a.s in (b"add", b"mul") for a in node.attribute)
    if node.op_type != "Einsum":
        return False
    equation = next((a.s.decode(errors="replace") for a in node.attribute if a.name == "equation"), "")
    left, arrow, right = equation.replace(" ", "").replace("...", "").partition("->")
    operands = left.split(",")
    kept = set(right) if arrow else {c for c in left if left.count(c) == 1}
    return any(sum(c in o for o in operands) == 1 for c in set(left) - kept - {","})


@dataclass(frozen=True, slots=True)
class Form:
    """What an operator's schema says of its types.

    Attributes:
        inputs, outputs: of each place, the name of its type variable, or the type itself; the last repeats where `many`.
        narrow: type variables that can be the narrow type.
        sequences: type variables that are no tensors.
        since: the operator set that takes the narrow type, where this one does not; None: none does.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    many_in: bool
    many_out: bool
    narrow: frozenset[str]
    sequences: frozenset[str]
    since: int | None

    def of_input(self, place: int) -> str:
        return _at(self.inputs, place, self.many_in)

    def of_output(self, place: int) -> str:
        return _at(self.outputs, place, self.many_out)


@lru_cache(maxsize=1024)
def form(operator: str, opset: int, precision: NarrowPrecision) -> Form | None:
    """The schema of a standard operator in an operator set; None where it has none."""
    from onnx import defs

    try:
        schema = defs.get_schema(operator, opset, "")
    except defs.SchemaError:
        return None
    narrow = _narrow(schema, precision)
    since = None
    if not narrow:
        newest = defs.get_schema(operator, defs.onnx_opset_version(), "")
        since = newest.since_version if _narrow(newest, precision) else None
    many = defs.OpSchema.FormalParameterOption.Variadic
    return Form(
        inputs=tuple(p.type_str for p in schema.inputs),
        outputs=tuple(p.type_str for p in schema.outputs),
        many_in=bool(schema.inputs) and schema.inputs[-1].option == many,
        many_out=bool(schema.outputs) and schema.outputs[-1].option == many,
        narrow=narrow,
        sequences=frozenset(
            c.type_param_str
            for c in schema.type_constraints
            if not any(t.startswith("tensor(") for t in c.allowed_type_strs)
        ),
        since=since,
    )


def _narrow(schema: Any, precision: NarrowPrecision) -> frozenset[str]:
    name = "tensor(float16)" if precision == "fp16" else "tensor(bfloat16)"
    return frozenset(c.type_param_str for c in schema.type_constraints if name in c.allowed_type_strs)


def _at(types: tuple[str, ...], place: int, many: bool) -> str:
    if place < len(types):
        return types[place]
    return types[-1] if many and types else ""
