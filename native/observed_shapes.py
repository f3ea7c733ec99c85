"""What the fake kernel says of its outputs' shapes, on the samples, on their shapes varied, and with other attributes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..symbolic.data_sizes import BoundError, DataSizes
from ..symbolic.shapes import ShapeError, TensorInfo, infer

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = [
    "Call",
    "decisive_attributes",
    "dtype_of",
    "given_calls",
    "observed_calls",
    "tensor_infos",
    "untold_attributes",
]

Shapes = Mapping[str, Any]  # by input name: a shape, None where absent, a list of shapes for the variadic one
_HIGHEST_RANK = 6
_MOST_VARIED = 4  # samples with other ranks each; a run of the fake kernel takes milliseconds


@dataclass(frozen=True, slots=True)
class Call:
    """Concrete input shapes and attributes, and the shapes that the fake kernel gives the outputs."""

    shapes: Shapes
    attributes: Mapping[str, Any]
    outputs: tuple[tuple[int | None, ...], ...]


def observed_calls(op: Operator, data_sizes: DataSizes) -> Iterator[Call]:
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
                    yield Call(varied, attributes, outputs)


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
        dtype = dtype_of(op, name)
        if shape is None or isinstance(shape, tuple):
            tensors[name] = None if shape is None else TensorInfo(dtype, shape)
        else:
            tensors[name] = [TensorInfo(dtype, tuple(s)) for s in shape]
    return tensors


def dtype_of(op: Operator, name: str) -> str:
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


def decisive_attributes(op: Operator, calls: Sequence[Call], data_sizes: DataSizes) -> dict[int, str]:
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
                try:
                    outputs = _fake(op, call.shapes, attributes, data_sizes)
                except BoundError:  # of a value that no sample has
                    continue
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
