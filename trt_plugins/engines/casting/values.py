"""What a cast keeps track of: values with their types, constants in both forms, graphs inside of graphs, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..record import KeptFloat32
from .narrow_weights import Array, Narrowed, NarrowPrecision, narrowed

if TYPE_CHECKING:
    import onnx

__all__ = [
    "DOUBLE",
    "FLOAT",
    "HALVES",
    "NO_TENSOR",
    "STANDARD",
    "WIDE_INTEGERS",
    "Findings",
    "NarrowCalls",
    "Scope",
    "Stored",
    "Value",
    "copied",
    "element_types",
    "numbers_of",
    "short_name",
    "to_tensor",
]

FLOAT = 1  # TensorProto.FLOAT
DOUBLE = 11
HALVES = {10: "float16", 16: "bfloat16"}  # the model's own, which are left as they are
WIDE_INTEGERS = frozenset({4, 5, 6, 7, 12, 13})  # uint16, int16, int32, int64, uint32, uint64
NO_TENSOR = -1  # a sequence or an optional
STANDARD = ("", "ai.onnx")


@dataclass(slots=True)
class Value:
    """A value of a graph.

    Attributes:
        type: its element type in the original, None where not known.
        narrow: it is narrower now.
        flag: why what is computed from it stays float32; of float64 and whole numbers, once they are cast to float32.
        stored: a float32 constant. content: a constant of another type.
    """

    name: str
    type: int | None
    narrow: bool = False
    flag: str = ""
    stored: Stored | None = None
    content: Array | None = None


@dataclass(slots=True)
class Stored:
    """A constant, its two forms made when they are asked for."""

    tensor: onnx.TensorProto
    graph: onnx.GraphProto
    wide_used: bool = False
    narrow_name: str = ""
    converted: Narrowed | None = None

    def narrow(self, precision: NarrowPrecision) -> Narrowed:
        """Its values in the narrower type, converted once."""
        from onnx import numpy_helper

        if self.converted is None:
            self.converted = narrowed(numpy_helper.to_array(self.tensor), precision)
        return self.converted

    def sign(self) -> float:
        """Of its value that is largest in magnitude."""
        import numpy as np
        from onnx import numpy_helper

        values = numpy_helper.to_array(self.tensor).ravel()
        return float(np.sign(values[np.nanargmax(np.abs(values))])) if values.size else 0.0


@dataclass(slots=True)
class Scope:
    parent: Scope | None
    graph: onnx.GraphProto
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    casts: dict[tuple[str, bool], str] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None

    def cast(self, key: tuple[str, bool]) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if key in scope.casts:
                return scope.casts[key]
            scope = scope.parent
        return None


@dataclass(slots=True)
class NarrowCalls:
    """Calls of a function with narrow values: the inputs, and of each narrow output an input of the same type."""

    inputs: set[int] = field(default_factory=set)
    outputs: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Findings:
    """What a reader should know.

    Attributes:
        integers, huge: values that are cast though they may not survive it.
        digits: values whose digits are needed, and which a plugin makes in the narrow type.
    """

    kept: list[KeptFloat32] = field(default_factory=list)
    integers: list[str] = field(default_factory=list)
    huge: list[str] = field(default_factory=list)
    digits: list[str] = field(default_factory=list)
    zeros: dict[str, tuple[int, int]] = field(default_factory=dict)
    subnormal: dict[str, tuple[int, int]] = field(default_factory=dict)
    rounded: dict[str, tuple[int, int]] = field(default_factory=dict)
    newer: dict[str, int] = field(default_factory=dict)
    bodies: dict[tuple[str, str], NarrowCalls] = field(default_factory=dict)
    quantized: bool = False
    narrow_nodes: int = 0


def element_types() -> dict[str, int]:
    """Our names of dtypes -> ONNX's numbers."""
    import onnx

    kinds: Any = onnx.TensorProto
    return {
        "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
        "float16": kinds.FLOAT16, "float64": kinds.DOUBLE, "bfloat16": kinds.BFLOAT16, "uint32": 12, "uint64": 13,
    }  # fmt: skip


def numbers_of(tensor: onnx.TensorProto) -> Array | None:
    """The numbers in a constant that a cast could make float32 of, with rounding; None for other types."""
    from onnx import numpy_helper

    if tensor.data_type not in (FLOAT, DOUBLE, *HALVES, *WIDE_INTEGERS):
        return None
    return numpy_helper.to_array(tensor)


def short_name(precision: NarrowPrecision) -> str:
    return "float16" if precision == "fp16" else "bfloat16"


def to_tensor(values: Narrowed, name: str) -> onnx.TensorProto:
    from onnx import numpy_helper

    return numpy_helper.from_array(values.values, name)


def copied(tensor: onnx.TensorProto) -> onnx.TensorProto:
    made = type(tensor)()
    made.CopyFrom(tensor)
    return made
