"""The user's model as the reference: values of the file matched to values of the traced original."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...export.graph.translation import user_frame
from ...ort_ops.arrays import to_array
from ...symbolic import dtypes
from ..backends.torch import arrays_of, cast
from ..parity.float_types import is_float
from .interpreter import Interpreter
from .reference import Fragment, Origin

if TYPE_CHECKING:
    import torch

__all__ = ["OriginalReference"]

Array = npt.NDArray[Any]


class OriginalReference:
    """See `Reference`.

    Args:
        pairs: from names in the file to nodes of the traced graph.
        types: ONNX's numbers of the element types that values have in the file, where they are known. A file that is
            float16 inside may keep single values float32; a step of it must be given what it is made for.
    """

    of_the_model = True

    def __init__(
        self, run: Interpreter, pairs: Mapping[str, Any], words: str, types: Mapping[str, int] | None = None
    ) -> None:
        self.words = words
        self.pairs = dict(pairs)
        self._run = run
        self.values: dict[str, Array] = {
            name: _in_the_files_dtype(to_array(run.values[node]), (types or {}).get(name))
            for name, node in pairs.items()
        }

    def expected(self, name: str) -> Array:
        return to_array(self._run.values[self.pairs[name]]) if name in self.pairs else self.values[name]

    def wide(self, wanted: Sequence[str], known: Collection[str]) -> dict[str, Array | None]:
        nodes = {self.pairs[name] for name in known if name in self.pairs}
        found = self._run.wide({self.pairs[name] for name in wanted}, nodes)
        results: dict[str, Array | None] = {}
        for name in wanted:
            value = found[self.pairs[name]]
            fits = value is not None and tuple(value.shape) == self.values[name].shape
            results[name] = to_array(value) if fits else None
        return results

    def carried_on(self, changed: Mapping[str, Array]) -> list[Array]:
        values = {}
        for name, array in changed.items():
            node, tensor = self.pairs[name], _tensor(array)
            own = self._run.values[node].dtype
            values[node] = cast(tensor, own) if own.is_floating_point else tensor
        return arrays_of(self._run.carried_on(values))

    def returned(self) -> list[Array]:
        """What the traced original returns on the sample."""
        return arrays_of(self._run.returned())

    def origin(self, name: str) -> Origin:
        node = self.pairs.get(name)
        if node is None:
            return Origin()
        stack = node.meta.get("nn_module_stack") or {}
        paths = [str(entry[0]) for entry in stack.values()]
        return Origin(next((p for p in reversed(paths) if p), ""), user_frame(node) or "")

    def weights(self, name: str) -> dict[str, Array]:
        node = self.pairs.get(name)
        if node is None:
            return {}
        known = {other for other in self.pairs.values() if other is not node}
        behind = [n for n in self._run.needs(node, known) if n.name in self._run.target]
        return {self._run.target[n.name]: to_array(self._run.values[n]) for n in behind}

    def fragment(self, name: str) -> Fragment | None:
        node = self.pairs.get(name)
        if node is None:
            return None
        return self._run.fragment(node, {other for other in self.pairs.values() if other is not node})

    def declared(self, name: str) -> tuple[str, str, Mapping[str, Any]] | None:
        node = self.pairs.get(name)
        if node is None:
            return None
        return self._run.declared(node, {other for other in self.pairs.values() if other is not node})

    def weight(self, name: str) -> tuple[str, Array] | None:
        for node_name, target in self._run.target.items():
            if target == name:
                return target, to_array(self._run.values[self._run.nodes[node_name]])
        node = self._run.nodes.get(name)
        if node is None or not hasattr(self._run.values.get(node), "shape"):
            return None
        sources = [n.name for n in self._run.needs(node) if n.op == "placeholder"]
        if not sources or any(source not in self._run.target for source in sources):
            return None
        behind = ", ".join(sorted(self._run.target[s] for s in sources))
        return behind, to_array(self._run.values[node])


def _in_the_files_dtype(array: Array, number: int | None) -> Array:
    import onnx.helper

    if number is None or not is_float(array):
        return array
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    if dtype == array.dtype or not is_float(np.empty(0, dtype)):
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _tensor(array: Array) -> torch.Tensor:
    import torch

    array = np.array(array, order="C")  # torch may write into what it is given
    try:
        return torch.from_numpy(array)
    except TypeError:  # a type that numpy lacks
        bits = torch.from_numpy(array.view(f"int{8 * array.dtype.itemsize}"))
        return bits.view(dtypes.torch_dtype(array.dtype.name))
