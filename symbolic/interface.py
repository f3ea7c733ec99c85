"""A torch schema read in ONNX terms: which arguments are inputs, which are attributes, what comes out.

The torch schema is the only signature. Everything that needs to know an operator's arguments (the ONNX
schema, the exported node, the fallback body, generated kernels) asks the `Interface` made here.

How a torch argument is carried:

====================================  ==========================================================
``Tensor``, ``Tensor?``               an input, an optional input (absent: ``''`` or omitted)
``Tensor[]``                          the variadic input, last; several lists are concatenated and
                                      the attribute ``<name>_count`` carries each length
``int``, ``float``, ``bool``, ``str`` INT, FLOAT, INT (0 or 1), STRING
their lists                           INTS, FLOATS, INTS, STRINGS
``ScalarType`` (a torch dtype)        INT: the number of the type in ONNX (``TensorProto.DataType``)
an optional attribute                 left out where it is None
``Tensor(a!)``                        an input, and after the returns an output ``<name>_out``
====================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DeclarationError, ExportError
from .attributes import Attribute, decode_attribute, encode_attribute, read_attribute
from .plugin_attributes import PLUGIN_ATTRIBUTES

if TYPE_CHECKING:
    import torch

__all__ = ["BoundCall", "Input", "Interface", "Output", "read_schema"]

Form = Literal["single", "optional", "variadic"]


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument. `mutated`: the operator writes into it."""

    name: str
    form: Form
    mutated: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A result; `mutates` names the input that the operator overwrites with it."""

    name: str
    form: Form = "single"
    mutates: str | None = None


@dataclass(frozen=True, slots=True)
class BoundCall:
    """One call in ONNX terms: tensors by input name (a list for the variadic), encoded attributes."""

    tensors: Mapping[str, Any]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Interface:
    """What goes in and out of an operator; order is the torch schema's, lists of tensors moved last."""

    qualname: str
    inputs: tuple[Input, ...]
    attributes: tuple[Attribute, ...]
    outputs: tuple[Output, ...]
    arguments: tuple[str, ...]  # all argument names in torch order
    keyword_only: frozenset[str]

    @property
    def mutates(self) -> bool:
        return any(i.mutated for i in self.inputs)

    @property
    def variadics(self) -> tuple[Input, ...]:
        return tuple(i for i in self.inputs if i.form == "variadic")

    @property
    def count_attributes(self) -> tuple[str, ...]:
        """Attributes that carry the lengths of several lists of tensors; none is needed for one list."""
        lists = self.variadics
        return tuple(f"{i.name}_count" for i in lists) if len(lists) > 1 else ()

    @property
    def least_inputs(self) -> int:
        """How many inputs a node has at least, absent ones counted.

        ONNX Runtime requires as many as precede a variadic one, be the list empty.
        """
        return sum(i.form != "variadic" for i in self.inputs) if self.variadics else 0

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> BoundCall:
        """Sort the arguments of a torch call into tensors and ONNX attributes, defaults included.

        Raises ExportError where a value does not fit its ONNX field.
        """
        given = dict(zip(self.arguments, args, strict=False)) | dict(kwargs)
        tensors: dict[str, Any] = {}
        for i in self.inputs:
            tensors[i.name] = given.get(i.name, [] if i.form == "variadic" else None)
        attributes: dict[str, Any] = {}
        for a in self.attributes:
            value = given.get(a.name, a.default)
            if value is None:
                if not a.optional:
                    raise ExportError(f"{self.qualname}: argument `{a.name}` is missing")
                continue
            attributes[a.name] = encode_attribute(self.qualname, a, value)
        for i, count in zip(self.variadics, self.count_attributes, strict=False):
            attributes[count] = len(tensors[i.name])
        return BoundCall(tensors, attributes)

    def flat_inputs(self, call: BoundCall) -> list[Any]:
        """The node's inputs in ONNX order: None where an optional one is absent, trailing ones dropped.

        Before a list they stay: see `least_inputs`.
        """
        flat: list[Any] = []
        for i in self.inputs:
            value = call.tensors[i.name]
            flat.extend(value) if i.form == "variadic" else flat.append(value)
        while len(flat) > self.least_inputs and flat[-1] is None:
            flat.pop()
        return flat

    def unflatten(self, flat: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The reverse of `flat_inputs`: a node's inputs by argument name."""
        fixed = [i for i in self.inputs if i.form != "variadic"]
        padded = list(flat) + [None] * (len(fixed) - len(flat))
        named = {i.name: v for i, v in zip(fixed, padded, strict=False)}
        rest = padded[len(fixed) :]
        counts = [attributes[c] for c in self.count_attributes] or [len(rest)] * len(self.variadics)
        for i, count in zip(self.variadics, counts, strict=True):
            named[i.name], rest = rest[:count], rest[count:]
        return named

    def call_arguments(
        self, tensors: Mapping[str, Any], attributes: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the torch operator, from a node's inputs and attributes."""
        values = dict(tensors)
        for a in self.attributes:
            values[a.name] = decode_attribute(a, attributes.get(a.name, a.default))
        args = [values[n] for n in self.arguments if n not in self.keyword_only]
        return args, {n: values[n] for n in self.arguments if n in self.keyword_only}


def read_schema(schema: torch.FunctionSchema, output_names: Sequence[str] | None = None) -> Interface:
    """The interface of a torch operator.

    Raises DeclarationError with the reason for every argument or return that ONNX cannot carry.
    """
    name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    faults: list[str] = []
    single: list[Input] = []
    lists: list[Input] = []
    attributes: list[Attribute] = []
    for argument in schema.arguments:
        text = str(argument.real_type)
        mutated = argument.alias_info is not None and argument.alias_info.is_write
        if text == "Tensor":
            single.append(Input(argument.name, "single", mutated))
        elif text == "Optional[Tensor]" and mutated:
            faults.append(
                f"`{argument.name}`: an optional tensor that is written into: a node's output is not optional"
            )
        elif text == "Optional[Tensor]":
            single.append(Input(argument.name, "optional", mutated))
        elif text == "List[Tensor]":
            if mutated:
                faults.append(f"`{argument.name}`: a list of tensors that is written into")
            lists.append(Input(argument.name, "variadic"))
        elif "Tensor" in text:
            faults.append(
                f"`{argument.name}: {text}`: ONNX cannot leave out a tensor in the middle of a list; "
                "use `Tensor[]` or several `Tensor?`"
            )
        else:
            parsed = read_attribute(argument, text)
            if isinstance(parsed, str):
                faults.append(parsed)
            else:
                attributes.append(parsed)
    outputs = _read_returns(schema, [i for i in single if i.mutated], output_names, faults)
    inputs = tuple(single + lists)
    names = [a.name for a in attributes]
    counts = [f"{i.name}_count" for i in lists] if len(lists) > 1 else []
    faults += [f"`{n}`: this name carries the length of a list of tensors" for n in counts if n in names]
    faults += [
        f"`{n}`: TensorRT reserves this name: its parser reads it" for n in names if n in PLUGIN_ATTRIBUTES
    ]
    if not inputs:
        faults.append("it takes no tensor: make the constant a buffer of the model instead")
    if faults:
        raise DeclarationError(
            f"{name} cannot be expressed in ONNX:\n" + "\n".join(f"  - {f}" for f in faults)
        )
    return Interface(
        qualname=name,
        inputs=inputs,
        attributes=tuple(attributes),
        outputs=outputs,
        arguments=tuple(a.name for a in schema.arguments),
        keyword_only=frozenset(a.name for a in schema.arguments if a.kwarg_only),
    )


def _read_returns(
    schema: torch.FunctionSchema,
    mutated: list[Input],
    names: Sequence[str] | None,
    faults: list[str],
) -> tuple[Output, ...]:
    returns = list(schema.returns)
    # `Tensor(a!) x -> Tensor(a!)` returns the tensor it wrote into: that result is `x_out` already.
    fresh = [r for r in returns if r.alias_info is None]
    faults += [
        "a return aliases an input without writing to it: return a new tensor (`.clone()`)"
        for r in returns
        if r.alias_info is not None and not r.alias_info.is_write
    ]
    if names is not None and len(names) != len(fresh):
        faults.append(f"{len(names)} output names are given for {len(fresh)} outputs")
        names = None
    outputs = []
    for k, r in enumerate(fresh):
        name = names[k] if names else r.name or ("y" if len(fresh) == 1 else f"y{k}")
        text = str(r.type)
        if text == "Tensor":
            outputs.append(Output(name))
        elif text == "List[Tensor]" and k == len(fresh) - 1 and not mutated:
            outputs.append(Output(name, "variadic"))
        elif text == "List[Tensor]":
            faults.append(f"output `{name}: Tensor[]`: ONNX allows one variadic output, and last")
        else:
            faults.append(f"output `{name}: {text}`: a node has only tensors as outputs; return a 0-d tensor")
    outputs += [Output(f"{i.name}_out", mutates=i.name) for i in mutated]
    if not outputs and not returns:
        faults.append("it returns nothing and writes into no argument (declare `mutates=` if it does)")
    return tuple(outputs)
