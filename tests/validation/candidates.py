"""Ways in which a runtime may compute a model, from the most accurate to the least; all of them sound.

Each takes a module and its inputs in the deployed dtype and returns the first output as an array.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper
from torch import nn

from deployops.ort_ops.arrays import to_array
from deployops.validation import Sample
from deployops.validation.original import Expected, Original
from deployops.validation.parity.compare import compare_output
from deployops.validation.record import Cell

Inputs = tuple[torch.Tensor, ...]


class Net(nn.Module):
    """A function of its inputs and of itself, with constants that follow the module's dtype."""

    def __init__(self, function: Any, **constants: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(*inputs, self)
        return result


def cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return tuple(v.to(dtype) if v.is_floating_point() else v for v in inputs)


def exported(net: nn.Module, inputs: Inputs, opset: int) -> onnx.ModelProto:
    file = io.BytesIO()
    names = [f"in{i}" for i in range(len(inputs))]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, inputs, file, input_names=names, dynamo=False, opset_version=opset)
    return onnx.load_from_string(file.getvalue())


def run(model: onnx.ModelProto, inputs: Inputs, optimize: bool) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    fed = zip((i.name for i in session.get_inputs()), (v.numpy() for v in inputs), strict=True)
    return np.asarray(session.run(None, dict(fed))[0])


def on_onnxruntime(net: nn.Module, inputs: Inputs, opset: int = 20, optimize: bool = True) -> np.ndarray:
    """As a user would: float16 in ONNX Runtime's CPU kernels means casts around float32."""
    return run(exported(net, inputs, opset), inputs, optimize)


def inside_float32(net: nn.Module, inputs: Inputs, dtype: torch.dtype) -> np.ndarray:
    """The whole model in float32, rounded once at the end: as good as a narrow dtype gets."""
    result = copy.deepcopy(net).float()(*cast(inputs, torch.float32))
    return to_array(result.to(dtype) if result.is_floating_point() else result)


def each_node_rounded(net: nn.Module, inputs: Inputs, dtype: torch.dtype, opset: int = 16) -> np.ndarray:
    """Every node of the file computes in float32 and rounds its result; activations are several nodes; constants too."""
    single = cast(inputs, torch.float32)
    model = onnx.shape_inference.infer_shapes(exported(copy.deepcopy(net).float(), single, opset))
    narrow = TensorProto.FLOAT16 if dtype == torch.float16 else TensorProto.BFLOAT16
    values = (*model.graph.value_info, *model.graph.output)
    floating = {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    nodes: list[Any] = []
    for node in list(model.graph.node):
        after = []
        constant = node.op_type == "Constant" and node.attribute[0].t.data_type == TensorProto.FLOAT
        for i, name in enumerate(node.output):
            if name in floating or constant:
                node.output[i] = f"{name}_exact"
                after.append(helper.make_node("Cast", [f"{name}_exact"], [f"{name}_narrow"], to=narrow))
                after.append(helper.make_node("Cast", [f"{name}_narrow"], [name], to=TensorProto.FLOAT))
        nodes += [node, *after]
    del model.graph.node[:]
    del model.graph.value_info[:]
    model.graph.node.extend(nodes)
    result = torch.from_numpy(run(model, single, optimize=False))
    return to_array(result.to(dtype) if result.is_floating_point() else result)


@torch.no_grad()
def expected(net: nn.Module, inputs: Inputs) -> Expected:
    return Original(net).expected(Sample("s", inputs))[0]


@torch.no_grad()
def cell(reference: Expected, got: np.ndarray, mode: str = "values") -> Cell:
    return compare_output("s", "y", "onnxruntime", got, reference, mode)
