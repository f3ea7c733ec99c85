"""Which element types an operator takes, and which it returns.

A declaration says it for the inputs: one tuple of dtypes for all of them, or a mapping from names to tuples;
names that share a key (``"x, weight"``) must have the same dtype. What comes out is read off the fake kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from . import dtypes

if TYPE_CHECKING:
    from .interface import Interface
    from .operator import Operator

__all__ = ["DeclaredDtypes", "OutputType", "TypeRules", "read_dtypes", "read_output_types"]

DeclaredDtypes = Sequence[str] | Mapping[str, Sequence[str]] | None


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Type variables with the dtypes each may take, and the variable of every input."""

    variables: Mapping[str, tuple[str, ...]]
    of_input: Mapping[str, str]

    @property
    def unspecified(self) -> bool:
        """Whether the declaration says nothing of dtypes: what the operator takes is not known."""
        return all(types == dtypes.ALL for types in self.variables.values())

    @property
    def drawn(self) -> tuple[str, ...]:
        """The dtypes in which samples are drawn: those of the first type variable that has a float.

        Where any dtype is declared, the four floating ones: few operators mean it.
        """
        every = [dtypes.FLOATS if t == dtypes.ALL else t for t in self.variables.values()]
        return next((t for t in every if any(d in dtypes.FLOATS for d in t)), every[0])

    def accepts(self, name: str, dtype: str) -> bool:
        return dtype in self.variables[self.of_input[name]]


@dataclass(frozen=True, slots=True)
class OutputType:
    """An output's dtype: that of a type variable, or one of `dtypes` (a single one: always that)."""

    variable: str | None
    dtypes: tuple[str, ...]


def read_dtypes(qualname: str, interface: Interface, declared: DeclaredDtypes) -> TypeRules:
    """Check a declaration's `dtypes`. None means any type, each input its own."""
    names = [i.name for i in interface.inputs]
    if declared is None:
        declared = dict.fromkeys(names, dtypes.ALL)
    if isinstance(declared, str):
        declared = (declared,)
    if not isinstance(declared, Mapping):
        declared = {", ".join(names): declared}
    variables: dict[str, tuple[str, ...]] = {}
    of_input: dict[str, str] = {}
    for key, types in declared.items():
        if not isinstance(key, str):
            raise DeclarationError(f"{qualname}: dtypes: the key {key!r} is no text: {_form(key, types)}")
        types = (types,) if isinstance(types, str) else tuple(types)
        try:
            types = tuple(dtypes.name_of(t) for t in types)
        except KeyError as e:
            raise DeclarationError(
                f"{qualname}: dtypes: {e.args[0]}; known are {', '.join(dtypes.ALL)}"
            ) from None
        variable = "T" if not variables else f"T{len(variables)}"
        variables[variable] = types
        for name in (n.strip() for n in key.split(",")):
            if name not in names:
                raise DeclarationError(
                    f"{qualname}: dtypes names `{name}`; the tensor inputs are {', '.join(names)}"
                )
            if name in of_input:
                raise DeclarationError(f"{qualname}: dtypes names `{name}` twice")
            of_input[name] = variable
    missing = [n for n in names if n not in of_input]
    if missing:
        raise DeclarationError(f"{qualname}: dtypes says nothing of {', '.join(missing)}")
    return TypeRules(variables, of_input)


def _form(key: Any, types: Sequence[str] | str) -> str:
    """How to write a key that is a tuple or list of names."""
    listed = isinstance(key, (tuple, list, frozenset, set)) and all(isinstance(n, str) for n in key)
    names = ", ".join(key) if listed else "x, weight"
    return f'names that share a dtype are in one text, with commas between them: dtypes={{"{names}": {types!r:.200}}}'


def read_output_types(op: Operator) -> dict[str, OutputType]:
    """The dtype rule of each output, from the fake kernel run in every dtype on the samples' shapes."""
    from .shapes import ShapeError, TensorInfo, infer

    seen: dict[str, list[tuple[dict[str, str], str]]] = {o.name: [] for o in op.interface.outputs}
    rules = op.types
    first = {v: types[0] for v, types in rules.variables.items()}
    choices = [first] + [first | {v: t} for v, types in rules.variables.items() for t in types[1:]]
    for shapes, attributes in op.sample_calls()[:4] or _guessed_calls(op):
        for choice in choices:
            tensors = {
                n: None
                if s is None
                else [TensorInfo(choice[rules.of_input[n]], tuple(e)) for e in s]
                if isinstance(s, list)
                else TensorInfo(choice[rules.of_input[n]], tuple(s))
                for n, s in shapes.items()
            }
            try:
                results = infer(op, tensors, attributes)
            except (ShapeError, KeyError):
                continue  # this kernel does not take that dtype, or these sizes
            for output, result in zip(op.interface.outputs, results, strict=False):
                seen[output.name].append((choice, result.dtype or "float32"))
    found = {}
    for name, pairs in seen.items():
        variables = [v for v in rules.variables if all(choice[v] == dtype for choice, dtype in pairs)]
        every = tuple(dict.fromkeys(dtype for _, dtype in pairs)) or dtypes.ALL
        follows = variables[0] if variables and pairs and len(every) > 1 else None
        # With a single dtype the variable and the constant say the same: prefer the variable's name.
        if follows is None and pairs and variables:
            follows = variables[0]
        found[name] = OutputType(follows, every)
    return found


def _guessed_calls(op: Operator) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Calls to try where no samples are declared: all inputs of one rank, attributes at their defaults."""
    from .attributes import encode_attribute

    attributes = {
        a.name: encode_attribute(op.name, a, a.default)
        for a in op.interface.attributes
        if a.default is not None
    }
    return [
        (
            {i.name: [(4,) * rank] if i.form == "variadic" else (4,) * rank for i in op.interface.inputs},
            attributes,
        )
        for rank in (2, 4, 3, 1)
    ]
