"""The shape of each output as a rule that C++ can follow, derived from the fake kernel: the one shape rule.

The fake kernel is Python; what it says is only seen by running it. A simple rule is guessed (the shape of an input,
the broadcast of some inputs, for each combination of ranks a formula per dim) and then held against the fake
kernel on every sample, on the samples' shapes at other ranks and sizes, and with other attributes. What no rule
explains everywhere, or what an attribute decides, is left to the kernel, which then allocates that output itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..symbolic import dims
from ..symbolic.data_sizes import DataSizes
from ..symbolic.shapes import ShapeError, TensorInfo, infer
from .observed_shapes import Call, decisive_attributes, dtype_of, observed_calls

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = [
    "Broadcast",
    "ByRank",
    "FromKernel",
    "LikeInput",
    "ShapeRule",
    "shape_rules",
]

Ranks = tuple[int | None, ...]  # of the inputs, None where absent
_MOST_TRIED = 4  # calls of the same ranks whose formula is tried on the others


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
    calls = list(observed_calls(op, data_sizes))
    if not calls:
        reason = f"{op.name} has no samples, from which its shapes could be learnt (`@op.samples`)"
        return rules | {name: FromKernel(reason) for name in fresh}
    decisive = decisive_attributes(op, calls, data_sizes)
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


def _like_input(op: Operator, calls: Sequence[Call], k: int) -> LikeInput | None:
    for index, i in enumerate(op.interface.inputs):
        shapes = [c.shapes[i.name] for c in calls]
        if i.form == "variadic":  # the first tensor of the first list
            shapes = [s[0] if s else None for s in shapes]
        if i.form != "optional" and all(c.outputs[k] == s for c, s in zip(calls, shapes, strict=True)):
            return LikeInput(index)
        if i.form == "variadic":
            break
    return None


def _broadcast(op: Operator, calls: Sequence[Call], k: int) -> Broadcast | None:
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


def _by_rank(op: Operator, calls: Sequence[Call], k: int, data_sizes: DataSizes) -> ByRank | FromKernel:
    # Optional inputs seldom decide: without them there are fewer combinations to know.
    required = tuple(n for n, i in enumerate(op.interface.inputs) if i.form == "single")
    for indices in dict.fromkeys((required, tuple(range(len(op.interface.inputs))))):
        cases = _cases(op, calls, k, indices, data_sizes)
        if cases:
            return ByRank(indices, cases)
    return FromKernel("no formula for its sizes that holds for all samples can be read off the fake kernel")


def _cases(
    op: Operator, calls: Sequence[Call], k: int, indices: tuple[int, ...], data_sizes: DataSizes
) -> dict[Ranks, tuple[str, ...]] | None:
    names = [i.name for i in op.interface.inputs]
    by_ranks: dict[Ranks, list[Call]] = {}
    for call in calls:
        shapes = [call.shapes[names[n]] for n in indices]
        by_ranks.setdefault(tuple(None if s is None else len(s) for s in shapes), []).append(call)
    cases = {}
    for ranks, alike in by_ranks.items():
        candidates = (_symbolic_dims(op, call, k, data_sizes) for call in alike[:_MOST_TRIED])
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
    formulas: tuple[str, ...], call: Call, k: int, names: Sequence[str], indices: tuple[int, ...]
) -> bool:
    sizes = {f"d{n}_{axis}": size for n in indices for axis, size in enumerate(call.shapes[names[n]] or ())}
    try:
        return tuple(dims.evaluate(f, sizes) for f in formulas) == call.outputs[k]
    except (KeyError, ValueError):  # it needs another input, or divides by zero
        return False


def _symbolic_dims(op: Operator, call: Call, k: int, data_sizes: DataSizes) -> tuple[str, ...] | None:
    tensors = {}
    for n, i in enumerate(op.interface.inputs):
        shape = call.shapes[i.name]
        symbols = tuple(f"d{n}_{axis}" for axis in range(len(shape or ())))
        tensors[i.name] = None if shape is None else TensorInfo(dtype_of(op, i.name), symbols)
    try:
        found = infer(op, tensors, call.attributes, data_sizes)[k].dims
    except (ShapeError, IndexError):
        return None
    if found is None or any(d is None for d in found):
        return None
    return tuple(str(d) for d in found)
