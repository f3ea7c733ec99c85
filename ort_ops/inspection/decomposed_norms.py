"""GELU, LayerNorm and RMSNorm written as many standard nodes, which ONNX Runtime makes one again: with a custom node in it.

The graph is read as if the custom node were not there, or, in the place of Erf or Sqrt, as if it were that operator. A
pattern counts only where its nodes are joined through the custom node.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.graph_view import GraphView

if TYPE_CHECKING:
    import onnx

__all__ = ["interrupted_pattern"]

_NEAR = 24  # nodes around the custom one in which the pattern is looked for
_FARTHEST = 6


def interrupted_pattern(view: GraphView, custom: onnx.NodeProto, into: str) -> tuple[str, str] | None:
    """("gelu", "Gelu"), ("layernorm", "LayerNormalization") or ("rmsnorm", ...): the fusion, and what it would make.

    `into`: the one input of the custom node that is no constant.
    """
    for anchor in _around(view, custom) if view.op_types & {"Erf", "Sqrt"} else ():
        if not anchor.output:
            continue
        if anchor.op_type == "Erf" and _Joined(view, custom, into).is_gelu(anchor):
            return "gelu", "Gelu"
        if anchor.op_type == "Sqrt" and (found := _Joined(view, custom, into).norm(anchor)):
            return found
    joined = _Joined(view, custom, into, in_place=True)
    if joined.is_gelu(custom):
        return "gelu", "Gelu"
    return joined.norm(custom)


def _around(view: GraphView, custom: onnx.NodeProto) -> list[onnx.NodeProto]:
    found: list[onnx.NodeProto] = []
    seen, border = {id(custom)}, [custom]
    for _ in range(_FARTHEST):
        following = []
        for node in border:
            neighbours = [view.maker(name) for name in node.input[:4] if name]
            for name in node.output[:4]:
                neighbours += islice(view.readers(name), 4)
            for near in neighbours:
                if near is not None and id(near) not in seen and len(found) < _NEAR:
                    seen.add(id(near))
                    found.append(near)
                    following.append(near)
        border = following
    return found


class _Joined:
    """The graph without the custom node: its result is its input. `crossed`: a step went over it."""

    def __init__(self, view: GraphView, custom: onnx.NodeProto, into: str, *, in_place: bool = False) -> None:
        self._view, self._custom, self._into = view, custom, into
        self._crossed = in_place
        self._in_place = in_place

    def is_gelu(self, erf: onnx.NodeProto) -> bool:
        """x · 0.5 · (1 + erf(x / √2)), with the factor before or after."""
        scaled = self._maker(self._data(erf), {"Div", "Mul"})
        added = self._reader(erf.output[0], {"Add"})
        if scaled is None or added is None or not self._has_number(added):
            return False
        x = self._data(scaled)
        product = self._reader(added.output[0], {"Mul"})
        if product is None or not x:
            return False
        others = [self._resolved(n) for n in product.input if self._resolved(n) != added.output[0]]
        half = self._maker(others[0], {"Mul"}) if others else None
        whole = bool(others) and (others[0] == x or (half is not None and self._data(half) == x))
        return self._crossed and whole

    def norm(self, root: onnx.NodeProto) -> tuple[str, str] | None:
        """(x - mean) / sqrt(mean((x - mean)²) + ε) · weight, or without the mean."""
        added = self._maker(self._data(root), {"Add"})
        mean = self._maker(self._data(added), {"ReduceMean"}) if added is not None else None
        square = self._maker(self._resolved(mean.input[0]), {"Pow", "Mul"}) if mean is not None else None
        quotient = self._reader(root.output[0], {"Div"})
        if square is None or quotient is None or added is None or not self._has_number(added):
            return None
        x = self._resolved(square.input[0])
        scaled = self._reader(quotient.output[0], {"Mul"})
        if scaled is None or self._resolved(quotient.input[0]) != x or not self._crossed:
            return None
        centred = self._view.maker(x)
        if centred is not None and centred.op_type == "Sub":
            return "layernorm", "LayerNormalization"
        return "rmsnorm", "SimplifiedLayerNormalization"

    def _resolved(self, value: str) -> str:
        if not self._in_place and value in self._custom.output:
            self._crossed = True
            return self._into
        return value

    def _maker(self, value: str, kinds: set[str]) -> onnx.NodeProto | None:
        node = self._view.maker(self._resolved(value)) if value else None
        right = node is not None and node.op_type in kinds and not node.domain and len(node.input) > 0
        return node if right else None

    def _reader(self, value: str, kinds: set[str]) -> onnx.NodeProto | None:
        """The first reader of one of the kinds; readers of the custom node's result count as readers of its input."""
        found = self._first(value, kinds)
        if found is not None:
            return found
        if not self._in_place and value == self._into and self._custom.output:
            found = self._first(self._custom.output[0], kinds)
            self._crossed |= found is not None
        return found

    def _first(self, value: str, kinds: set[str]) -> onnx.NodeProto | None:
        near = islice(self._view.readers(value), 8)
        fitting = (n for n in near if n.op_type in kinds and not n.domain and len(n.input) <= 8)
        return next((n for n in fitting if n.output), None)

    def _data(self, node: onnx.NodeProto) -> str:
        live = self._view.data_inputs(node) if len(node.input) <= 8 else []
        return self._resolved(live[0]) if len(live) == 1 else ""

    def _has_number(self, node: onnx.NodeProto) -> bool:
        return any(self._view.is_single_number(n) for n in node.input)
