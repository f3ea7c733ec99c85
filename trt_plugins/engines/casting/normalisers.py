"""Sums of products that a value is divided by, or that are divided: norms, variances, cosines, normalisers of attention.

A sum of squares of moderate values leaves float16 (64 values of 300 sum to 5.8 million); infinite, its root divides everything
to zero. Operators that sum are kept float32 by `rules`. Here are the other ways to write such a sum: products of a value with
itself, and sums that `MatMul`, `Einsum`, `Gemm`, `Conv` or a pooling make on the way to a root or a division. Layers, which are
products with weights, are none, unless their weights are all positive (a box filter, ones) or they take products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....symbolic.nested_graphs import graphs_within
from .rules import BOUNDED, COMPARES, CONTRACTS, MOVES, SENSITIVE, adds_up
from .values import DOUBLE, FLOAT, HALVES, STANDARD

if TYPE_CHECKING:
    import onnx

__all__ = ["Normalisers", "find_normalisers"]

_LOST = "which a narrower type overflows or rounds away"
SQUARES = f"a sum of squares or a power, {_LOST}"
_SUM = f"a sum or product on the way to a root, a logarithm or a division, {_LOST}"
_PRODUCT = f"products that are divided by a norm or a sum, {_LOST}"
_TERM = f"products that are summed up or divided, {_LOST}"
_WHY = {"sum": _SUM, "root": _SUM, "product": _PRODUCT, "term": _TERM, "form": _TERM}

_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"})
_POOLS = frozenset({"AveragePool", "GlobalAveragePool"})
_ADDS = frozenset(
    {
        "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceProd", "ReduceLogSum", "CumSum", "CumProd",
        "LpPool", "GlobalLpPool", "DFT", "STFT", "Det", "Col2Im",
    }
)  # fmt: skip
_LINEAR = MOVES | {"Cast", "CastLike", "Neg", "Abs", "Relu", "LeakyRelu", "PRelu", "Clip", "Max", "Min"}
# On the way from a sum to a root or a division.
_CHAIN = _LINEAR | {
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
_TURNING = frozenset({"Loop", "Scan"})
_TURNS = 16
_FIRST = 64  # weights, of which nearly always some are negative
_CONTENT = 1024  # elements of a constant that is told from others by its values


@dataclass(slots=True)
class Normalisers:
    """What the walk found.

    Attributes:
        squares: values that are powers of one value, or sums of them.
        marked: values to be computed in float32. `sum`: on the way to a root or a division; `root`: that; `product`: divided
            by such a sum; `term`: a product that is summed up or divided; `form`: the layer W of a quadratic form x·Wx.
    """

    squares: set[str] = field(default_factory=set)
    marked: dict[str, set[str]] = field(default_factory=dict)

    def reason(self, node: onnx.NodeProto) -> str:
        """Why the node is to compute in float32; empty where it need not."""
        if any(name in self.squares for name in node.output):
            return SQUARES
        kinds = {kind for name in node.output for kind in self.marked.get(name, ())}
        return next((_WHY[kind] for kind in _WHY if kind in kinds), "")

    def is_sum(self, node: onnx.NodeProto) -> bool:
        """Whether what is computed from it at once stays float32 too."""
        return any(name in self.squares or "sum" in self.marked.get(name, ()) for name in node.output)


def find_normalisers(
    graph: onnx.GraphProto, types: Mapping[str, int], weights: Sequence[onnx.TensorProto]
) -> Normalisers:
    """Walk the graph, and those inside of its nodes, once forwards and once backwards. `types`: where they are known."""
    walk = _Walk(types, {t.name: t for t in weights})
    walk.forwards(graph)
    walk.backwards(graph)
    return walk.found


@dataclass(slots=True)
class _Walk:
    """What is known of values.

    Attributes:
        weights: constants with their values. constant: those, and what is computed from them alone.
        same: a number of each value, equal for values that are the same up to their order, sign, scale and power.
        sums, products, terms: computed from a sum, a sum of products, or a product of two activations, along `_CHAIN`.
        forms: Wx where x·Wx is computed, and that. layers: of what a layer makes, the number of what it takes.
        small: within -1 to 1. inverse: one divided by something.
    """

    types: Mapping[str, int]
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
    found: Normalisers = field(default_factory=Normalisers)

    # --- forwards: what values are -----------------------------------------------------------------------------------

    def forwards(self, graph: onnx.GraphProto) -> None:
        self.weights |= {t.name: t for t in graph.initializer}
        self.constant |= {t.name for t in graph.initializer}
        for node in graph.node:
            for inner in graphs_within(node):
                self._forget(v.name for v in inner.input)
                self._enter(node, inner)
                self.forwards(inner)
                self._leave(node, inner)
            self._know(node)

    def _enter(self, node: onnx.NodeProto, inner: onnx.GraphProto) -> None:
        """What the inputs of a Loop or Scan are in its graph."""
        if node.op_type in _TURNING:
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
            self.found.squares.add(node.output[0])
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
        elif operator in _POOLS | _ADDS or adds_up(node):
            self.sums.update(node.output)
            if takes_terms:
                self.products.update(node.output)
        elif operator in _CHAIN:
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
            or (operator == "Pow" and self._exponent(node) < 0)
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

    def _exponent(self, node: onnx.NodeProto) -> float:
        from onnx import numpy_helper

        weight = self.weights.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or not _size(weight):
            return 0.5  # not known: it may be a root
        values = numpy_helper.to_array(weight).astype(float).ravel()
        broken = values[values != values.round()]
        return float(min(values.min(), 0) or (broken[0] if broken.size else values.min()))

    # --- backwards: which of them are divided by, or divided ---------------------------------------------------------

    def backwards(self, graph: onnx.GraphProto) -> None:
        for node in reversed(graph.node):
            for inner in graphs_within(node):
                self._inside(node, inner)
            if node.domain not in STANDARD or any(graphs_within(node)):
                continue
            for name, kind in self._wanted(node):
                self._want(name, kind)
            kinds = {kind for name in node.output for kind in self.found.marked.get(name, ())} - {"root"}
            squares = any(name in self.found.squares for name in node.output)
            for name in node.input:
                if node.op_type in CONTRACTS | _POOLS and (kinds or squares):
                    self._want(name, "term")
                    self._want(name, "product")
                if "sum" in kinds and node.op_type in CONTRACTS | _ADDS:
                    self._want(name, "form")
                elif node.op_type in _CHAIN:
                    for kind in kinds:
                        self._want(name, kind)

    def _wanted(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        operator = node.op_type
        given = [name for name in node.input if name]
        if operator in ("Sqrt", "Reciprocal", "Log") or (
            operator == "Pow" and not (self._exponent(node) >= 0 and self._exponent(node).is_integer())
        ):
            yield from self._as_root(node, given[:1])
        elif operator == "Div" and len(given) == 2 and given[1] in self.sums | self.terms:
            yield from self._as_root(node, given[1:])
            yield from ((given[0], kind) for kind in ("product", "term"))
        elif operator in ("Mul", "Einsum", "MatMul") and len(given) > 1:
            inverse = [name for name in given if name in self.inverse and name in self.sums]
            for name in inverse:
                yield name, "sum"
            if inverse:
                others = [name for name in given if len(inverse) > 1 or name != inverse[0]]
                yield from ((name, kind) for name in others for kind in ("product", "term"))
                self._mark(node, "product")  # the inverse is too small for float16 where the sum is too large
        if operator in _ADDS or adds_up(node):
            yield from ((name, "term") for name in given)

    def _as_root(self, node: onnx.NodeProto, given: Sequence[str]) -> Iterator[tuple[str, str]]:
        """What is wanted of a divisor, or of the argument of a root."""
        if any(name in self.sums | self.terms for name in given):
            self._mark(node, "root")
        yield from ((name, kind) for name in given for kind in ("sum", "term"))

    def _inside(self, node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        """A graph of a node: what the node's outputs need its outputs do, and what its inputs do the node's inputs."""
        leaving = [v.name for v in graph.output[1 if node.op_type == "Loop" else 0 :]]
        entering = [v.name for v in graph.input]
        for made, inner in zip(node.output, leaving, strict=False):
            self._pass_on(made, inner)
        states = entering[2 if node.op_type == "Loop" else 0 :] if node.op_type in _TURNING else []
        for _ in range(_TURNS):
            before = sum(map(len, self.found.marked.values()))
            self.backwards(graph)
            for inner, following in zip(states, leaving, strict=False):
                self._pass_on(inner, following)
            if not states or sum(map(len, self.found.marked.values())) == before:
                break
        if node.op_type in _TURNING:
            for inner, given in zip(entering, node.input, strict=False):
                self._pass_on(inner, given)

    def _pass_on(self, source: str, target: str) -> None:
        for kind in self.found.marked.get(source, set()) - {"root"}:
            self._want(target, kind)

    def _mark(self, node: onnx.NodeProto, kind: str) -> None:
        self.found.marked.setdefault(node.output[0], set()).add(kind)

    def _want(self, name: str, kind: str) -> None:
        held = {"sum": self.sums, "product": self.products, "term": self.terms, "form": self.forms}[kind]
        if name in held and self.types.get(name, FLOAT) == FLOAT:
            self.found.marked.setdefault(name, set()).add(kind)


def _size(tensor: onnx.TensorProto) -> int:
    import math

    return math.prod(tensor.dims)
