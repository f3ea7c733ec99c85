"""Small models put before the runtime, to learn why it refused a large one. Only run after a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["kernel_gaps", "versions_that_load"]

# Trying an operator costs a millisecond; a model with more kinds than this is diagnosed by the first ones.
MOST_EXPERIMENTS = 100


def versions_that_load(model: onnx.ModelProto, domain: str, libraries: Sequence[Path]) -> list[int]:
    """Versions of the domain with which the libraries have the operator after all."""
    import onnx

    refusal = str(_try(model, libraries))
    found = []
    for version in range(1, 9) if libraries else ():
        other = onnx.ModelProto()
        other.CopyFrom(model)
        for entry in other.opset_import:
            if entry.domain == domain:
                entry.version = version
        trial = _try(other, libraries)
        # any other error means that the operator was found and something later failed
        if trial is None or str(trial) != refusal:
            found.append(version)
    return found


def kernel_gaps(model: onnx.ModelProto) -> set[str]:
    """Operators of the model that, alone, have no kernel for their input types: "MatMul(bfloat16)"."""
    import onnx
    import onnx.inliner

    model = onnx.inliner.inline_local_functions(model)
    model = onnx.shape_inference.infer_shapes(model, data_prop=False)
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    types |= {t.name: t.data_type for t in model.graph.initializer}
    gaps: set[str] = set()
    tried: set[tuple[Any, ...]] = set()
    for node in model.graph.node:
        kinds = [types.get(n, 0) if n else None for n in node.input]
        key = (node.domain, node.op_type, *kinds)
        if key in tried or len(tried) >= MOST_EXPERIMENTS or 0 in kinds or not kinds:
            continue
        tried.add(key)
        inputs = {
            n: onnx.helper.make_tensor_value_info(n, t, None)
            for n, t in zip(node.input, kinds, strict=True)
            if t
        }
        outputs = [onnx.helper.make_tensor_value_info(n, types.get(n, 0), None) for n in node.output if n]
        graph = onnx.helper.make_graph([node], "one", list(inputs.values()), outputs)
        one = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        if type(_try(one)).__name__ == "NotImplemented":
            distinct = dict.fromkeys(onnx.TensorProto.DataType.Name(t).lower() for t in kinds if t)
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            gaps.add(f"{name}({', '.join(distinct)})")
    return gaps


def _try(model: onnx.ModelProto, libraries: Sequence[Path] = ()) -> Exception | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        for library in libraries:
            options.register_custom_ops_library(str(library))
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return error
    return None
