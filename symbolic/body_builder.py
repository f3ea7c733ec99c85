"""`op` in a body: a builder of standard ONNX nodes, and the tensors that go through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeclarationError
from . import dtypes

if TYPE_CHECKING:
    import onnx_ir as ir

    from .attributes import Attribute

__all__ = ["BodyBuilder", "Tensor", "named"]


_NODES_ONLY = "a body is made of op.X(...), standard ONNX operators, not of torch functions"


class _Named:
    """A Python value that remembers which attribute of the node it is."""

    attribute_name: str
    attribute_type: str


class _Float(float, _Named):
    pass


class _Int(int, _Named):
    pass


class _Str(str, _Named):
    pass


class _List(list[Any], _Named):
    pass


def named(attribute: Attribute, value: Any) -> Any:
    kinds: tuple[tuple[type, Any], ...] = ((int, _Int), (float, _Float), (str, _Str), (list, _List))
    for plain, kind in kinds:
        if isinstance(value, plain):
            made = kind(value)
            made.attribute_name, made.attribute_type = attribute.name, attribute.onnx_type
            return made
    return value  # None


class Tensor:
    """A value inside a body. `dtype` is torch's name, `rank` an int; both None where not known."""

    __slots__ = ("dtype", "rank", "value")

    def __init__(self, value: ir.Value, dtype: str | None, rank: int | None) -> None:
        self.value, self.dtype, self.rank = value, dtype, rank

    @property
    def is_half(self) -> bool:
        """float16 or bfloat16: sums and exponentials belong in float32."""
        return self.dtype in ("float16", "bfloat16")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a tensor in a body knows its `dtype` and `rank`, and has no `{name}`: {_NODES_ONLY}"
        )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise DeclarationError(f"torch's {getattr(function, '__name__', function)} was called: {_NODES_ONLY}")


def _refused(symbol: str, node: str) -> Any:
    def method(self: Tensor, *_: Any) -> Any:
        raise DeclarationError(f"`{symbol}` does not work on the tensors of a body: write op.{node}(...)")

    return method


for _name, _symbol, _node in (
    ("add", "+", "Add"), ("sub", "-", "Sub"), ("mul", "*", "Mul"), ("truediv", "/", "Div"), ("pow", "**", "Pow"),
    ("matmul", "@", "MatMul"), ("neg", "-", "Neg"), ("lt", "<", "Less"), ("gt", ">", "Greater"),
    ("le", "<=", "LessOrEqual"), ("ge", ">=", "GreaterOrEqual"), ("getitem", "[]", "Slice or op.Gather"),
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _refused(_symbol, _node))
    if _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
        setattr(Tensor, f"__r{_name}__", _refused(_symbol, _node))


