"""Standard ONNX operators as their schemas tell them: which exist at an opset, and which element types come out.

Types are carried forward without `onnx.shape_inference`: a hostile file then meets no native code, and a large one costs
no second copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from .. import dtypes

if TYPE_CHECKING:
    import onnx
    from onnx.defs import OpSchema

__all__ = ["as_text", "dtype_name", "dtype_of_text", "output_dtypes", "schema_at"]

# Outputs whose type an attribute names, and the type where it is absent (None: that of the first input).
_BY_ATTRIBUTE = {
    "Bernoulli": ("dtype", None),
    "BitCast": ("to", None),
    "BlackmanWindow": ("output_datatype", "float32"),
    "Cast": ("to", None),
    "EyeLike": ("dtype", None),
    "HammingWindow": ("output_datatype", "float32"),
    "HannWindow": ("output_datatype", "float32"),
    "MelWeightMatrix": ("output_datatype", "float32"),
    "Multinomial": ("dtype", "int32"),
    "RandomNormal": ("dtype", "float32"),
    "RandomNormalLike": ("dtype", None),
    "RandomUniform": ("dtype", "float32"),
    "RandomUniformLike": ("dtype", None),
}


def as_text(name: str | bytes) -> str:
    """A name of the file: protobuf gives bytes where it is no UTF-8."""
    return name if isinstance(name, str) else name.decode(errors="backslashreplace")


@lru_cache(maxsize=4096)
def schema_at(op_type: str, opset: int) -> OpSchema | None:
    """The schema that a standard operator has in models of an opset; None where it does not exist there."""
    import onnx

    try:
        return onnx.defs.get_schema(op_type, opset)
    except (onnx.defs.SchemaError, TypeError, OverflowError):
        return None


def dtype_name(number: int) -> str | None:
    """The name of a `TensorProto.DataType`, as torch writes it where torch has the type; None for 0."""
    if number == 0:
        return None
    try:
        return dtypes.name_of(number)
    except KeyError:
        return _other_name(number)


@lru_cache(maxsize=256)
def _other_name(number: int) -> str | None:
    import onnx

    try:
        return str(onnx.TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"type {number}"


@lru_cache(maxsize=256)
def dtype_of_text(text: str) -> str | None:
    """The element type of `tensor(float)`; None for a sequence or optional."""
    import onnx

    if not text.startswith("tensor("):
        return None
    return dtype_name(int(onnx.TensorProto.DataType.Value(text[7:-1].upper())))


def output_dtypes(node: onnx.NodeProto, schema: OpSchema, inputs: Sequence[str | None]) -> list[str | None]:
    """Element types of a standard node's outputs, by its schema; None where they cannot be told."""
    special = _special(node, inputs)
    if special is not None:
        return [special] * len(node.output)
    rules = _rules(schema.name, schema.since_version)
    found = []
    for k in range(len(node.output)):
        rule = rules[min(k, len(rules) - 1)] if rules else ()
        same = (inputs[i] for i in rule if isinstance(i, int) and i < len(inputs))
        fixed = (r for r in rule if isinstance(r, str))
        found.append(next((d for d in same if d), None) or next(fixed, None))
    return found


@lru_cache(maxsize=4096)
def _rules(op_type: str, since: int) -> tuple[tuple[int | str, ...], ...]:
    """For each output the inputs that share its type, or the only type it has."""
    schema = schema_at(op_type, since)
    if schema is None:
        return ()
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    rules: list[tuple[int | str, ...]] = []
    for output in schema.outputs:
        sharing = [k for k, i in enumerate(schema.inputs) if i.type_str == output.type_str]
        kinds = allowed.get(output.type_str, [output.type_str])
        if any(not k.startswith("tensor(") for k in kinds) and op_type not in (
            "Identity",
            "If",
            "Loop",
            "Scan",
        ):
            rules.append(())
        elif output.type_str in allowed and sharing:
            rules.append(tuple(sharing))
        else:
            name = dtype_of_text(kinds[0]) if len(kinds) == 1 else None
            rules.append((name,) if name else ())
    return tuple(rules)


def _special(node: onnx.NodeProto, inputs: Sequence[str | None]) -> str | None:
    """The type that an attribute names."""
    op = node.op_type
    first = inputs[0] if inputs else None
    if op in _BY_ATTRIBUTE:
        name, default = _BY_ATTRIBUTE[op]
        number = next((a.i for a in node.attribute if a.name == name), None)
        return dtype_name(number) if number else default or (None if op == "Cast" else first)
    if op in ("Constant", "ConstantOfShape"):
        return _constant(node)
    if op == "QuantizeLinear":
        if len(inputs) > 2 and inputs[2]:
            return inputs[2]
        number = next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
        return dtype_name(number) or "uint8"
    if op == "DequantizeLinear":
        return inputs[1] if len(inputs) > 1 else None
    return None


def _constant(node: onnx.NodeProto) -> str | None:
    for a in node.attribute:
        if a.name == "value" and a.HasField("t"):
            return dtype_name(a.t.data_type)
        for prefix, dtype in (("value_float", "float32"), ("value_int", "int64"), ("value_string", "string")):
            if as_text(a.name).startswith(prefix):
                return dtype
    return "float32" if node.op_type == "ConstantOfShape" else None
