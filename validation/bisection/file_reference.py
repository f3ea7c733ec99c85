"""The file as written, evaluated node by node by the ONNX project's own reference, in the file's dtypes and in float64.

As the reference it cannot find a fault of the file, only of the runtime that runs it. Next to the original it tells
which of the two a wrong node is.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...symbolic import dtypes
from ...symbolic.nested_graphs import graphs_within
from ..backends.torch import described
from .dataflow import Part
from .reference import Fragment, Origin, Unmappable
from .submodel import Workshop

if TYPE_CHECKING:
    import onnx

__all__ = ["FileReference", "as_written"]

Array = npt.NDArray[Any]

# numbers of the dtypes that are evaluated in float64 instead -> their bytes
_NARROW = {dtypes.onnx_number(name): size for name, size in (("float32", 4), ("float16", 2), ("bfloat16", 2))}
_TYPED = {"Cast": "to", "EyeLike": "dtype", "Bernoulli": "dtype", "SequenceEmpty": "dtype"}


class FileReference:
    """See `Reference`."""

    of_the_model = False

    def __init__(
        self, workshop: Workshop, inputs: Mapping[str, Array], wanted: Iterable[str], why: str
    ) -> None:
        self.why = why
        self.words = (
            f"the file itself, node by node ({why}): this finds faults of the runtime and of precision, "
            "not faults of the file"
        )
        self._workshop = workshop
        self._flow = workshop.flow
        names = tuple(name for name in wanted if name not in self._flow.constant)
        part = self._flow.part(names, frozenset(self._flow.inputs))
        try:
            found = _evaluated(workshop, part, inputs, wide=False)
        except Exception as error:
            raise Unmappable(f"the file cannot be evaluated node by node: {described(error)}") from error
        self.values: dict[str, Array] = {**inputs, **found}

    def expected(self, name: str) -> Array:
        return self.values[name]

    def wide(self, wanted: Sequence[str], known: Collection[str]) -> dict[str, Array | None]:
        results: dict[str, Array | None] = {}
        for name in wanted:
            part = self._flow.part([name], frozenset(known) - {name})
            results.update(as_written(self._workshop, part, self.values))
        return results

    def carried_on(self, changed: Mapping[str, Array]) -> list[Array]:
        part = self._flow.part(self._flow.outputs, set(changed) | set(self._flow.inputs))
        try:
            found = _evaluated(self._workshop, part, {**self.values, **changed}, wide=False)
        except Exception as error:
            raise Unmappable(described(error)) from error
        return [changed[n] if n in changed else found[n] for n in self._flow.outputs]

    def origin(self, name: str) -> Origin:
        return Origin()

    def weight(self, name: str) -> tuple[str, Array] | None:
        return None

    def weights(self, name: str) -> dict[str, Array]:
        return {}

    def fragment(self, name: str) -> Fragment | None:
        return None

    def declared(self, name: str) -> tuple[str, str, Mapping[str, Any]] | None:
        return None


def as_written(workshop: Workshop, part: Part, values: Mapping[str, Array]) -> dict[str, Array | None]:
    """What the nodes of a part give in float64, from values as they are; None where they cannot be evaluated."""
    try:
        found = _evaluated(workshop, part, values, wide=True)
    except Exception:  # operators that the reference lacks, dtypes that numpy refuses
        return dict.fromkeys(part.wanted)
    return (
        {name: array if array.shape == values[name].shape else None for name, array in found.items()}
        if all(name in values for name in part.wanted)
        else dict(found)
    )


def _evaluated(workshop: Workshop, part: Part, values: Mapping[str, Array], wide: bool) -> dict[str, Array]:
    import onnx.inliner
    from onnx.reference import ReferenceEvaluator

    model = workshop.loaded(part, values)
    feeds = {name: values[name] for name in (i.name for i in model.graph.input)}
    if wide:
        # constants of a function's body may come from attributes of the call
        model = onnx.inliner.inline_local_functions(model) if model.functions else model
        _widen(model.graph, _narrowest(feeds.values(), model.graph.initializer))
        feeds = {name: _wide(array) for name, array in feeds.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        arrays = ReferenceEvaluator(model).run(None, feeds)
    return {name: np.asarray(array) for name, array in zip(part.wanted, arrays, strict=True)}


def _narrowest(arrays: Iterable[Array], constants: Iterable[onnx.TensorProto]) -> int:
    """Bytes of the narrowest floating dtype that the nodes are given: a cast to a narrower one is meant to round."""
    sizes = [a.dtype.itemsize for a in arrays if a.dtype.kind == "f" or a.dtype.name == "bfloat16"]
    # a weight of two bytes takes part in a product of two bytes, in a file that was cast
    sizes += [_NARROW[t.data_type] for t in constants if t.data_type in _NARROW]
    return min(sizes, default=2)


def _widen(graph: onnx.GraphProto, least: int) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    _widen_nodes(graph.node, least)


def _widen_nodes(nodes: Iterable[onnx.NodeProto], least: int) -> None:
    import onnx
    from onnx import numpy_helper

    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                held = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                attribute.CopyFrom(
                    onnx.helper.make_attribute("value", numpy_helper.from_array(np.array(held, np.float64)))
                )
            elif attribute.name == _TYPED.get(node.op_type) and _NARROW.get(attribute.i, 0) >= least:
                attribute.i = onnx.TensorProto.DOUBLE
        for graph in graphs_within(node):
            _widen(graph, least)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    from onnx import numpy_helper

    if tensor.data_type in _NARROW:
        tensor.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name))


def _wide(array: Array) -> Array:
    narrow = array.dtype in (np.float32, np.float16) or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if narrow else array
