"""Which values must be computed in float32 because the place that takes them needs the digits.

The grid of a GridSample stays float32, and so must be what it is computed by: rounded to float16 first, it has no more than
the type. A walk from such places back through the graph finds it: elementwise operators and moves up to the last layer (a
matrix product, a convolution), that layer included, or up to inputs and weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....symbolic.nested_graphs import graphs_within
from .narrow_weights import NarrowPrecision
from .plugin_dtypes import PluginDtypes
from .rules import BOUNDED, CONTRACTS, DIGITS, MOVES, SPREADS_INTEGERS
from .values import DOUBLE, FLOAT, STANDARD, WIDE_INTEGERS, short_name

if TYPE_CHECKING:
    import onnx

__all__ = ["Digits", "find_digits"]

# What computes coordinates element by element, or moves them: beyond these the digits of the inputs matter less.
_CHAIN = MOVES | SPREADS_INTEGERS | BOUNDED | {
    "Atan", "BatchNormalization", "Cast", "CastLike", "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish",
    "PRelu", "Selu", "Softsign", "Swish", "ThresholdedRelu",
}  # fmt: skip
_ARGUMENTS = frozenset({"Sin", "Cos"})
_TURNING = frozenset({"Loop", "Scan"})  # the node's inputs are their graph's inputs
_FAR = 48  # arithmetic steps from the place that needs the digits; no network has as many between two layers
_MANY = 2  # layers from which on one does not matter any more
_TURNS = 64  # of a Loop, to follow what is carried from one to the next; nested ones multiply


@dataclass(slots=True)
class Digits:
    """What the walk found.

    Attributes:
        why: of each value that is to be computed in float32, the reason that its node is listed with.
        steps: how many arithmetic nodes are between the value and the place that needs its digits.
        far: values that are too many steps from it to be followed.
    """

    why: dict[str, str] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    far: list[str] = field(default_factory=list)

    def reason(self, node: onnx.NodeProto) -> str:
        """Why the node is to compute in float32; empty where it need not."""
        return next((self.why[name] for name in node.output if name in self.why), "")


def find_digits(
    graph: onnx.GraphProto,
    types: Mapping[str, int],
    shapes: Mapping[str, tuple[int | None, ...]],
    plugins: Mapping[tuple[str, str], PluginDtypes],
    precision: NarrowPrecision,
) -> Digits:
    """Walk the graph, and those inside of its nodes, once forwards and once backwards.

    Args:
        types, shapes: of values, where they are known.
    """
    walk = _Walk(types, shapes, plugins, short_name(precision), set(), {}, Digits())
    walk.forwards(graph)
    walk.backwards(graph)
    walk.found.far = [name for name in dict.fromkeys(walk.found.far) if name not in walk.found.why]
    return walk.found


@dataclass(slots=True)
class _Walk:
    """`constants`: weights and what Constant makes. `layers`: how many layers a value has gone through, up to `_MANY`."""

    types: Mapping[str, int]
    shapes: Mapping[str, tuple[int | None, ...]]
    plugins: Mapping[tuple[str, str], PluginDtypes]
    short: str
    constants: set[str]
    layers: dict[str, int]
    found: Digits

    # --- forwards: layers ------------------------------------------------------------------------------------------

    def forwards(self, graph: onnx.GraphProto, given: Sequence[int] = ()) -> list[int]:
        """Count the layers before each value. `given`: before the graph's inputs; returns those before its outputs."""
        self.constants |= {t.name for t in graph.initializer}
        for k, value in enumerate(graph.input):
            self.layers[value.name] = given[k] if k < len(given) else 0
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in STANDARD:
                self.constants.update(node.output)
                continue
            before = [self.layers.get(name, 0) for name in node.input]
            most = max(before, default=0)
            if inner := list(graphs_within(node)):
                leaving = [self.forwards(g, before if node.op_type in _TURNING else ()) for g in inner]
                most = max([most, *(n for each in leaving for n in each)])
            elif node.domain not in STANDARD:
                most = _MANY
            elif self._is_layer(node):
                most = min(most + 1, _MANY)
            self.layers.update(dict.fromkeys(node.output, most))
        return [self.layers.get(value.name, 0) for value in graph.output]

    def _is_layer(self, node: onnx.NodeProto) -> bool:
        """A product with weights. Positions times frequencies, whose inner size is 1, is none."""
        if node.op_type not in CONTRACTS or not any(name in self.constants for name in node.input):
            return False
        shape = self.shapes.get(node.input[0])
        return not (node.op_type == "MatMul" and shape and shape[-1] == 1)

    # --- backwards: digits -----------------------------------------------------------------------------------------

    def backwards(self, graph: onnx.GraphProto) -> None:
        for node in reversed(graph.node):
            for place, why in self._places(node):
                if place < len(node.input):
                    self._want(node.input[place], why, 0)
            for inner in graphs_within(node):
                self._inside(node, inner)
            if (
                not (why := self.found.reason(node))
                or node.domain not in STANDARD
                or any(graphs_within(node))
            ):
                continue
            steps = min(self.found.steps[name] for name in node.output if name in self.found.steps)
            steps += node.op_type not in MOVES
            for name in node.input:
                if node.op_type in _CHAIN or self.layers.get(name, 0) == 0:
                    self._want(name, why, steps)

    def _places(self, node: onnx.NodeProto) -> Iterator[tuple[int, str]]:
        """Inputs of a node that need the digits, and why what computes them stays float32."""
        if node.domain not in STANDARD:
            yield from self._of_plugin(node)
            return
        for place, what in DIGITS.get(node.op_type, {}).items():
            yield place, f"it computes {what}, which needs the digits"
        if node.op_type == "Cast":
            target = next((a.i for a in node.attribute if a.name == "to"), 0)
            if target in WIDE_INTEGERS:
                yield 0, "whole numbers are made of it, which float32 alone holds exactly"
            elif target == DOUBLE:
                yield 0, "the model goes on with it in float64, for its digits"
        elif node.op_type in _ARGUMENTS and all(self.layers.get(name, 0) < _MANY for name in node.input):
            why = f"the argument of {node.op_type} is a position, which needs the digits"
            for name in node.output:
                self._want(name, why, 0)
            yield 0, why

    def _of_plugin(self, node: onnx.NodeProto) -> Iterator[tuple[int, str]]:
        """Inputs that a plugin takes in float32 alone, though it takes others in the narrow type."""
        plugin = self.plugins.get((node.domain, node.op_type))
        if plugin is None or plugin.data_sizes:
            return
        narrow = {name for row, _ in plugin.rows for name, dtype in row.items() if dtype == self.short}
        wide = {
            name
            for row, _ in plugin.rows
            if self.short in row.values()
            for name, dtype in row.items()
            if dtype == "float32"
        }
        for place, value in enumerate(node.input):
            name = plugin.name_of(place, len(node.input))
            if value and name in wide - narrow:
                yield (
                    place,
                    f"it computes {name} of {node.domain}::{node.op_type}, which takes it in float32 alone",
                )

    def _inside(self, node: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        """A graph of a node: what the node's outputs need its outputs do, and what its inputs do the node's inputs."""
        leaving = [v.name for v in graph.output]
        if node.op_type == "Loop":
            leaving = leaving[1:]  # the first says whether to go on
        entering = [v.name for v in graph.input]
        for made, inner in zip(node.output, leaving, strict=False):
            self._pass_on(made, inner)
        if node.op_type not in _TURNING:
            self.backwards(graph)
            return
        first = 2 if node.op_type == "Loop" else 0
        states = len(graph.input) - first
        if node.op_type == "Scan":
            states -= next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)
        for _ in range(_TURNS):
            before = len(self.found.why)
            self.backwards(graph)
            for inner, next_turn in zip(entering[first : first + states], leaving, strict=False):
                self._pass_on(inner, next_turn)
            if len(self.found.why) == before:
                break
        else:
            self.found.far += leaving[:states]
        for inner, given in zip(entering, node.input, strict=False):
            self._pass_on(inner, given)

    def _pass_on(self, source: str, target: str) -> None:
        if source in self.found.why and target:
            self._want(target, self.found.why[source], self.found.steps[source])

    def _want(self, name: str, why: str, steps: int) -> None:
        if not name or name in self.constants or self.types.get(name, FLOAT) != FLOAT:
            return
        if steps > _FAR:
            self.found.far.append(name)
        elif steps < self.found.steps.get(name, _FAR + 1):
            self.found.why[name] = why
            self.found.steps[name] = steps
