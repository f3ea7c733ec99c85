"""Symbolic functions for torch's older exporter (`torch.onnx.export(dynamo=False)`), made from declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ExportError
from . import registry
from .operator import Operator
from .plugin_attributes import plugin_attributes

__all__ = ["register", "symbolic_function"]

_SUFFIX = {"INT": "i", "FLOAT": "f", "STRING": "s", "INTS": "i", "FLOATS": "f", "STRINGS": "s"}


def symbolic_function(op: Operator) -> Callable[..., Any]:
    """``symbolic(g, *arguments)`` for `torch_onnx.register_custom_op_symbolic`.

    Raises ExportError, while exporting, where an argument that must be an attribute is not a constant.
    """

    def symbolic(g: Any, *args: Any, **kwargs: Any) -> Any:
        named = dict(zip(op.interface.arguments, args, strict=False)) | kwargs
        lists = {i.name for i in op.interface.variadics}
        tensors = {i.name for i in op.interface.inputs}
        given = {
            n: _unpack(v) if n in lists else _absent(v) if n in tensors else _constant(op, n, v)
            for n, v in named.items()
        }
        bound = op.interface.bind((), given)
        kinds = {a.name: a.onnx_type for a in op.interface.attributes}
        attributes = {f"{n}_{_SUFFIX[kinds.get(n, 'INT')]}": v for n, v in bound.attributes.items()}
        if any(v == [] for v in attributes.values()):
            raise ExportError(
                f"{op.name}: dynamo=False cannot write an empty list as an attribute; use dynamo=True"
            )
        attributes |= {
            f"{n}_{'s' if isinstance(v, str) else 'i'}": v for n, v in plugin_attributes(op).items()
        }
        if any(o.form == "variadic" for o in op.interface.outputs):
            raise ExportError(
                f"{op.name} returns a list of tensors, which dynamo=False cannot carry; use dynamo=True"
            )
        if op.interface.mutates:
            raise ExportError(f"{op.name} writes into an argument, which dynamo=False drops; use dynamo=True")
        flat = [v if v is not None else g.op("prim::Constant") for v in op.interface.flat_inputs(bound)]
        for v in flat:
            if hasattr(v, "setType") and v.node().kind() == "prim::Constant" and v.node().mustBeNone():
                raise ExportError(
                    f"{op.name}: dynamo=False cannot leave out an input in the middle; use dynamo=True"
                )
        count = len(op.interface.outputs)
        result = g.op(op.onnx_name, *flat, outputs=count, **attributes)
        results = [result] if count == 1 else list(result)
        _set_types(op, bound.tensors, bound.attributes, results)
        return result

    return symbolic


def register(operators: Iterable[Operator] | None = None, opset: int = 9) -> None:
    """Register symbolic functions with torch's older exporter, for all declared operators by default."""
    import torch

    torch_onnx: Any = torch.onnx  # which does not list the function among its own
    for op in registry.all_operators() if operators is None else operators:
        torch_onnx.register_custom_op_symbolic(op.name.split(".")[0], symbolic_function(op), opset)


def _unpack(value: Any) -> list[Any]:
    from torch.onnx import symbolic_helper

    return list(value) if isinstance(value, (list, tuple)) else list(symbolic_helper._unpack_list(value))


def _absent(value: Any) -> Any:
    from torch.onnx import symbolic_helper

    return None if value is None or symbolic_helper._is_none(value) else value


def _constant(op: Operator, name: str, value: Any) -> Any:
    """The Python value of a graph constant."""
    from torch.onnx import symbolic_helper

    if not hasattr(value, "node"):
        return value
    if symbolic_helper._is_none(value):
        return None
    constant = symbolic_helper._maybe_get_const(value, "t")
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return [_constant(op, name, v) for v in node.inputs()]
    if hasattr(constant, "node"):
        raise ExportError(
            f"{op.name}: argument `{name}` depends on the input; an attribute must be a constant"
        )
    if hasattr(constant, "tolist"):
        return constant.tolist()
    return constant


def _set_types(op: Operator, tensors: Any, attributes: Any, results: list[Any]) -> None:
    """Give the outputs dtypes and shapes from the one shape rule, where the inputs' are known."""
    import torch

    from . import dtypes
    from .shapes import ShapeError, TensorInfo, infer

    def info(v: Any) -> TensorInfo | None:
        if v is None:
            return None
        kind = v.type()
        dtype, sizes = (
            (kind.dtype(), kind.varyingSizes()) if isinstance(kind, torch._C.TensorType) else (None, None)
        )
        if dtype is None or sizes is None:
            return TensorInfo(None, None)
        return TensorInfo(dtypes.name_of(dtype), tuple(sizes))

    named = {
        n: [i for i in map(info, v) if i] if isinstance(v, list) else info(v) for n, v in tensors.items()
    }
    try:
        inferred = infer(op, named, attributes)
    except ShapeError:
        return
    for value, result in zip(results, inferred, strict=False):
        first = next((v for v in tensors.values() if hasattr(v, "type")), None)
        if first is None or result.dtype is None or result.dims is None:
            continue
        like = first.type()
        if isinstance(like, torch._C.TensorType):
            sizes = [d if isinstance(d, int) else None for d in result.dims]
            value.setType(like.with_dtype(dtypes.torch_dtype(result.dtype)).with_sizes(sizes))
