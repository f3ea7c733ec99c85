"""Types and shapes of the values of a graph whose inputs have known sizes.

ONNX's shape inference does most of it in one call. It does not follow sizes that a model computes (Shape, Gather, Div,
Concat, then Reshape), so where something is left open, the nodes are gone through once more in order: small integers are
computed, and each other node is inferred from what is known before it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .values import Value

if TYPE_CHECKING:
    import onnx

__all__ = ["element_type", "infer_shapes", "value_shapes"]

Array = npt.NDArray[Any]

# This project's names of element types against ONNX's.
_ONNX = {"float32": "float", "float64": "double"}
_OURS = {theirs: ours for ours, theirs in _ONNX.items()}
# What sizes are computed with. Nothing else is run, and nothing on more than so many elements.
_ARITHMETIC = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "Cast", "Gather", "Concat", "Slice", "Squeeze",
        "Unsqueeze", "Reshape", "Identity", "Equal", "Where", "ConstantOfShape", "Constant", "Floor", "Ceil", "Range",
        "ReduceProd", "Expand", "Split", "Greater", "Less", "Not", "And", "Or",
    }
)  # fmt: skip
_MOST = 64
_LONGEST = 1 << 16  # elements of a vector that ONNX may follow


def value_shapes(model: onnx.ModelProto) -> dict[str, Value]:
    """Value name -> type and shape, for those whose shape is known. The sizes of the graph's inputs must be numbers."""

    try:
        inferred = infer_shapes(model)
    except Exception:  # a node that inference refuses: what the file states remains
        inferred = model
    graph = inferred.graph
    found = {t.name: Value(_name(t.data_type), tuple(t.dims)) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if (known := _of_type(value.type)) is not None:
            found.setdefault(value.name, known)
    if any(name and name not in found for node in model.graph.node for name in node.output):
        _Walk(model, found).go()
    return found


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX's inference, with the values of small integers. Raises as it does.

    It takes any vector for a shape, and writes out a dim for each of its elements, again for each node: with a long one it
    goes without values.
    """
    import onnx

    graph = model.graph
    vectors = [t.dims[0] for t in graph.initializer if len(t.dims) == 1]
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        vectors += [dims[0].dim_value] if len(dims) == 1 else []
    return onnx.shape_inference.infer_shapes(model, data_prop=max(vectors, default=0) <= _LONGEST)


def element_type(dtype: str) -> int:
    """ONNX's number of an element type."""
    import onnx

    return int(onnx.TensorProto.DataType.Value(_ONNX.get(dtype, dtype).upper()))


class _Walk:
    """Goes through the nodes in order, and adds to `values` what follows from what is known."""

    def __init__(self, model: onnx.ModelProto, values: dict[str, Value]) -> None:
        import onnx

        self._model = model
        self._values = values
        self._local = {(f.domain, f.name) for f in model.functions}
        self._numbers: dict[str, Array] = {}
        for tensor in model.graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL and 0 <= np.prod(tensor.dims) <= _MOST:
                self._numbers[tensor.name] = onnx.numpy_helper.to_array(tensor)

    def go(self) -> None:
        for node in self._model.graph.node:
            made = self._computed(node)
            if made is not None:
                for name, array in zip(node.output, made, strict=False):
                    self._numbers[name] = array
                    self._values.setdefault(name, Value(str(array.dtype), array.shape))
            elif any(n and n not in self._values for n in node.output):
                self._values.update(self._inferred(node))

    def _computed(self, node: onnx.NodeProto) -> list[Array] | None:
        """The results of a node on small known numbers; None where it is not one of those."""
        from onnx.reference import ReferenceEvaluator

        if node.domain:
            return None
        if node.op_type in ("Shape", "Size"):
            value = self._values.get(node.input[0])
            if value is None:
                return None
            shape = np.array(value.shape, np.int64)
            if node.op_type == "Size":
                return [np.array(value.count, np.int64)]
            bounds = {a.name: a.i for a in node.attribute}
            return [shape[bounds.get("start") : bounds.get("end")]]
        small = all(not n or n in self._numbers for n in node.input)
        if node.op_type not in _ARITHMETIC or not small:
            return None
        if any((v := self._values.get(n)) is not None and v.count > _MOST for n in node.output):
            return None
        if _grows_to(node.op_type, [self._numbers[n] for n in node.input if n]) > _MOST:
            return None
        try:
            got = ReferenceEvaluator(self._alone(node)).run(
                None, {n: self._numbers[n] for n in node.input if n}
            )
        except Exception:  # what the reference does not know, or refuses
            return None
        arrays = [np.asarray(a) for a in got]
        return arrays if all(a.size <= _MOST for a in arrays) else None

    def _inferred(self, node: onnx.NodeProto) -> dict[str, Value]:
        """What follows for the outputs of one node from the types, and the small numbers, of its inputs."""

        if any(n and n not in self._values for n in node.input):
            return {}
        alone = self._alone(node)
        try:
            graph = infer_shapes(alone).graph
        except Exception:
            return {}
        return {o.name: v for o in graph.output if (v := _of_type(o.type)) is not None}

    def _alone(self, node: onnx.NodeProto) -> onnx.ModelProto:
        """A model of that node, its inputs of the known types, the small numbers as constants."""
        import onnx

        alone = onnx.ModelProto(ir_version=self._model.ir_version)
        alone.opset_import.extend(self._model.opset_import)
        if (node.domain, node.op_type) in self._local:
            alone.functions.extend(self._model.functions)
        graph = alone.graph
        graph.name = "node"
        graph.node.add().CopyFrom(node)
        for name in dict.fromkeys(n for n in node.input if n):
            value = self._values[name]
            info = onnx.helper.make_tensor_value_info(name, element_type(value.dtype), value.shape)
            graph.input.append(info)
            if name in self._numbers:
                graph.initializer.append(onnx.numpy_helper.from_array(self._numbers[name], name))
        for name in node.output:
            if name:
                graph.output.add(name=name)
        return alone


def _grows_to(op_type: str, numbers: list[Array]) -> float:
    """Elements of the result of those operators that make many out of few numbers: a file may ask for any number."""
    if op_type in ("ConstantOfShape", "Expand") and numbers:
        return float(np.prod(numbers[-1].astype(np.float64)))
    if op_type == "Range" and len(numbers) == 3:
        start, limit, delta = (float(n.reshape(-1)[0]) for n in numbers)
        return abs((limit - start) / delta) if delta else math.inf
    return 0.0


def _of_type(kind: onnx.TypeProto) -> Value | None:
    tensor = kind.tensor_type
    if not kind.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    if not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return Value(_name(tensor.elem_type), tuple(d.dim_value for d in tensor.shape.dim))


def _name(number: int) -> str:
    import onnx

    name = str(onnx.TensorProto.DataType.Name(number)).lower()  # type: ignore[arg-type,unused-ignore]
    return _OURS.get(name, name)
