"""What a kernel looks like in C++: a template over the operator's dtypes, found by the operator's name.

::

    template <class T>
    void swish(const Parallel& par, In<T> x, In<T> beta, int64_t axis, Out<T> y);

After `Parallel` come the arguments in the order of the torch schema, then the outputs:

======================  ==============================================================================
`Tensor`, `Tensor?`     `In<T>`; an absent one is false
`Tensor[]`              `InList<T>`
`Tensor(a!)`            `Out<T>` with the argument's content: the kernel writes into it
`float`, `int`          `double`, `int64_t`; a list `Span<double>`; an optional one `std::optional<double>`
`bool`, `str`           `bool`, `std::string_view`
`ScalarType`            `int64_t`, the number of the dtype in ONNX
an output               `Out<T>`, allocated; `NewOut<T>` where only the kernel knows the shape
======================  ==============================================================================

Nothing is converted (`Attribute` in operator_call.h): a parameter of another type, `float` or `int`, does not compile.
An argument that has a single dtype by the declaration is not a template parameter: `In<bool> mask`.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DeclarationError
from ..symbolic import dtypes
from .cpp_types import attribute_type, element_type, identifier

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["KernelRow", "check_compilable", "fingerprint", "function_name", "kernel_rows", "signature"]

_MOST_ROWS = 128


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One combination of dtypes, and so one kernel: dtype names of inputs and outputs."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def label(self) -> str:
        """`float16`, or `float16, int64` where the inputs differ: for messages."""
        return ", ".join(dict.fromkeys(self.inputs.values()))


def function_name(op: Operator) -> str:
    """The name of the kernel function: the operator's without its namespace."""
    return identifier(op.name.partition("::")[2].replace(".", "_"))


def kernel_rows(op: Operator) -> tuple[KernelRow, ...]:
    """Every combination of dtypes that the declaration allows.

    Raises DeclarationError where they cannot all be compiled, with the reason.
    """
    variables = op.types.variables
    if op.types.unspecified:
        raise DeclarationError(
            f"{op.name}: which dtypes it takes is not declared, so its kernels cannot be enumerated: "
            'give dtypes=("float32", …)'
        )
    count = 1
    for types in variables.values():
        count *= len(types)
    if count > _MOST_ROWS:
        raise DeclarationError(
            f"{op.name}: its dtypes make {count} combinations, each a kernel; at most {_MOST_ROWS}. "
            'Inputs that always share a dtype belong in one key: dtypes={"x, weight": …}'
        )
    rows = []
    for choice in itertools.product(*variables.values()):
        of = dict(zip(variables, choice, strict=True))
        inputs = {name: of[variable] for name, variable in op.types.of_input.items()}
        outputs = {o.name: _output_dtype(op, o.name, inputs) for o in op.interface.outputs}
        for name, dtype in (inputs | outputs).items():
            if element_type(dtype) is None:
                raise DeclarationError(f"{op.name}: `{name}` is {dtype}, for which kernels have no C++ type")
        rows.append(KernelRow(inputs, outputs))
    return tuple(rows)


def _output_dtype(op: Operator, name: str, inputs: Mapping[str, str]) -> str:
    found = op.output_dtype(name, inputs)
    if found is None and op.output_types[name].dtypes == dtypes.ALL:
        raise DeclarationError(
            f"{op.name}: the dtype of output `{name}` is not known, because there are no samples (@op.samples) on "
            "which to run the fake kernel"
        )
    if found is None:
        seen = ", ".join(op.output_types[name].dtypes)
        raise DeclarationError(
            f"{op.name}: the dtype of output `{name}` ({seen}) follows no input's, but an attribute or a size: "
            "a native library needs to know it from the inputs alone"
        )
    return found


def check_compilable(op: Operator) -> None:
    """Raise DeclarationError where a native library cannot carry the operator."""
    if not op.has_fake:
        raise DeclarationError(f"{op.name} has no fake kernel (@op.fake), so what it returns is not known")
    for output in op.interface.outputs:
        if output.form == "variadic":
            raise DeclarationError(
                f"{op.name}: output `{output.name}` is a list; kernels have a fixed number of outputs"
            )
    kernel_rows(op)


def fingerprint(op: Operator) -> str:
    """A short text that changes with whatever a caller of the kernels has to know of the declaration."""
    known = (
        op.schema,
        op.onnx_name,
        op.version,
        [(o.name, o.mutates) for o in op.interface.outputs],
        [(dict(row.inputs), dict(row.outputs)) for row in kernel_rows(op)],
        *([op.shape_inputs] if op.shape_inputs else []),
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def _template_parameters(op: Operator) -> list[str]:
    """The type variables with more than one dtype."""
    return [v for v, types in op.types.variables.items() if len(types) > 1]


def signature(op: Operator, by_kernel: Collection[str] = (), without: Collection[str] = ()) -> str:
    """The declaration of the kernel, as it is to be written.

    `by_kernel`: outputs whose shape only it knows. `without`: arguments that it does not get.
    """
    templates = _template_parameters(op)
    inputs = {i.name: i for i in op.interface.inputs}
    attributes = {a.name: a for a in op.interface.attributes}

    def element(variable: str | None, types: tuple[str, ...]) -> str:
        return variable if variable in templates else element_type(types[0]) or types[0]

    pieces = ["const Parallel& par"]
    for name in op.interface.arguments:
        if name in attributes:
            pieces.append(f"{attribute_type(attributes[name])} {identifier(name)}")
            continue
        if name in without:
            continue
        variable = op.types.of_input[name]
        view = "InList" if inputs[name].form == "variadic" else "Out" if inputs[name].mutated else "In"
        pieces.append(f"{view}<{element(variable, op.types.variables[variable])}> {identifier(name)}")
    for o in op.interface.outputs:
        if o.mutates is None:
            rule = op.output_types[o.name]
            view = "NewOut" if o.name in by_kernel else "Out"
            name = f"{o.name}_out" if o.name in op.interface.arguments else o.name
            pieces.append(f"{view}<{element(rule.variable, rule.dtypes)}> {identifier(name)}")
    head = f"template <{', '.join(f'class {t}' for t in templates)}>\n" if templates else "inline "
    return f"{head}void {function_name(op)}({', '.join(pieces)})"
