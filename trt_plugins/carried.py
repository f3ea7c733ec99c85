"""What of a declaration a TensorRT plugin can carry; the rest is refused with the reason, before anything is built."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ..errors import DeclarationError
from ..native.shape_rules import FromKernel, ShapeRule, shape_rules
from ..native.signature import check_compilable
from ..symbolic.type_rules import TypeRules

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["CARRIED_DTYPES", "carried_by_tensorrt", "left_out", "plugin_shape_rules"]

# Of nvinfer1::DataType, those for which kernels have an element type.
CARRIED_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
_LONGEST_NAME = 1024


def carried_by_tensorrt(op: Operator) -> Operator:
    """The operator with the dtypes that TensorRT has alone.

    Raises DeclarationError for what no plugin can be.
    """
    check_compilable(op)
    _check_attributes(op)
    _check_lists(op)
    variables = {}
    for variable, types in op.types.variables.items():
        names = ", ".join(n for n, v in op.types.of_input.items() if v == variable)
        kept = tuple(t for t in types if t in CARRIED_DTYPES)
        if not kept:
            raise DeclarationError(
                f"{op.name}: `{names}` is {' or '.join(types)}, and TensorRT's tensors are "
                f"{', '.join(CARRIED_DTYPES)}: declare one of these too, or leave the operator out of the library"
            )
        variables[variable] = kept
    narrowed = copy.copy(op)
    narrowed.types = TypeRules(variables, op.types.of_input)
    narrowed.shape_cache = {}
    narrowed._forget()
    check_compilable(narrowed)
    for name, rule in narrowed.output_types.items():
        strange = [t for t in rule.dtypes if t not in CARRIED_DTYPES]
        if strange:
            raise DeclarationError(
                f"{op.name}: output `{name}` is {' or '.join(strange)}, which no TensorRT tensor is"
            )
    return narrowed


def left_out(op: Operator) -> tuple[str, ...]:
    """Declared dtypes for which the plugin has no kernel, as TensorRT has no such tensors."""
    every = dict.fromkeys(t for types in op.types.variables.values() for t in types)
    return tuple(t for t in every if t not in CARRIED_DTYPES)


def plugin_shape_rules(op: Operator) -> dict[str, ShapeRule]:
    """The rule of every output. Raises DeclarationError where a plugin cannot follow one."""
    rules = shape_rules(op)
    for name, rule in rules.items():
        if isinstance(rule, FromKernel):
            raise DeclarationError(
                f"{op.name}: output `{name}` has no shape that TensorRT can compute from the shapes of the inputs: "
                f"{rule.reason}. Leave the operator out of the library; in a model it runs as its body of standard "
                "operators, where it has one"
            )
    return rules


def _check_attributes(op: Operator) -> None:
    for a in op.interface.attributes:
        if a.onnx_type == "STRINGS":
            raise DeclarationError(
                f"{op.name}: `{a.name}` is a list of texts, for which TensorRT's plugins have no field; use one text "
                "with a separator"
            )
        # a default beyond 32 bits is refused where the operator is declared, a value when a model is exported
    if len(op.domain) >= _LONGEST_NAME or len(op.op_type) >= _LONGEST_NAME:
        raise DeclarationError(f"{op.name}: TensorRT's names have less than {_LONGEST_NAME} characters")


def _check_lists(op: Operator) -> None:
    kinds = {op.types.of_input[i.name] for i in op.interface.variadics}
    if len(kinds) > 1:
        names = ", ".join(i.name for i in op.interface.variadics)
        raise DeclarationError(
            f"{op.name}: its lists of tensors ({names}) have dtypes of their own; ONNX sees one list, of one dtype"
        )
