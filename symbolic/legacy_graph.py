"""The `g` of a `symbolic(g, x, ...)` method, recording what it is told.

Methods of this kind were written for the TorchScript exporter, where `g` is torch's graph and `x` its value.
Here both are stand-ins that know what such methods use: `g.op("acme::Blur", x, size_i=3)`, `outputs=2`,
constants, `x.type().sizes()`, `x.type().dtype()`, `setType`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ExportError

__all__ = ["RecordedNode", "RecordedValue", "RecordingGraph", "nodes_of"]


class RecordedValue:
    """A value: an input (has a tensor) or a node's output."""

    def __init__(self, graph: RecordingGraph, tensor: Any = None, node: RecordedNode | None = None) -> None:
        self._graph, self.tensor, self._node = graph, tensor, node
        self.like: Any = tensor  # a tensor of this value's dtype and shape, once known

    def expect(self, tensor: Any) -> None:
        """This value is the operator's output: `tensor` is what `forward` computed for it."""
        self.like = tensor

    # what symbolic methods call
    def type(self) -> RecordedValue:
        return self

    def setType(self, kind: Any) -> RecordedValue:
        if self.like is None and isinstance(kind, RecordedValue):
            self.like = kind.like
        return self

    def isSubtypeOf(self, _: Any) -> bool:
        return True  # asked of a value's type: a tensor it is

    def isCompleteTensor(self) -> bool:
        return self.like is not None

    def sizes(self) -> list[Any] | None:
        return None if self.like is None else list(self.like.shape)

    def varyingSizes(self) -> list[Any] | None:
        return self.sizes()

    def dim(self) -> int | None:
        return None if self.like is None else self.like.dim()

    def dtype(self) -> Any:
        return None if self.like is None else self.like.dtype

    def scalarType(self) -> str | None:
        names = {"float32": "Float", "float64": "Double", "float16": "Half", "int64": "Long", "int32": "Int"}
        name = str(self.dtype()).removeprefix("torch.")
        return None if self.like is None else names.get(name, name.capitalize())

    def with_sizes(self, sizes: Any) -> RecordedValue:
        kind = RecordedValue(self._graph)
        if self.like is not None and None not in sizes:
            kind.like = self.like.new_empty(tuple(sizes))
        return kind

    def with_dtype(self, dtype: Any) -> RecordedValue:
        kind = RecordedValue(self._graph)
        if self.like is not None:
            kind.like = self.like.new_empty(self.like.shape, dtype=dtype)
        return kind

    def node(self) -> RecordedNode:
        if self._node is None:
            raise ExportError(
                f"{self._graph.name}.symbolic asks for the node behind an input, which has none here"
            )
        return self._node


@dataclass(slots=True, eq=False)
class RecordedNode:
    """One ONNX node as `g.op` was told."""

    domain: str
    op_type: str
    version: int | None
    inputs: list[RecordedValue | None]
    attributes: dict[str, Any]
    outputs: list[RecordedValue]


class RecordingGraph:
    """Stands for torch's graph context."""

    def __init__(self, name: str) -> None:
        self.name = name

    def op(self, name: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Record a node. Attribute names end in their type as torch wants it: `_i _f _s _t`."""
        domain, _, op_type = name.rpartition("::")
        domain = "" if domain == "onnx" else domain
        if domain == "aten":
            raise ExportError(f"{self.name}.symbolic emits {name}, which no ONNX runtime knows")
        values = [self._value(v) for v in inputs]
        read = {}
        for key, value in attributes.items():
            plain, separator, kind = key.rpartition("_")
            if not separator or kind not in ("i", "f", "s", "t"):
                raise ExportError(
                    f"{self.name}.symbolic: attribute `{key}` needs a type suffix: _i, _f, _s or _t"
                )
            if value is not None:
                read[plain] = self._attribute(plain, kind, value)
        if not domain and op_type == "Constant" and len(read) == 1 and "value" in read:
            return RecordedValue(self, tensor=read["value"])
        if any(hasattr(v, "shape") for v in read.values()):
            raise ExportError(f"{self.name}.symbolic: tensor attributes (`_t`) are only known of Constant")
        node = RecordedNode(domain, op_type, 1 if domain else None, values, read, [])
        node.outputs = [RecordedValue(self, node=node) for _ in range(outputs)]
        return node.outputs[0] if outputs == 1 else tuple(node.outputs)

    def _value(self, value: Any) -> RecordedValue | None:
        import torch

        if value is None or isinstance(value, RecordedValue):
            return value
        if isinstance(value, (bool, int, float)):
            value = torch.tensor(value)
        if isinstance(value, torch.Tensor):
            return RecordedValue(self, tensor=value)
        raise ExportError(f"{self.name}.symbolic gives {type(value).__name__} to g.op as an input")

    def _attribute(self, name: str, kind: str, value: Any) -> Any:
        import torch

        if kind == "t":
            return value if isinstance(value, torch.Tensor) else torch.tensor(value)
        if isinstance(value, (torch.Tensor, RecordedValue)) or type(value).__name__.startswith("Sym"):
            raise ExportError(
                f"{self.name}.symbolic: attribute `{name}` is not a constant: it depends on the input"
            )
        convert = {"i": int, "f": float, "s": str}[kind]
        if isinstance(value, (list, tuple)):
            if not value:
                raise ExportError(f"{self.name}.symbolic: attribute `{name}` is an empty list; leave it out")
            return [convert(v) for v in value]
        return convert(value)


def nodes_of(values: Sequence[RecordedValue]) -> list[RecordedNode]:
    """The nodes that these values need, in order; what leads to no output is left out."""
    order: dict[int, RecordedNode] = {}

    def visit(node: RecordedNode | None) -> None:
        if node is None or id(node) in order:
            return
        for value in node.inputs:
            if value is not None:
                visit(value._node)
        order[id(node)] = node

    for value in values:
        visit(value._node)
    return list(order.values())
