"""An ONNX file of one node of an operator and its body, every dim open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..symbolic import dtypes, functions

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

    from ..symbolic.checking.sample_runs import SampleRun
    from ..symbolic.operator import Operator

__all__ = ["write_bare_node"]

_OPSET = 20  # what export writes by default


def write_bare_node(op: Operator, run: SampleRun, names: Sequence[str], path: Path) -> None:
    """Write the node as the sample calls it.

    Args:
        names: of the tensors that are there, `inputs.x` or `inputs.xs.0`, in the order of the sample's arguments.
    """
    import onnx
    import onnx_ir as ir

    call = op.interface.bind((), run.arguments)
    flat_names: list[str] = []
    for i in op.interface.inputs:
        items = call.tensors[i.name] if i.form == "variadic" else None
        name = f"inputs.{i.name}"
        flat_names += [name] if items is None else [f"{name}.{k}" for k in range(len(items))]
    inputs: dict[str, ir.Value] = {}
    node_inputs: list[ir.Value | None] = []
    for name, t in zip(
        flat_names, op.interface.flat_inputs(call), strict=False
    ):  # absent ones at the end are dropped
        node_inputs.append(None if t is None else inputs.setdefault(name, _value(name, t)))
    kinds = {a.name: a.onnx_type for a in op.interface.attributes}
    attributes = [ir.Attr(n, ir.AttributeType[kinds.get(n, "INT")], v) for n, v in call.attributes.items()]
    results = run.reference()
    node = ir.Node(
        op.domain, op.op_type, node_inputs, attributes, num_outputs=len(results), version=op.version
    )
    for k, (value, t) in enumerate(zip(node.outputs, results, strict=True)):
        # as the exporter names what the operator alone returns
        value.name = "output" if len(results) == 1 else f"output_{k}"
        value.type = ir.TensorType(ir.DataType(dtypes.onnx_number(t.dtype)))
        value.shape = ir.Shape([None] * t.dim())
    graph = ir.Graph(
        [inputs[n] for n in names],
        node.outputs,
        nodes=[node],
        opset_imports={"": _OPSET, op.domain: op.version},
        name="node",
    )
    model = ir.Model(graph, ir_version=10)
    if op.body_function is not None:
        functions.attach(model, {(op.domain, op.op_type): op})
    onnx.save(ir.to_proto(model), str(path))


def _value(name: str, tensor: torch.Tensor) -> ir.Value:
    import onnx_ir as ir

    return ir.Value(
        name=name,
        shape=ir.Shape([None] * tensor.dim()),
        type=ir.TensorType(ir.DataType(dtypes.onnx_number(tensor.dtype))),
    )
