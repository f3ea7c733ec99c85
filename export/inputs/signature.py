"""The inputs of a model: `x:float32[batch,3,h,w]`, real samples, and what each step needs of them.

A `Signature` gives the tensors to trace with, further sizes to check with, the arguments of `forward`, and
the dynamic shapes for `torch.export`. The text form is read by `input_spec`, the call built by
`forward_binding`, values and sizes come from `example_inputs`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from .example_inputs import (
    as_tensor,
    data_faults,
    dtype_name,
    example_size,
    expect_affordable,
    fitted,
    load_npz,
    other_size,
    random_tensor,
    role_of,
)
from .forward_binding import Forward, flatten, forward_parameters, mismatch, nest, place
from .input_spec import InputSpec, Symbol, unified, with_symbols
from .input_text import parse_dim, parse_input

if TYPE_CHECKING:
    import torch

__all__ = [
    "InputSpec",
    "Signature",
    "Symbol",
    "load_npz",
    "parse_input",
    "signature_from_specs",
    "signature_from_values",
]


@dataclass(frozen=True)
class Signature:
    """The inputs of a model in order. Build it with `signature_from_specs` or `signature_from_values`.

    `data` holds real samples by input name. `containers` gives the kind ("list", "tuple", "dict") of each
    nested argument by path; without one, `xs.0, xs.1` is a list and `d.key` a dict.
    """

    specs: tuple[InputSpec, ...]
    data: Mapping[str, torch.Tensor] = field(default_factory=dict, compare=False)
    containers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nest(dict.fromkeys((spec.name for spec in self._distinct_names()), 0), self.containers)
        object.__setattr__(self, "specs", unified(self.specs))
        faults = data_faults(self.specs, self.data)
        if faults:
            raise UsageError(
                "The data do not fit the inputs:\n" + "\n".join(f"  - {fault}" for fault in faults)
            )

    def _distinct_names(self) -> tuple[InputSpec, ...]:
        names = [spec.name for spec in self.specs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise UsageError(f"Each input is given once, but {', '.join(repeated)} appears again.")
        return self.specs

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The variable dims by name, in order of appearance."""
        return {dim.name: dim for _, _, dim in self._dims()}

    def _dims(self) -> list[tuple[InputSpec, int, Symbol]]:
        return [
            (spec, axis, dim)
            for spec in self.specs
            for axis, dim in enumerate(spec.shape or ())
            if isinstance(dim, Symbol)
        ]

    def _roles(self) -> dict[str, int]:
        roles: dict[str, int] = {}
        for spec, axis, dim in self._dims():
            roles.setdefault(dim.name, role_of(spec, axis))
        return roles

    def is_spatial(self, name: str) -> bool:
        """Whether a variable dim is the height, width or length of an image or signal."""
        return self._roles()[name] == -1

    def with_symbols(self, changed: Mapping[str, Symbol]) -> Signature:
        """The same inputs with other ranges for some dims."""
        symbols = {**self.symbols, **changed}
        return dataclasses.replace(self, specs=tuple(with_symbols(spec, symbols) for spec in self.specs))

    def symbol_of(self, name: str, axis: int) -> str | None:
        """The name of the variable dim at `axis` of the input `name`; None if that dim is fixed."""
        for spec in self.specs:
            if spec.name == name and spec.shape is not None and -len(spec.shape) <= axis < len(spec.shape):
                dim = spec.shape[axis]
                return dim.name if isinstance(dim, Symbol) else None
        return None

    @property
    def data_sizes(self) -> dict[str, int]:
        """The size that the samples have for each symbol they determine."""
        return {
            dim.name: int(self.data[spec.name].shape[axis])
            for spec, axis, dim in self._dims()
            if spec.name in self.data
        }

    def example_sizes(self) -> dict[str, int]:
        """One size per symbol to trace with: `@example`, else the samples' size, else a choice.

        All are 2 or more, because torch.export fixes a dim whose example is 0 or 1, so samples of size 1 are
        repeated. Chosen sizes differ from each other and from the fixed dims where the ranges allow it, so
        that dims are not equal by accident.
        """
        symbols, roles, data = self.symbols, self._roles(), self.data_sizes
        sizes = {name: symbol.example for name, symbol in symbols.items() if symbol.example is not None}
        sizes = {name: size for name, size in data.items() if size >= 2} | sizes
        taken = {dim for spec in self.specs for dim in spec.shape or () if isinstance(dim, int)}
        for name, symbol in symbols.items():
            if name not in sizes:
                sizes[name] = example_size(symbol, roles[name], taken | set(sizes.values()))
        return {name: sizes[name] for name in symbols}

    def other_sizes(self, count: int = 1) -> list[dict[str, int]]:
        """`count` further sets of sizes to check with; in each, every symbol differs from the example.

        With `count` above 1 the last set has the lowest sizes of the ranges: 1 unless declared otherwise, or
        0 where 0 was declared. Spatial dims with no declared low are left out of that: an image of one
        pixel says nothing. Empty if no dim is variable.
        """
        symbols, roles = self.symbols, self._roles()
        if not symbols:
            return []
        used = {name: [size] for name, size in self.example_sizes().items()}
        sets: list[dict[str, int]] = []
        for turn in range(count):
            lowest = count > 1 and turn == count - 1
            sets.append(
                {name: _next_size(symbols[name], roles[name], used[name], lowest) for name in symbols}
            )
            for name, size in sets[-1].items():
                used[name].append(size)
        return sets

    def sizes_with_a_one(self) -> list[dict[str, int]]:
        """The example's sizes with one dim at 1, for each that may be; `other_sizes` has all of them at 1 together.

        Spatial dims with no declared low are left out, as there. Empty with one variable dim: nothing is new.
        """
        symbols, roles, at = self.symbols, self._roles(), self.example_sizes()
        if len(symbols) < 2:
            return []
        one = [n for n, s in symbols.items() if s.low == 1 and s.at_least(1) == 1 and roles[n] >= 0]
        return [{**at, name: 1} for name in one[:4]]

    def make(self, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Any]:
        """The inputs in order by flat name: CPU tensors and Python values; the same for the same arguments.

        `sizes` gives symbols other sizes than the example's. Samples are used as they are where the size is
        theirs, else repeated or cut; inputs without samples are drawn at random (see `random_tensor`).
        Raises `UsageError` where all together would take more than `MOST_BYTES`.
        """
        wanted = self.example_sizes()
        unknown = sorted(set(sizes or {}) - set(wanted))
        if unknown:
            raise UsageError(
                f"No input has a dim named {', '.join(unknown)}; there are {', '.join(wanted) or 'none'}."
            )
        wanted.update(sizes or {})
        expect_affordable(self.specs, wanted)
        return {spec.name: self._value(spec, wanted, seed) for spec in self.specs}

    def _value(self, spec: InputSpec, sizes: Mapping[str, int], seed: int) -> Any:
        if spec.shape is None:
            return spec.value
        shape = tuple(sizes[dim.name] if isinstance(dim, Symbol) else dim for dim in spec.shape)
        sample = self.data.get(spec.name)
        return random_tensor(spec, shape, seed) if sample is None else fitted(sample, shape)

    def bind(self, values: Mapping[str, Any], forward: Forward) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The `(args, kwargs)` to call the model with, from what `make` returned.

        By name where `forward` (a function, a module, or its signature) has those parameters, by position
        where it has none of the names. Raises `UsageError` for unknown and missing names.
        """
        arguments = nest(values, self.containers)
        signature = forward_parameters(forward)
        if _is_spread(arguments, signature):
            positional, named = ["*args"], [name for name in arguments if name != "args"]
        else:
            positional, named = place(arguments, signature)
        args: list[Any] = []
        for name in positional:
            if name.startswith("*"):
                args.extend(arguments[name[1:]])
            else:
                args.append(arguments[name])
        kwargs = {name: arguments[name] for name in named}
        if signature is not None:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise UsageError(f"{mismatch(signature)}\n  Python says: {error}.") from None
        return tuple(args), kwargs

    def dynamic_shapes(self, forward: Forward = None) -> dict[str, Any]:
        """What `torch.export.export(dynamic_shapes=…)` takes: `{"x": {0: Dim.DYNAMIC(min=1)}, "n": None}`.

        Keys are the parameters of `forward` where it is given (torch insists on them), else the input names.
        Empty, which torch takes for "all fixed", when no dim is variable.
        """
        # Measured with torch 2.13.0, torch.export.export, when the model fixes the dim to one size:
        #   "batch"          refused outright: strings are for torch.onnx.export alone
        #   Dim("batch")     raises (torch.onnx.export: silently fixed, it takes torch's "suggested fix")
        #   Dim.DYNAMIC      raises
        #   Dim.AUTO         silently fixed
        # Dim("h") also raises for every guard that its whole range does not meet, h != 1 after a strided
        # convolution included, so that plain image models would need a range for each dim. Dim.DYNAMIC lets
        # guards pass silently, merges dims that the model needs equal, and narrows ranges: `dim_guards` finds
        # those in the exported program, with the sizes that break them.
        # Either way an example of 0 or 1 cannot stay variable, and one tensor given for two inputs merges
        # their dims without a word: `make` gives neither.
        if not self.symbols:
            return {}
        from torch.export import Dim

        leaves: dict[str, Any] = {}
        for spec in self.specs:
            dims = {axis: dim for axis, dim in enumerate(spec.shape or ()) if isinstance(dim, Symbol)}
            # max=2 would leave the one size 2, which torch then calls fixed: no limit instead.
            leaves[spec.name] = {
                axis: Dim.DYNAMIC(min=dim.low, max=None if dim.high == 2 else dim.high)
                for axis, dim in dims.items()
            } or None
        return self.arguments(leaves, forward)

    def arguments(self, values: Mapping[str, Any], forward: Forward) -> dict[str, Any]:
        """`values` by parameter of `forward`, nested as it takes them; by input name where it is unknown."""
        signature = forward_parameters(forward)
        arguments = nest(values, self.containers)
        if signature is None:
            return arguments
        args, kwargs = self.bind(values, signature)
        bound = signature.bind(*args, **kwargs).arguments
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and parameter.name in bound:
                # torch 2.13: AssertionError "Must provide a tree_name", whatever the structure given.
                raise UsageError(
                    f"torch.export keeps no dim variable when inputs pass through **{parameter.name} "
                    f"({', '.join(bound[parameter.name])}): wrap the model in a module that names them."
                )
        return dict(bound)

    def ranges(self) -> dict[str, str]:
        """The declared sizes by symbol, in the syntax of the specs: `{"batch": "1..64", "h": "32..%32"}`."""
        return {
            name: f"{symbol.low}..{'' if symbol.high is None else symbol.high}"
            + (f"%{symbol.multiple}" if symbol.multiple > 1 else "")
            for name, symbol in self.symbols.items()
        }


def signature_from_specs(
    specs: Iterable[str | InputSpec], data: Mapping[str, Any] | None = None
) -> Signature:
    """The signature of `--input` texts and `--input-data` arrays (or tensors).

    Data for an input without a spec declare it with fixed dims, after the others. Arrays saved without names
    (`arr_0`, `arr_1`, …) are taken in the order of the specs. float32 data are converted for a bfloat16
    input, because numpy files have no bfloat16. Raises `UsageError` for what does not fit, all at once.
    """
    read = [parse_input(spec) if isinstance(spec, str) else spec for spec in specs]
    tensors = {name: as_tensor(value, name) for name, value in (data or {}).items()}
    wanted = [spec.name for spec in read if spec.is_tensor]
    if (
        wanted
        and list(tensors) == [f"arr_{index}" for index in range(len(tensors))]
        and "arr_0" not in wanted
    ):
        if len(tensors) > len(wanted):
            raise UsageError(
                f"There are {len(tensors)} arrays without a name for {len(wanted)} tensor inputs."
            )
        tensors = dict(zip(wanted, tensors.values(), strict=False))
    dtypes = {spec.name: spec.dtype for spec in read}
    for name, tensor in tensors.items():
        if dtypes.get(name) == "bfloat16" and dtype_name(tensor) == "float32":
            tensors[name] = tensor.bfloat16()
    declared = [_fixed_spec(name, tensor) for name, tensor in tensors.items() if name not in dtypes]
    return Signature((*read, *declared), tensors)


def signature_from_values(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    forward: Forward = None,
    dynamic: Mapping[str, Mapping[int, str | Symbol]] | None = None,
) -> Signature:
    """The signature of a call `forward(*args, **kwargs)`: example inputs of a file, or given in Python.

    Inputs are named by the parameters of `forward` (`args.0`, … where they are unknown); items of nested
    lists, tuples and dicts by path. All dims are fixed but those of `dynamic`, `{"x": {0: "batch=1..64"}}`.
    """
    leaves: dict[str, Any] = {}
    containers: dict[str, str] = {}
    for name, value in _by_name(args, kwargs, forward).items():
        below, kinds = flatten(value, name)
        leaves |= below
        containers |= kinds
    specs: list[InputSpec] = []
    data: dict[str, torch.Tensor] = {}
    for name, value in leaves.items():
        if value is None or type(value) in (bool, int, float, str):
            specs.append(InputSpec(name, "none" if value is None else type(value).__name__, value=value))
        else:
            data[name] = as_tensor(value, name)
            specs.append(_fixed_spec(name, data[name]))
    return Signature(_with_dynamic(specs, dynamic or {}), data, containers)


def _by_name(args: tuple[Any, ...], kwargs: Mapping[str, Any], forward: Forward) -> dict[str, Any]:
    signature = forward_parameters(forward)
    if signature is None:
        return ({"args": args} if args else {}) | dict(kwargs)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UsageError(f"The example inputs do not fit the model's forward{signature}: {error}.") from None
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            bound |= bound.pop(parameter.name, {})
    return dict(bound)


def _is_spread(arguments: Mapping[str, Any], signature: inspect.Signature | None) -> bool:
    """Whether `args` stands for all positional arguments: `signature_from_values` knew no `forward`."""
    known = signature is not None and "args" in signature.parameters
    return isinstance(arguments.get("args"), (list, tuple)) and not known


def _fixed_spec(name: str, tensor: torch.Tensor) -> InputSpec:
    return InputSpec(name, dtype_name(tensor), tuple(tensor.shape))


def _with_dynamic(
    specs: list[InputSpec], dynamic: Mapping[str, Mapping[int, str | Symbol]]
) -> tuple[InputSpec, ...]:
    tensors = {spec.name: spec for spec in specs if spec.shape is not None}
    result = {spec.name: spec for spec in specs}
    for name, dims in dynamic.items():
        if name not in tensors:
            raise UsageError(f"No tensor input is named {name!r}; there are {', '.join(tensors) or 'none'}.")
        shape = list(tensors[name].shape or ())
        for axis, dim in dims.items():
            if not -len(shape) <= axis < len(shape):
                raise UsageError(f"The input {name!r} has {len(shape)} dims, so none at {axis}.")
            shape[axis] = parse_dim(dim) if isinstance(dim, str) else dim
        result[name] = dataclasses.replace(tensors[name], shape=tuple(shape))
    return tuple(result.values())


def _next_size(symbol: Symbol, role: int, used: list[int], lowest: bool) -> int:
    low = symbol.at_least(symbol.low)
    if lowest and low is not None and low not in used and not (role < 0 and symbol.low == 1):
        return low
    return other_size(symbol, role, used)
