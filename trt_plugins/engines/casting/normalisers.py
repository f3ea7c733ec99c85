"""Sums of products that a value is divided by, or that are divided: norms, variances, cosines, normalisers of attention.

A sum of squares of moderate values leaves float16 (64 values of 300 sum to 5.8 million); infinite, its root divides everything
to zero. Operators that sum are kept float32 by `rules`. Here are the other ways to write such a sum: products of a value with
itself, and sums that `MatMul`, `Einsum`, `Gemm`, `Conv` or a pooling make on the way to a root or a division. Layers, which are
products with weights, are none, unless their weights are all positive (a box filter, ones) or they take products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....symbolic.nested_graphs import graphs_within
from .rules import CONTRACTS, adds_up
from .sums import ADDS, CHAIN, POOLS, TURNING, Sums
from .values import FLOAT, STANDARD

if TYPE_CHECKING:
    import onnx

__all__ = ["Normalisers", "find_normalisers"]

_LOST = "which a narrower type overflows or rounds away"
SQUARES = f"a sum of squares or a power, {_LOST}"
_SUM = f"a sum or product on the way to a root, a logarithm or a division, {_LOST}"
_PRODUCT = f"products that are divided by a norm or a sum, {_LOST}"
_TERM = f"products that are summed up or divided, {_LOST}"
_WHY = {"sum": _SUM, "root": _SUM, "product": _PRODUCT, "term": _TERM, "form": _TERM}

_TURNS = 16  # of a Loop, to follow what is carried from one to the next


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
    known = Sums({t.name: t for t in weights})
    known.read(graph)
    walk = _Backwards(types, known, Normalisers(known.squares))
    walk.backwards(graph)
    return walk.found


@dataclass(slots=True)
class _Backwards:
    """Which of the sums are divided by, or divided."""

    types: Mapping[str, int]
    known: Sums
    found: Normalisers

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
                if node.op_type in CONTRACTS | POOLS and (kinds or squares):
                    self._want(name, "term")
                    self._want(name, "product")
                if "sum" in kinds and node.op_type in CONTRACTS | ADDS:
                    self._want(name, "form")
                elif node.op_type in CHAIN:
                    for kind in kinds:
                        self._want(name, kind)

    def _wanted(self, node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
        operator = node.op_type
        given = [name for name in node.input if name]
        if operator in ("Sqrt", "Reciprocal", "Log") or (
            operator == "Pow"
            and not (self.known.exponent(node) >= 0 and self.known.exponent(node).is_integer())
        ):
            yield from self._as_root(node, given[:1])
        elif operator == "Div" and len(given) == 2 and given[1] in self.known.sums | self.known.terms:
            yield from self._as_root(node, given[1:])
            yield from ((given[0], kind) for kind in ("product", "term"))
        elif operator in ("Mul", "Einsum", "MatMul") and len(given) > 1:
            inverse = [name for name in given if name in self.known.inverse and name in self.known.sums]
            for name in inverse:
                yield name, "sum"
            if inverse:
                others = [name for name in given if len(inverse) > 1 or name != inverse[0]]
                yield from ((name, kind) for name in others for kind in ("product", "term"))
                self._mark(node, "product")  # the inverse is too small for float16 where the sum is too large
        if operator in ADDS or adds_up(node):
            yield from ((name, "term") for name in given)

    def _as_root(self, node: onnx.NodeProto, given: Sequence[str]) -> Iterator[tuple[str, str]]:
        """What is wanted of a divisor, or of the argument of a root."""
        if any(name in self.known.sums | self.known.terms for name in given):
            self._mark(node, "root")
        yield from ((name, kind) for name in given for kind in ("sum", "term"))

    def _inside(self, node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        """A graph of a node: what the node's outputs need its outputs do, and what its inputs do the node's inputs."""
        leaving = [v.name for v in graph.output[1 if node.op_type == "Loop" else 0 :]]
        entering = [v.name for v in graph.input]
        for made, inner in zip(node.output, leaving, strict=False):
            self._pass_on(made, inner)
        states = entering[2 if node.op_type == "Loop" else 0 :] if node.op_type in TURNING else []
        for _ in range(_TURNS):
            before = sum(map(len, self.found.marked.values()))
            self.backwards(graph)
            for inner, following in zip(states, leaving, strict=False):
                self._pass_on(inner, following)
            if not states or sum(map(len, self.found.marked.values())) == before:
                break
        if node.op_type in TURNING:
            for inner, given in zip(entering, node.input, strict=False):
                self._pass_on(inner, given)

    def _pass_on(self, source: str, target: str) -> None:
        for kind in self.found.marked.get(source, set()) - {"root"}:
            self._want(target, kind)

    def _mark(self, node: onnx.NodeProto, kind: str) -> None:
        self.found.marked.setdefault(node.output[0], set()).add(kind)

    def _want(self, name: str, kind: str) -> None:
        held = {
            "sum": self.known.sums,
            "product": self.known.products,
            "term": self.known.terms,
            "form": self.known.forms,
        }[kind]
        if name in held and self.types.get(name, FLOAT) == FLOAT:
            self.found.marked.setdefault(name, set()).add(kind)
