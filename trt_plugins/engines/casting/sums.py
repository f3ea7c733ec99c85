"""Which values of a model are sums of products or computed from them: what a walk through the graph can tell, once forwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....symbolic.nested_graphs import graphs_within
from .rules import BOUNDED, COMPARES, CONTRACTS, MOVES, SENSITIVE, adds_up
from .values import DOUBLE, FLOAT, HALVES, STANDARD

if TYPE_CHECKING:
    import onnx

__all__ = ["ADDS", "CHAIN", "POOLS", "TURNING", "Sums"]

_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"})
POOLS = frozenset({"AveragePool", "GlobalAveragePool"})
ADDS = frozenset(
    {
        "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSum", "CumSum", "CumProd",
        "LpPool", "GlobalLpPool", "DFT", "STFT", "Det", "Col2Im",
    }
)  # fmt: skip
_LINEAR = MOVES | {"Cast", "CastLike", "Neg", "Abs", "Relu", "LeakyRelu", "PRelu", "Clip", "Max", "Min"}
# On the way from a sum to a root or a division.
CHAIN = _LINEAR | {
    "Add", "Sub", "Sum", "Mean", "Mul", "Div", "Sqrt", "Reciprocal", "Pow", "Floor", "Ceil", "Round", "Selu", "Elu", "Celu",
    "ThresholdedRelu", "Shrink",
}  # fmt: skip
_SMALL = BOUNDED | COMPARES | {
    "Softmax", "Hardmax", "HardSigmoid", "Softsign", "Atan", "And", "Or", "Not", "Xor", "IsNaN", "IsInf", "LpNormalization",
}  # fmt: skip
# Of the same values as its first input, in another order, with another sign, or scaled: a product of both is a square.
_SAME = frozenset(
    {"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Expand", "Cast", "CastLike", "Neg", "Abs"}
)  # fmt: skip
_PLAIN_ORDER = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean"})
TURNING = frozenset({"Loop", "Scan"})
_FIRST = 64  # weights, of which nearly always some are negative
_CONTENT = 1024  # elements of a constant that is told from others by its values


@dataclass(slots=True)
class Sums:
    """What is known of values.

    Attributes:
        weights: constants with their values. constant: those, and what is computed from them alone.
        squares: powers of one value, or sums of them.
        same: a number of each value, equal for values that are the same up to their order, sign, scale and power.
        sums, products, terms: computed from a sum, a sum of products, or a product of two activations, along `CHAIN`.
        forms: Wx where x·Wx is computed, and that. layers: of what a layer makes, the number of what it takes.
        small: within -1 to 1. inverse: one divided by something.
    """

    weights: dict[str, onnx.TensorProto]
    constant: set[str] = field(default_factory=set)
    same: dict[str, int] = field(default_factory=dict)
    known: dict[object, int] = field(default_factory=dict)
    sums: set[str] = field(default_factory=set)
    products: set[str] = field(default_factory=set)
    terms: set[str] = field(default_factory=set)
    forms: set[str] = field(default_factory=set)
    layers: dict[str, int] = field(default_factory=dict)
    small: set[str] = field(default_factory=set)
    inverse: set[str] = field(default_factory=set)
    squares: set[str] = field(default_factory=set)

    def read(self, graph: onnx.GraphProto) -> None:
        """Read the nodes of a graph, and those of the graphs inside of them."""
        self.weights |= {t.name: t for t in graph.initializer}
        self.constant |= {t.name for t in graph.initializer}
        for node in graph.node:
            for inner in graphs_within(node):
                self._forget(v.name for v in inner.input)
                self._enter(node, inner)
                self.read(inner)
                self._leave(node, inner)
            self._know(node)

    def _enter(self, node: onnx.NodeProto, inner: onnx.GraphProto) -> None:
        """What the inputs of a Loop or Scan are in its graph."""
        if node.op_type in TURNING:
            for given, name in zip(node.input, inner.input, strict=False):
                self._copy(given, name.name)

    def _leave(self, node: onnx.NodeProto, inner: onnx.GraphProto) -> None:
        skipped = 1 if node.op_type == "Loop" else 0  # the first says whether to go on
        for made, value in zip(node.output, inner.output[skipped:], strict=False):
            self._copy(value.name, made)

    def _copy(self, source: str, target: str) -> None:
        for held in (self.sums, self.products, self.terms, self.inverse):
            if source in held:
                held.add(target)

    def _forget(self, names: Iterable[str]) -> None:
        """Of a value in another graph that had the name."""
        for name in names:
            self.constant.discard(name)
            self.same.pop(name, None)
            self.weights.pop(name, None)

    def _know(self, node: onnx.NodeProto) -> None:
        self._forget(node.output)
        operator = node.op_type if node.domain in STANDARD else ""
        inner = any(True for _ in graphs_within(node))
        if operator == "Constant":
            self.constant.update(node.output)
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.HasField("t"):
                    self.weights[node.output[0]] = attribute.t
        elif operator and not inner and node.input and all(n in self.constant for n in node.input if n):
            self.constant.update(node.output)
        self._number(node, operator, inner)
        if not operator or inner or not node.output:
            return
        numbers = [self._of(name) for name in node.input if name]
        if (operator == "Mul" or operator in CONTRACTS) and len(numbers) > len(set(numbers)):
            self.squares.add(node.output[0])
        moving = [name for name in node.input if name and name not in self.constant]
        if not moving:
            return
        if operator in _SMALL or (
            operator in ("Mul", *MOVES, "Cast") and all(n in self.small for n in moving)
        ):
            self.small.update(node.output)
        if operator == "Mul" and len(moving) > 1 and not any(name in self.small for name in moving):
            self.terms.update(node.output)
        elif operator in _LINEAR or (operator in ("Mul", "Div") and len(moving) == 1):
            if any(name in self.terms for name in moving):
                self.terms.update(node.output)
        elif (
            operator in ("Add", "Sub", "Sum", "Mean") and all(name in self.terms for name in moving)
        ) or operator == "Pow":
            self.terms.update(node.output)
        self._quadratic(node, moving)
        takes_terms = any(name in self.terms for name in moving)
        if operator in CONTRACTS:
            positive = self._positive(node)
            both = len(moving) > 1 and operator in _PRODUCTS
            if takes_terms or positive or both:
                self.sums.update(node.output)
            if both or (takes_terms and positive):  # other weights make it a layer
                self.products.update(node.output)
        elif operator in POOLS | ADDS or adds_up(node):
            self.sums.update(node.output)
            if takes_terms:
                self.products.update(node.output)
        elif operator in CHAIN:
            carrying = self._numerators(operator, moving)
            roots = operator in ("Add", "Sub", "Sum", "Mean", "Sqrt") and all(n in self.terms for n in moving)
            if roots or any(name in self.sums for name in carrying):
                self.sums.update(node.output)
            if any(name in self.products for name in carrying):
                self.products.update(node.output)
            self._invert(node, moving)

    def _numerators(self, operator: str, moving: Sequence[str]) -> Sequence[str]:
        """What a quotient has from its sums: what was divided by one is of moderate size again."""
        if operator == "Div":
            return moving[:1]
        if operator == "Mul":
            return [name for name in moving if name not in self.inverse] or moving
        return moving

    def _quadratic(self, node: onnx.NodeProto, moving: Sequence[str]) -> None:
        operator = node.op_type
        if operator in CONTRACTS and len(moving) == 1:
            self.layers[node.output[0]] = self._of(moving[0])
        if (operator == "Mul" or operator in CONTRACTS) and len(moving) > 1:
            found = {a for a in moving for b in moving if a in self.layers and self.layers[a] == self._of(b)}
            if found:
                self.forms |= found
                self.forms.update(node.output)
        elif operator in _LINEAR or (operator in ("Mul", "Div") and len(moving) == 1):
            if any(name in self.layers for name in moving):
                self.layers[node.output[0]] = next(
                    self.layers[name] for name in moving if name in self.layers
                )
            if any(name in self.forms for name in moving):
                self.forms.update(node.output)

    def _invert(self, node: onnx.NodeProto, moving: Sequence[str]) -> None:
        operator = node.op_type
        if (
            operator == "Reciprocal"
            or (operator == "Pow" and self.exponent(node) < 0)
            or (operator == "Div" and len(node.input) == 2 and node.input[0] in self.constant)
            or (operator in _LINEAR | {"Mul", "Sqrt"} and all(name in self.inverse for name in moving))
        ):
            self.inverse.update(node.output)

    def _number(self, node: onnx.NodeProto, operator: str, inner: bool) -> None:
        """Two nodes that compute the same have the same number."""
        if operator == "Constant" or not operator or inner:
            return  # each a number of its own, when it is asked for
        moving = [name for name in node.input if name and name not in self.constant]
        numbers = [self._of(name) for name in moving]
        scaled = operator in ("Mul", "Div", "Pow") and len(moving) == 1 and node.input[0] == moving[0]
        if moving and (
            operator in _SAME or scaled or (operator == "Mul" and len(moving) > 1 and len(set(numbers)) == 1)
        ):
            self.same[node.output[0]] = numbers[0]
            return
        if operator in SENSITIVE and "Random" in operator:
            return
        given = [self._of(name) if name else -1 for name in node.input]
        if operator in _PLAIN_ORDER:
            given.sort()
        attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
        for k, name in enumerate(node.output):
            self.same[name] = self._numbered((operator, attributes, tuple(given), k))

    def _of(self, name: str) -> int:
        if name not in self.same:
            weight = self.weights.get(name)
            key: object = name
            if weight is not None and _size(weight) <= _CONTENT:
                from onnx import numpy_helper

                values = numpy_helper.to_array(weight)
                key = (str(values.dtype), values.shape, values.tobytes())
            self.same[name] = self._numbered(key)
        return self.same[name]

    def _numbered(self, key: object) -> int:
        return self.known.setdefault(key, len(self.known))

    def _positive(self, node: onnx.NodeProto) -> bool:
        """A product with weights none of which is negative is a sum."""
        from onnx import numpy_helper

        if node.op_type not in _PRODUCTS:
            return False
        given = [self.weights.get(name) for name in node.input[:2] if name in self.constant]
        held = [w for w in given if w is not None and w.data_type in (FLOAT, DOUBLE, *HALVES)]
        for weight in held:
            values = numpy_helper.to_array(weight).ravel()
            if not (values[:_FIRST] >= 0).all() or not (values >= 0).all():
                return False
        return bool(held)

    def exponent(self, node: onnx.NodeProto) -> float:
        """Of a Pow: the lowest where one is negative, else one that is no whole number, where there is one; 0.5 if not known."""
        from onnx import numpy_helper

        weight = self.weights.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or not _size(weight):
            return 0.5  # not known: it may be a root
        values = numpy_helper.to_array(weight).astype(float).ravel()
        broken = values[values != values.round()]
        return float(min(values.min(), 0) or (broken[0] if broken.size else values.min()))


def _size(tensor: onnx.TensorProto) -> int:
    import math

    return math.prod(tensor.dims)
