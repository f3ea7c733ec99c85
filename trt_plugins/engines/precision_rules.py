"""Which operators stay float32 in a model that is cast to a narrower type, and why.

The list is that of `torch.autocast`, which models are trained under: its operators that "autocast to float32", by their
names in ONNX. They sum many values, or have results beyond the range or the digits of float16. TensorRT warns of the same
for normalisations ("Running layernorm after self-attention in FP16 may cause overflow"). MatMul, Gemm and Conv are not
among them: TensorRT accumulates their products in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .narrow_weights import NarrowPrecision

__all__ = [
    "AS_THEY_ARE",
    "BOUNDED",
    "ENDS_A_SUM",
    "FLAGGED_SUMS",
    "MOVES",
    "SENSITIVE",
    "SPREADS_A_SUM",
    "SPREADS_HUGE",
    "SPREADS_INTEGERS",
    "Form",
    "form",
]

_SUMS = "it adds up many values, which float16 overflows or rounds away"
_NORM = "a normalisation: its sums of squares overflow float16"
_EXPONENTIAL = "its result leaves the range or the digits of float16 for moderate inputs"
_SCALES = "scales of quantization lose digits in a narrower type"
_RANDOM = "it draws its numbers in float32"

# operator -> reason
SENSITIVE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
            "ReduceLogSumExp", "CumSum", "CumProd", "GlobalLpPool", "LpPool",
            "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
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
}  # fmt: skip

# Results of these may lie beyond float16 themselves: what is computed from them at once stays float32 too, so that the
# variance and the epsilon of a normalisation written in single nodes are never in float16.
FLAGGED_SUMS = frozenset(
    {
        "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "CumSum", "CumProd",
        "Exp", "Pow", "Reciprocal", "Sinh", "Cosh", "Tan",
    }
)  # fmt: skip
MOVES = frozenset(
    {
        "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice", "Concat", "Gather", "Identity",
        "Tile", "Split",
    }
)  # fmt: skip
_PLAIN = frozenset({"Add", "Sub", "Sum", "Max", "Min", "Clip", "Neg", "Abs"})
SPREADS_A_SUM = _PLAIN | MOVES | {"Sqrt", "Reciprocal", "Log"}
ENDS_A_SUM = frozenset({"Mul", "Div"})
SPREADS_HUGE = _PLAIN | MOVES | {"Mul", "Div", "Where"}
SPREADS_INTEGERS = SPREADS_HUGE | {
    "Floor",
    "Ceil",
    "Round",
    "Sqrt",
    "Pow",
    "Reciprocal",
    "Mod",
    "Exp",
    "Log",
    "Range",
    "Sign",
}
BOUNDED = frozenset(
    {"Sin", "Cos", "Sigmoid", "Tanh", "Sign", "Erf"}
)  # integers go in, small numbers come out

# Inputs that stay as they are though the type could be narrower: operator -> places.
AS_THEY_ARE: Mapping[str, frozenset[int]] = {"Resize": frozenset({1})}  # its region, in coordinates


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
