"""A non-tensor argument as an ONNX attribute: its type, its value there and back, and what has no place in ONNX."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from ..errors import ExportError
from . import dtypes

__all__ = ["REFUSED", "Attribute", "decode_attribute", "encode_attribute", "read_attribute"]

# The element type of an attribute, by torch type; bool and dtype are integers in ONNX.
_ATTRIBUTE_TYPES = {
    "int": "INT",
    "SymInt": "INT",
    "float": "FLOAT",
    "bool": "INT",
    "str": "STRING",
    "ScalarType": "INT",
}
REFUSED = {
    "number": "a Scalar is an int or a float, and ONNX needs to know which: declare it as `float` or `int`",
    "complex": "ONNX has no complex attribute: pass the real and imaginary parts as two floats",
    "Device": "a device has no meaning in an exported model",
    "Layout": "a layout has no meaning in an exported model",
    "MemoryFormat": "a memory format has no meaning in an exported model",
    "Generator": "a random generator cannot be carried into a model",
    "Dict": "ONNX has no dictionary attribute",
}
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FLOAT32_MAX = 3.4028234663852886e38
_FLOAT32_TINY = 1.401298464324817e-45


@dataclass(frozen=True, slots=True)
class Attribute:
    """A non-tensor argument. `kind` is the torch element type, `onnx_type` the name in AttributeProto."""

    name: str
    kind: str
    is_list: bool
    optional: bool
    required: bool
    default: Any = None

    @property
    def onnx_type(self) -> str:
        return _ATTRIBUTE_TYPES[self.kind] + ("S" if self.is_list else "")


def read_attribute(argument: Any, text: str) -> Attribute | str:
    optional = text.startswith("Optional[")
    inner = text[len("Optional[") : -1] if optional else text
    match = re.fullmatch(r"List\[(\w+)\]", inner)
    element = match[1] if match else inner
    if element not in _ATTRIBUTE_TYPES or (match and element == "ScalarType"):
        reason = REFUSED.get(element, "ONNX has no attribute of this type")
        return f"`{argument.name}: {text}`: {reason}"
    has_default = argument.has_default_value()
    default = argument.default_value if has_default else None
    if element == "ScalarType" and default is not None:
        default = dtypes.from_scalar_type(default)
    # torch spells every integer `int` in `type`; only the textual schema tells `SymInt` apart.
    return Attribute(argument.name, element, match is not None, optional, not has_default, default)


def encode_attribute(qualname: str, attribute: Attribute, value: Any) -> Any:
    """A torch argument as the value of its ONNX attribute; refuses what the field cannot hold.

    TensorRT reads INT and INTS as 32 bits and silently wraps; FLOAT is float32 in ONNX itself.
    """

    def fault(reason: str) -> ExportError:
        return ExportError(
            f"{qualname}: argument `{attribute.name}` = {value!r} cannot be an attribute: {reason}"
        )

    def element(v: Any) -> int | float | str:
        kind = attribute.kind
        if kind == "ScalarType":
            return dtypes.onnx_number(v)
        if kind == "str":
            if not isinstance(v, str):
                raise fault("a string is expected")
            if "\0" in v:
                raise fault("a NUL character ends a string in TensorRT")
            return v
        if not isinstance(v, (int, float)):
            tensor = "0-d tensor"
            if attribute.is_list:
                tensor = "1-d int64 tensor" if kind in ("int", "SymInt") else "1-d tensor"
            raise fault(
                f"its value depends on the input (a size, or data); attributes are constants: pass it as a {tensor}"
            )
        if kind == "bool":
            return int(bool(v))
        if kind in ("int", "SymInt"):
            if not _INT32_MIN <= v <= _INT32_MAX:
                raise fault("TensorRT reads integers as 32 bits, where this one would silently wrap")
            return int(v)
        number = float(v)
        if math.isfinite(number) and abs(number) > _FLOAT32_MAX:
            raise fault("ONNX stores floats as float32, where this one is infinite")
        if number != 0 and abs(number) < _FLOAT32_TINY:
            raise fault("ONNX stores floats as float32, where this one is zero")
        return number

    if not attribute.is_list:
        return element(value)
    items = [value] if isinstance(value, (int, float, str)) else list(value)
    return [element(v) for v in items]


def decode_attribute(attribute: Attribute, value: Any) -> Any:
    """The torch argument that an ONNX attribute stands for; None where it is left out."""
    if value is None:
        return None
    if attribute.kind == "ScalarType":
        return value if not isinstance(value, int) else dtypes.torch_dtype(value)
    if attribute.kind == "bool":
        return [bool(v) for v in value] if attribute.is_list else bool(value)
    return list(value) if attribute.is_list else value