class BodyBuilder:
    """`op` in a body: every method is an ONNX operator of the default domain; numbers become constants.

    A number takes the dtype of the first tensor argument of the same call. Keywords are attributes,
    `_outputs` the number of results.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[ir.Node] = []

    def __getattr__(self, op_type: str) -> Any:
        import onnx.defs

        if op_type.startswith("_"):
            raise AttributeError(op_type)
        if not onnx.defs.has(op_type, self.opset):
            raise DeclarationError(f"op.{op_type}: opset {self.opset} has no such operator")
        return lambda *inputs, **attributes: self._add(op_type, inputs, attributes)

    def tensor(self, numbers: Any, dtype: str) -> Tensor:
        """A constant tensor, ``op.tensor([0, -1], "int64")``."""
        import onnx_ir as ir

        number = ir.DataType(dtypes.onnx_number(dtype))
        array = np.asarray(numbers).astype(number.numpy())
        constant = ir.tensor(array, dtype=number)
        return self._node(
            "Constant", (), {"value": ir.AttrTensor("value", constant)}, 1, {"value": constant}
        )[0]

    def widen(self, x: Tensor) -> Tensor:
        """float16 and bfloat16 as float32, to accumulate in; others as they are."""
        return self.cast(x, "float32") if x.is_half else x

    def cast(self, x: Tensor, dtype: str | None) -> Tensor:
        """`x` in another dtype; itself where it has that dtype already."""
        if dtype is None or x.dtype == dtype:
            return x
        result: Tensor = self.Cast(x, to=dtypes.onnx_number(dtype))
        return result

    def _add(self, op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        import onnx_ir as ir

        attributes = dict(attributes)
        outputs = attributes.pop("_outputs", 1)
        tensors_given = [i for i in inputs if isinstance(i, Tensor)]
        # A condition gives no number its dtype: op.Where(mask, 1, x) means 1 as x has it.
        like = next((t for t in tensors_given if t.dtype != "bool"), next(iter(tensors_given), None))
        operands = [None if i is None else self._operand(op_type, i, like) for i in inputs]
        converted = {}
        for name, value in attributes.items():
            if isinstance(value, _Named):
                converted[name] = ir.RefAttr(
                    name, value.attribute_name, ir.AttributeType[value.attribute_type]
                )
            elif value is not None:
                converted[name] = ir.convenience.convert_attribute(name, value)
        tensors = self._node(
            op_type, operands, converted, outputs, {n: v for n, v in attributes.items() if v is not None}
        )
        return tensors[0] if outputs == 1 else tuple(tensors)

    def _operand(self, op_type: str, operand: Any, like: Tensor | None) -> Tensor:
        import onnx_ir as ir

        if isinstance(operand, Tensor):
            return operand
        if like is None or like.dtype is None:
            raise DeclarationError(f"op.{op_type}: a number needs a tensor beside it to take its dtype from")
        # A float64 body gets the exact number: the node's own FLOAT attribute has only 24 bits of it.
        exact = like.dtype != "float64" or (
            isinstance(operand, float) and float(np.float32(operand)) == operand
        )
        if isinstance(operand, _Float) and exact:
            reference = ir.RefAttr("value_float", operand.attribute_name, ir.AttributeType.FLOAT)
            (constant,) = self._node(
                "Constant", (), {"value_float": reference}, 1, {"value_float": float(operand)}
            )
            return self.cast(constant, like.dtype)
        return self.tensor(operand, like.dtype)

    def _node(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        attributes: Mapping[str, ir.Attr],
        outputs: int,
        values: Mapping[str, Any],
    ) -> list[Tensor]:
        """Add a node; `values` are the attributes' Python values, for type inference."""
        import onnx_ir as ir

        node = ir.Node(
            "",
            op_type,
            [None if t is None else t.value for t in inputs],
            attributes=list(attributes.values()),
            num_outputs=outputs,
            version=self.opset,
        )
        for k, value in enumerate(node.outputs):
            value.name = f"t{len(self.nodes)}" + (f"_{k}" if outputs > 1 else "")
        self.nodes.append(node)
        types = _result_types(op_type, self.opset, inputs, values, outputs)
        return [Tensor(v, *t) for v, t in zip(node.outputs, types, strict=True)]


def _result_types(
    op_type: str, opset: int, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any], outputs: int
) -> list[tuple[str | None, int | None]]:
    """Dtype and rank of a standard node's results, by ONNX's own inference."""
    import onnx
    from onnx import helper, shape_inference

    names = ["" if t is None else f"i{k}" for k, t in enumerate(inputs)]
    types = {}
    for name, t in zip(names, inputs, strict=True):
        if t is not None and t.dtype is not None:
            shape = None if t.rank is None else [None] * t.rank
            types[name] = helper.make_tensor_type_proto(dtypes.onnx_number(t.dtype), shape)
    results = [f"o{k}" for k in range(outputs)]
    constants = {n: c for n, t in zip(names, inputs, strict=True) if t is not None and (c := _constant(t))}
    try:
        node = helper.make_node(op_type, names, results, **{n: _plain(v) for n, v in attributes.items()})
        found = shape_inference.infer_node_outputs(
            onnx.defs.get_schema(op_type, opset),
            node,
            types,
            constants,
            opset_imports=[helper.make_opsetid("", opset)],
        )
    except Exception:  # not enough is known; the body may still be right, and the checker looks at it later
        found = {}
    known: list[tuple[str | None, int | None]] = []
    for name in results:
        tensor = found[name].tensor_type if name in found else None
        dtype = dtypes.name_of(tensor.elem_type) if tensor is not None and tensor.elem_type else None
        rank = len(tensor.shape.dim) if tensor is not None and tensor.HasField("shape") else None
        known.append((dtype, rank))
    return known


def _constant(tensor: Tensor) -> Any:
    """The TensorProto of a constant: axes and shapes decide the rank of a result."""
    import onnx_ir as ir

    producer = tensor.value.producer()
    attribute = producer.attributes.get("value") if producer is not None else None
    return None if attribute is None else ir.to_proto(attribute.value)


def _plain(value: Any) -> Any:
    """An attribute value as `onnx.helper` takes it."""
    import onnx_ir as ir

    if isinstance(value, ir.Attr):
        value = value.value
    if isinstance(value, ir.TensorProtocol):
        return ir.to_proto(value)
    return list(value) if isinstance(value, (list, tuple)) else value
