"""What of a declaration a TensorRT plugin can carry; the rest is refused with the reason, before anything is built."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DeclarationError
from ..native.data_sizes import DataSizes, data_sizes
from ..native.planning import TAKE_OTHERS
from ..native.shape_rules import FromKernel, ShapeRule, shape_rules
from ..native.signature import check_compilable, fingerprint
from ..symbolic.checking.bound_check import bound_fault
from ..symbolic.type_rules import TypeRules

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = [
    "CARRIED_DTYPES",
    "PluginShapes",
    "carried_by_tensorrt",
    "left_out",
    "plugin_fingerprint",
    "plugin_shapes",
]

# Of nvinfer1::DataType, those for which kernels have an element type.
CARRIED_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
_LONGEST_NAME = 1024

# TensorRT's parser imports these itself, whatever the domain (as it does every name of ONNX's own, which are refused when
# an operator is declared): onnx-tensorrt, onnxOpImporters.cpp.
_IMPORTED_NAMES = (
    "ImageScaler",
    "ParametricSoftplus",
    "ScaledTanh",
    "FallbackPluginImporter",
    "LocalFunctionImporter",
)


def carried_by_tensorrt(op: Operator) -> Operator:
    """The operator with the dtypes that TensorRT has alone.

    Raises DeclarationError for what no plugin can be.
    """
    check_compilable(op)
    _check_name(op)
    _check_attributes(op)
    _check_lists(op)
    variables = {}
    for variable, types in op.types.variables.items():
        names = ", ".join(n for n, v in op.types.of_input.items() if v == variable)
        kept = tuple(t for t in types if t in CARRIED_DTYPES)
        if not kept:
            raise DeclarationError(
                f"{op.name}: `{names}` is {' or '.join(types)}, and TensorRT's tensors are "
                f"{', '.join(CARRIED_DTYPES)}: declare one of these too, or leave the operator out of the library: {TAKE_OTHERS}"
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


@dataclass(frozen=True, slots=True)
class PluginShapes:
    """What a plugin knows of its outputs: the rule of each; where the data decides sizes, with those at their bounds."""

    rules: Mapping[str, ShapeRule]
    data_sizes: DataSizes | None


def plugin_shapes(op: Operator) -> PluginShapes:
    """Raises DeclarationError where a plugin cannot follow a rule, or the reference exceeds a declared bound."""
    sizes = data_sizes(op)
    rules = shape_rules(op, "bound") if sizes is None else sizes.bound
    for name, rule in rules.items():
        if isinstance(rule, FromKernel):
            bound = " Declare its upper bound (@op.bound)." if "data" in rule.reason else ""
            raise DeclarationError(
                f"{op.name}: output `{name}` has no shape that TensorRT can compute from the shapes of the inputs: "
                f"{rule.reason}.{bound} Or leave the operator out of the library ({TAKE_OTHERS}); in a model it runs as its "
                "body of standard operators, where it has one"
            )
    fault = bound_fault(op)
    if fault is not None:
        raise DeclarationError(f"{op.name}: {fault}")
    return PluginShapes(rules, sizes)


def plugin_fingerprint(op: Operator, shapes: PluginShapes) -> str:
    """As `native.signature.fingerprint`; changes with the bounds too, by which an engine holds memory for the kernel."""
    plain = fingerprint(op)
    if shapes.data_sizes is None:
        return plain
    return hashlib.sha256(f"{plain} {shapes.data_sizes.numbers} {shapes.rules}".encode()).hexdigest()[:16]


def _check_name(op: Operator) -> None:
    if op.op_type in _IMPORTED_NAMES or op.op_type.startswith("TRT_"):
        raise DeclarationError(
            f"{op.name}: TensorRT's parser takes a node of type `{op.op_type}` for an operator of its own, whatever its domain, "
            f'and never looks for a plugin: give it another type, onnx="{op.domain}::My{op.op_type}"'
        )


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
