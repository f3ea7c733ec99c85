"""Values of the file and of the traced original that are the same value: by name and place, or by what they hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...ort_ops.arrays import to_array
from ..parity.float_types import is_float
from .dataflow import Dataflow
from .interpreter import Interpreter

if TYPE_CHECKING:
    import onnx

__all__ = ["matched_by_name", "matched_by_value", "outputs_by_position"]

Array = npt.NDArray[Any]

# torch names the results of a list-valued operator after it: `split_split_0`.
_ITEM = re.compile(r"(?P<list>.+)_split_(?P<index>\d+)")
# Of the values matched by name, so many must depend on what they depend on in the original.
_TRUSTED = 0.9
# By value: the root mean square of the difference over that of the value. Rounding stays below _SAME; a value that a
# fault has changed is still the nearest of its shape, and nearer than _NEAR.
_SAME = {8: 1e-6, 4: 1e-4, 2: 3e-2}
_NEAR = 0.5
# Elements that tell one value from another; whether it is right is judged on all of them, later.
_LOOKED_AT = 1 << 16


def matched_by_name(run: Interpreter, flow: Dataflow) -> dict[str, Any]:
    """Values of the file and nodes of the traced original that have one name and one place in their graphs."""
    pairs: dict[str, Any] = {}
    for name in flow.made_by:
        node = _named(run, name)
        if node is not None:
            pairs[name] = node
    pairs |= outputs_by_position(run, flow)
    shown = {i.name: i.type.tensor_type for i in flow.model.graph.value_info}
    wrong = [name for name, node in pairs.items() if not _in_place(run, flow, name, node, pairs)]
    # the numbers that torch counts results by (getitem_7) say nothing where graphs differ
    out = wrong if len(wrong) > (1 - _TRUSTED) * len(pairs) else [n for n in wrong if _is_counted(pairs[n])]
    out += [n for n, node in pairs.items() if n in shown and not _fits(shown[n], run.values[node])]
    return {name: node for name, node in pairs.items() if name not in out}


def _is_counted(node: Any) -> bool:
    return node.target is operator.getitem


def _fits(declared: onnx.TypeProto.Tensor, value: Any) -> bool:
    """Whether a declared shape, where the file has one, may be this value's."""
    if not declared.HasField("shape"):
        return True
    dims = declared.shape.dim
    return len(dims) == value.dim() and all(
        not dim.HasField("dim_value") or dim.dim_value == size
        for dim, size in zip(dims, value.shape, strict=True)
    )


def outputs_by_position(run: Interpreter, flow: Dataflow) -> dict[str, Any]:
    """The outputs of the file, which have the user's names, where both sides return as many."""
    results = [r for r in run.results if r is not None]
    tensors = [r for r in results if run.is_tensor(r)]
    for candidates in (results, tensors):
        if len(candidates) == len(flow.outputs):
            return {
                name: node
                for name, node in zip(flow.outputs, candidates, strict=True)
                if name in flow.made_by and run.is_tensor(node)
            }
    return {}


def _named(run: Interpreter, name: str) -> Any:
    node = run.nodes.get(name)
    if node is None:
        item = _ITEM.fullmatch(name)
        whole = run.nodes.get(item["list"]) if item else None
        if item is None or whole is None:
            return None
        index = int(item["index"])
        node = next((u for u in whole.users if len(u.args) > 1 and u.args[1] == index), None)
    return node if node is not None and node.op == "call_function" and run.is_tensor(node) else None


def _in_place(run: Interpreter, flow: Dataflow, name: str, node: Any, pairs: Mapping[str, Any]) -> bool:
    """Whether the values that the file's node is computed from are behind it in the original too."""
    given = [g for g in flow.part([name], pairs.keys() - {name}).given if g in pairs]
    behind = run.needs(node) if given else set()
    return all(pairs[g] in behind for g in given)


def matched_by_value(run: Interpreter, flow: Dataflow, got: Mapping[str, Array]) -> dict[str, Any]:
    """Values of the file that hold what a value of the original holds, from a run of the file with a fault in it.

    Behind the fault nothing is the same any more. There a value is matched to the nearest of its shape that is
    computed from matched values, one step far.
    """
    pairs: dict[str, Any] = {}
    free = {
        n: to_array(run.values[n]) for n in run.nodes.values() if n.op == "call_function" and run.is_tensor(n)
    }
    free = {node: array for node, array in free.items() if _tells(array)}
    for name, array in got.items():
        distances = {node: _distance(array, value) for node, value in free.items()}
        # the nearest, not the first that will do: a value and its normalised self may differ by little
        node = min(distances, key=lambda n: distances[n], default=None)
        if node is not None and distances[node] <= _tolerance(array, free[node]):
            pairs[name] = node
            del free[node]
    # integers are often the same by chance: the position of a maximum
    settled = {n for node in pairs.values() if run.values[node].is_floating_point() for n in run.needs(node)}
    for node in [n for n in free if n not in settled]:
        distances = {
            name: _distance(array, free[node])
            for name, array in got.items()
            if name not in pairs and _in_place(run, flow, name, node, pairs)
        }
        nearest = min(distances, key=lambda name: distances[name], default=None)
        if nearest is not None and distances[nearest] <= _NEAR:
            pairs[nearest] = node
    return pairs


def _tolerance(array: Array, value: Array) -> float:
    return _SAME.get(min(array.dtype.itemsize, value.dtype.itemsize), 0.0) if is_float(array) else 0.0


def _tells(array: Array) -> bool:
    """Whether the values can tell an array from others of its shape."""
    return array.size > 1 and bool((array != array.flat[0]).any())


def _distance(array: Array, value: Array) -> float:
    """Relative, as root mean squares; infinite for another shape or dtype, but for one floating dtype and another."""
    if array.shape != value.shape or (
        array.dtype != value.dtype and not (is_float(array) and is_float(value))
    ):
        return np.inf
    step = max(array.size // _LOOKED_AT, 1)
    with np.errstate(all="ignore"):
        a, b = (v.reshape(-1)[::step].astype(np.float64) for v in (array, value))
        size = float(np.sqrt(np.mean(b**2)))
        apart = float(np.sqrt(np.mean((a - b) ** 2)))
    return apart / size if np.isfinite(apart) and np.isfinite(size) and size else np.inf
