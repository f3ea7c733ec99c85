"""What must not be rounded, followed through a model: positions, sums, and values of constants beyond the range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .narrow_weights import NarrowPrecision, narrowed
from .rules import (
    AS_THEY_ARE,
    BOUNDED,
    COMPARES,
    CONTRACTS,
    ENDS_A_SUM,
    ENDS_HUGE,
    MOVES,
    SPREADS_A_SUM,
    SPREADS_INTEGERS,
    SPREADS_PLAIN,
    form,
)
from .values import DOUBLE, NO_TENSOR, STANDARD, WIDE_INTEGERS, Value, numbers_of

if TYPE_CHECKING:
    import onnx

__all__ = ["HUGE", "INTEGERS", "SUM", "Flags", "tensor_flag"]

INTEGERS, SUM, HUGE = "integers", "sum", "huge"


def tensor_flag(tensor: onnx.TensorProto, precision: NarrowPrecision) -> str:
    """Of a constant of any type, were it cast to float32."""
    import numpy as np

    content = numbers_of(tensor)
    if content is None:
        return ""
    found = narrowed(content.astype(np.float32), precision)
    return HUGE if found.beyond else INTEGERS if found.whole else ""


@dataclass(frozen=True, slots=True)
class Flags:
    """Finds the flag of what a node makes: INTEGERS, SUM, HUGE, or none. `shapes`: dims of values, where they are known."""

    precision: NarrowPrecision
    opset: int
    shapes: Mapping[str, tuple[int | None, ...]]

    def cast(self, node: onnx.NodeProto, source: Value) -> str:
        """Of what a Cast makes: whole numbers are positions."""
        return self.at(node, 0, source) or (INTEGERS if source.type in WIDE_INTEGERS else "")

    def passed_on(self, node: onnx.NodeProto, given: list[Value | None]) -> str:
        """The flag of what a node without float32 makes: float64 and whole numbers, which a cast later makes float32."""
        if node.domain not in STANDARD:
            return ""
        if node.op_type in ("Cast", "CastLike"):
            return self.cast(node, given[0]) if given and given[0] is not None else ""
        if node.op_type == "Range" and given and given[0] is not None and given[0].type == DOUBLE:
            return INTEGERS
        known = form(node.op_type, self.opset, self.precision)
        if known is None or not node.output:
            return ""
        if node.op_type in ("Constant", "ConstantOfShape"):
            return next((tensor_flag(a.t, self.precision) for a in node.attribute if a.name == "value"), "")
        same = known.of_output(0)
        return self.made_by(node, given, [k for k, v in enumerate(given) if v and known.of_input(k) == same])

    def made_by(self, node: onnx.NodeProto, given: list[Value | None], floats: list[int]) -> str:
        """Of what the node makes."""
        why = self.reaching(node, given, floats)
        operator = node.op_type
        if why == HUGE:
            if operator in CONTRACTS and any(
                v.stored is not None and self.at(node, k, v) == HUGE
                for k in self.places(node, given, floats)
                if (v := given[k]) is not None
            ):
                return HUGE
            gain = [k for k in floats if k in (1, 2)]
            ends = operator in ENDS_HUGE or (
                operator == "BatchNormalization" and not any(self.at(node, k, given[k]) == HUGE for k in gain)
            )
            return "" if ends else HUGE
        if operator in BOUNDED | COMPARES:
            return ""
        if why == SUM and operator in ENDS_A_SUM and not self._scaled(node, given, floats):
            return ""
        if why == INTEGERS and operator not in SPREADS_PLAIN and not self._alone(node, given, floats):
            return ""  # times an activation
        return why

    def places(self, node: onnx.NodeProto, given: list[Value | None], floats: list[int]) -> list[int]:
        """Inputs that could be narrow, and sequences of them."""
        untouched = AS_THEY_ARE.get(node.op_type, frozenset()) if node.domain in STANDARD else frozenset()
        known = form(node.op_type, self.opset, self.precision) if node.domain in STANDARD else None
        return [
            k
            for k, value in enumerate(given)
            if value is not None
            and (k in floats or value.type == NO_TENSOR)
            and k not in untouched
            and (value.stored is None or known is None or known.of_input(k) in known.narrow)
        ]

    def at(self, node: onnx.NodeProto, place: int, value: Value | None) -> str:
        """Of a value; of a constant by what is in it."""
        if value is None or value.stored is None:
            return "" if value is None else value.flag
        found = value.stored.narrow(self.precision)
        if not found.beyond:
            return INTEGERS if found.whole else ""
        if node.op_type == "Clip" and node.domain in STANDARD and place in (1, 2):
            # only a bound on the other side makes values of that size
            return HUGE if (value.stored.sign() > 0) == (place == 1) else ""
        return HUGE

    def reaching(self, node: onnx.NodeProto, given: list[Value | None], floats: list[int]) -> str:
        """The flag that reaches this node from its inputs, where it stays float32 for it."""
        places = self.places(node, given, floats)
        flags = {self.at(node, k, given[k]) for k in places}
        operator = node.op_type if node.domain in STANDARD else ""
        if HUGE in flags and operator:
            return HUGE
        if SUM in flags and operator in SPREADS_A_SUM | ENDS_A_SUM:
            return SUM
        if INTEGERS not in flags:
            return ""
        if operator in MOVES | COMPARES:
            return INTEGERS
        computed = any(v.flag == INTEGERS for k in places if (v := given[k]) is not None)
        alone = self._alone(node, given, floats)
        if (computed or alone) and operator in SPREADS_INTEGERS | BOUNDED:
            return INTEGERS
        return INTEGERS if alone and self._outer_product(node, given) else ""

    def _scaled(self, node: onnx.NodeProto, given: list[Value | None], floats: list[int]) -> bool:
        """A sum times or by a constant or a count (a mean), or a constant by a sum, is still one."""
        values = [v for k in self.places(node, given, floats) if (v := given[k]) is not None]
        others = [v for v in values if v.flag != SUM]
        return len(others) == len(values) - 1 and all(
            v.stored is not None or v.flag == INTEGERS for v in others
        )

    def _alone(self, node: onnx.NodeProto, given: list[Value | None], floats: list[int]) -> bool:
        """Nothing but positions and constants goes in."""
        values = [v for k in self.places(node, given, floats) if (v := given[k]) is not None]
        return all(v.flag == INTEGERS or v.stored is not None for v in values)

    def _outer_product(self, node: onnx.NodeProto, given: list[Value | None]) -> bool:
        """Positions times frequencies: a product whose inner size is 1, no layer of a network."""
        if node.op_type != "MatMul" or not given or given[0] is None:
            return False
        shape = self.shapes.get(given[0].name)
        return bool(shape) and shape is not None and shape[-1] == 1
