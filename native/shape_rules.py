"""The shape of each output as a rule that C++ can follow, derived from the fake kernel: the one shape rule.

The fake kernel is Python; what it says is only seen by running it. A simple rule is guessed (the shape of an input,
the broadcast of some inputs, for each combination of ranks a formula per dim) and then held against the fake
kernel on every sample, on the samples' shapes at other ranks and sizes, and with other attributes. What no rule
explains everywhere, or what an attribute decides, is left to the kernel, which then allocates that output itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..symbolic import dims
from ..symbolic.data_sizes import DataSizes
from ..symbolic.shapes import ShapeError, TensorInfo, infer

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = [
    "Broadcast",
    "ByRank",
    "FromKernel",
    "LikeInput",
    "ShapeRule",
    "formula",
    "given_calls",
    "shape_rules",
    "tensor_infos",
    "untold_attributes",
]

Ranks = tuple[int | None, ...]  # of the inputs, None where absent
Shapes = Mapping[str, Any]  # by input name: a shape, None where absent, a list of shapes for the variadic one
_HIGHEST_RANK = 6
_MOST_VARIED = 4  # samples with other ranks each; a run of the fake kernel takes milliseconds


@dataclass(frozen=True, slots=True)
class LikeInput:
    """The shape of an input; of a list, of its first tensor."""

    index: int


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The shape that these inputs broadcast to, as in torch and numpy."""

    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ByRank:
    """For each combination of ranks of the inputs `indices`, a formula per dim over names `d<input>_<dim>`."""

    indices: tuple[int, ...]
    cases: Mapping[Ranks, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class FromKernel:
    """Only the kernel knows it; `reason` says why."""

    reason: str


ShapeRule = LikeInput | Broadcast | ByRank | FromKernel


@dataclass(frozen=True, slots=True)
class _Call:
    """Concrete input shapes and attributes, and the shapes that the fake kernel gives the outputs."""

    shapes: Shapes
    attributes: Mapping[str, Any]
    outputs: tuple[tuple[int | None, ...], ...]


def shape_rules(op: Operator, data_sizes: DataSizes = "unknown") -> dict[str, ShapeRule]:
    """The rule of every output; an overwritten input has that input's shape.

    `data_sizes`: "bound" or "usual": with the sizes that the data decides as they are declared, and with the values of
    shape inputs in the place of their shapes.
    """
    names = [i.name for i in op.interface.inputs]
    fresh = [o.name for o in op.interface.outputs if o.mutates is None]
    rules: dict[str, ShapeRule] = {
        o.name: LikeInput(names.index(o.mutates)) for o in op.interface.outputs if o.mutates is not None
    }
    calls = list(_calls(op, data_sizes))
    if not calls:
        reason = f"{op.name} has no samples, from which its shapes could be learnt (`@op.samples`)"
        return rules | {name: FromKernel(reason) for name in fresh}
    decisive = _decisive_attribute(op, calls, data_sizes)
    lists = any(i.form == "variadic" for i in op.interface.inputs)
    for k, name in enumerate(fresh):
        shapes = [call.outputs[k] for call in calls]
        if any(None in shape for shape in shapes):
            rules[name] = FromKernel(f"its size depends on the data in {op.name}'s inputs")
        elif k in decisive:
            rules[name] = FromKernel(f"its shape depends on the attribute `{decisive[k]}`")
        elif like := _like_input(op, calls, k):
            rules[name] = like
        elif lists:
            rules[name] = FromKernel("it depends on all tensors of a list")
        else:
            rules[name] = _broadcast(op, calls, k) or _by_rank(op, calls, k, data_sizes)
    return {o.name: rules[o.name] for o in op.interface.outputs}


# --- what the fake kernel says ---------------------------------------------------------------------------------


def _calls(op: Operator, data_sizes: DataSizes) -> Iterator[_Call]:
    """The samples, and variations of their shapes that the fake kernel accepts."""
    seen = set()
    patterns: set[Any] = set()
    for shapes, attributes in given_calls(op, data_sizes):
        pattern = tuple(None if s is None else len(s) for s in shapes.values())
        vary = pattern not in patterns and len(patterns) < _MOST_VARIED
        patterns.add(pattern)
        for varied in (shapes, *(_other_shapes(shapes) if vary else ())):
            key = (repr(varied), repr(sorted(attributes.items())))
            if key not in seen:
                seen.add(key)
                outputs = _fake(op, varied, attributes, data_sizes)
                if outputs is not None:
                    yield _Call(varied, attributes, outputs)


def given_calls(op: Operator, data_sizes: DataSizes) -> list[tuple[Shapes, Mapping[str, Any]]]:
    """Shapes and attributes of the samples; shape inputs by their values where `run_fake` wants them so."""
    if data_sizes == "unknown":
        return list(op.sample_calls())
    return [
        (shapes | values, attributes)
        for (shapes, attributes), values in zip(op.sample_calls(), op.sample_values(), strict=True)
    ]


def _fake(
    op: Operator, shapes: Shapes, attributes: Mapping[str, Any], data_sizes: DataSizes
) -> tuple[tuple[int | None, ...], ...] | None:
    try:
        found = infer(op, tensor_infos(op, shapes), attributes, data_sizes)
    except ShapeError:
        return None
    outputs = []
    for info in found:
        assert info.dims is not None
        outputs.append(tuple(d if isinstance(d, int) else None for d in info.dims))
    return tuple(outputs)


def tensor_infos(op: Operator, shapes: Shapes) -> dict[str, TensorInfo | list[TensorInfo] | None]:
    """What is known of the inputs of a call: their shapes, and dtypes that they may have."""
    tensors: dict[str, TensorInfo | list[TensorInfo] | None] = {}
    for name, shape in shapes.items():
        dtype = _dtype(op, name)
        if shape is None or isinstance(shape, tuple):
            tensors[name] = None if shape is None else TensorInfo(dtype, shape)
        else:
            tensors[name] = [TensorInfo(dtype, tuple(s)) for s in shape]
    return tensors


def _dtype(op: Operator, name: str) -> str:
    """A dtype that the input may have; no shape depends on it."""
    return op.types.variables[op.types.of_input[name]][0]


def _other_shapes(shapes: Shapes) -> Iterator[Shapes]:
    """Each input at other ranks and with sizes 1 and 0, one at a time and all at once."""
    given = [n for n, s in shapes.items() if isinstance(s, tuple)]

    def at_rank(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
        # in front, where torch adds dims when it broadcasts
        return (2, 3, 2, 3, 2, 3)[: max(0, rank - len(shape))] + shape[max(0, len(shape) - rank) :]

    for rank in range(_HIGHEST_RANK + 1):
        yield dict(shapes) | {n: at_rank(shapes[n], rank) for n in given}
        for name in given:
            yield dict(shapes) | {name: at_rank(shapes[name], rank)}
    for name in given:
        for axis in range(len(shapes[name])):
            for size in (1, 0, shapes[name][axis] * 2):
                whole = list(shapes[name])
                whole[axis] = size
                yield dict(shapes) | {name: tuple(whole)}


def _decisive_attribute(op: Operator, calls: Sequence[_Call], data_sizes: DataSizes) -> dict[int, str]:
    """Outputs whose shape changes with an attribute alone -> that attribute."""
    decisive: dict[int, str] = {}
    values: dict[str, list[Any]] = {}
    for call in calls:
        for name, value in call.attributes.items():
            known = values.setdefault(name, [])
            if value not in known:
                known.append(value)
    given = given_calls(op, data_sizes)
    samples = [c for c in calls if (c.shapes, c.attributes) in given][:8]
    for call in samples:
        for a in op.interface.attributes:
            now = call.attributes.get(a.name)
            for other in _other_values(now, values.get(a.name, []), a.optional, a.kind):
                attributes = {k: v for k, v in call.attributes.items() if k != a.name}
                if other is not None:
                    attributes[a.name] = other
                outputs = _fake(op, call.shapes, attributes, data_sizes)
                for k, shape in enumerate(outputs or ()):
                    if shape != call.outputs[k]:
                        decisive.setdefault(k, a.name)
    return decisive


def _other_values(now: Any, known: Sequence[Any], optional: bool, kind: str) -> Iterator[Any]:
    yield from (v for v in known if v != now)
    if optional and now is not None:
        yield None
    if kind == "bool" and isinstance(now, int):
        yield 1 - now
    elif isinstance(now, int):
        yield from (now + 1, now - 1, now + 2, now * 2, -now)
    elif isinstance(now, float) and math.isfinite(now):
        yield from (now + 1, now * 2, now / 2)
    elif isinstance(now, list) and all(isinstance(v, (int, float)) for v in now):
        yield from ([v + 1 for v in now], [v * 2 for v in now], [*now, *now[-1:]], now[:-1])


def untold_attributes(op: Operator) -> list[str]:
    """Texts of which the samples have one value alone: whether another one gives other shapes is not seen."""
    values: dict[str, set[Any]] = {a.name: set() for a in op.interface.attributes if a.onnx_type == "STRING"}
    for _, attributes in op.sample_calls():
        for name, known in values.items():
            known.add(attributes.get(name))
    return [name for name, known in values.items() if len(known) < 2]


# --- rules -----------------------------------------------------------------------------------------------------


def _like_input(op: Operator, calls: Sequence[_Call], k: int) -> LikeInput | None:
    for index, i in enumerate(op.interface.inputs):
        shapes = [c.shapes[i.name] for c in calls]
        if i.form == "variadic":  # the first tensor of the first list
            shapes = [s[0] if s else None for s in shapes]
        if i.form != "optional" and all(c.outputs[k] == s for c, s in zip(calls, shapes, strict=True)):
            return LikeInput(index)
        if i.form == "variadic":
            break
    return None


def _broadcast(op: Operator, calls: Sequence[_Call], k: int) -> Broadcast | None:
    inputs = [(index, i.name) for index, i in enumerate(op.interface.inputs) if i.form == "single"]
    for count in range(2, len(inputs) + 1):
        chosen = inputs[:count]
        if all(_broadcasted([c.shapes[n] for _, n in chosen]) == c.outputs[k] for c in calls):
            return Broadcast(tuple(index for index, _ in chosen))
    return None


def _broadcasted(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        different = {s for s in sizes if s != 1}
        if len(different) > 1:
            return None
        result.append(different.pop() if different else 1)
    return tuple(result)


def _by_rank(op: Operator, calls: Sequence[_Call], k: int, data_sizes: DataSizes) -> ByRank | FromKernel:
    # Optional inputs seldom decide: without them there are fewer combinations to know.
    required = tuple(n for n, i in enumerate(op.interface.inputs) if i.form == "single")
    for indices in dict.fromkeys((required, tuple(range(len(op.interface.inputs))))):
        cases = _cases(op, calls, k, indices, data_sizes)
        if cases:
            return ByRank(indices, cases)
    return FromKernel("no formula for its sizes that holds for all samples can be read off the fake kernel")


def _cases(
    op: Operator, calls: Sequence[_Call], k: int, indices: tuple[int, ...], data_sizes: DataSizes
) -> dict[Ranks, tuple[str, ...]] | None:
    names = [i.name for i in op.interface.inputs]
    by_ranks: dict[Ranks, list[_Call]] = {}
    for call in calls:
        shapes = [call.shapes[names[n]] for n in indices]
        by_ranks.setdefault(tuple(None if s is None else len(s) for s in shapes), []).append(call)
    cases = {}
    for ranks, alike in by_ranks.items():
        candidates = (_symbolic_dims(op, call, k, data_sizes) for call in alike[:_MOST_VARIED])
        found = next(
            (
                c
                for c in candidates
                if c is not None and all(_holds(c, call, k, names, indices) for call in alike)
            ),
            None,
        )
        if found is None:
            return None
        cases[ranks] = found
    return cases


def _holds(
    formulas: tuple[str, ...], call: _Call, k: int, names: Sequence[str], indices: tuple[int, ...]
) -> bool:
    sizes = {f"d{n}_{axis}": size for n in indices for axis, size in enumerate(call.shapes[names[n]] or ())}
    try:
        return tuple(dims.evaluate(f, sizes) for f in formulas) == call.outputs[k]
    except (KeyError, ValueError):  # it needs another input, or divides by zero
        return False


def _symbolic_dims(op: Operator, call: _Call, k: int, data_sizes: DataSizes) -> tuple[str, ...] | None:
    tensors = {}
    for n, i in enumerate(op.interface.inputs):
        shape = call.shapes[i.name]
        symbols = tuple(f"d{n}_{axis}" for axis in range(len(shape or ())))
        tensors[i.name] = None if shape is None else TensorInfo(_dtype(op, i.name), symbols)
    try:
        found = infer(op, tensors, call.attributes, data_sizes)[k].dims
    except (ShapeError, IndexError):
        return None
    if found is None or any(d is None for d in found):
        return None
    return tuple(str(d) for d in found)


# --- C++ -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Expression:
    """A C++ expression over `Size`; arithmetic builds larger ones."""

    text: str

    def __add__(self, other: Any) -> _Expression:
        return _joined(self, "+", other)

    def __radd__(self, other: Any) -> _Expression:
        return _joined(other, "+", self)

    def __sub__(self, other: Any) -> _Expression:
        return _joined(self, "-", other)

    def __rsub__(self, other: Any) -> _Expression:
        return _joined(other, "-", self)

    def __mul__(self, other: Any) -> _Expression:
        return _joined(self, "*", other)

    def __rmul__(self, other: Any) -> _Expression:
        return _joined(other, "*", self)

    def __neg__(self) -> _Expression:
        return _joined(0, "-", self)


def _joined(a: Any, operator: str, b: Any) -> _Expression:
    return _Expression(f"({_text(a)} {operator} {_text(b)})")


def _text(value: Any) -> str:
    return value.text if isinstance(value, _Expression) else f"Size({value})"


_FUNCTIONS = {"floordiv": "floor_divide", "mod": "modulo", "max": "larger", "min": "smaller"}


def formula(dim: str) -> str:
    """A dim expression in C++, over `Size` values named like its symbols: `floor_divide(d0_1, Size(2))`."""

    def call(name: str, arguments: list[Any]) -> _Expression:
        return _Expression(f"{_FUNCTIONS[name]}({', '.join(map(_text, arguments))})")

    return _text(dims.walk(dim, _Expression, call))
