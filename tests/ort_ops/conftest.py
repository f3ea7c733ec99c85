"""What the tests of native libraries share: a compiled pack of operators, models of one node, other ONNX Runtimes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from deployops.errors import NotCheckedError
from deployops.native.compilers import find_cxx
from deployops.native.nvcc import WHEELS, find_nvcc
from deployops.ort_ops import Library, compile_library
from deployops.symbolic import dtypes, registry
from deployops.symbolic.checking.sample_runs import SampleRun
from deployops.symbolic.operator import Operator

from ..packages import installed

ROOT = Path(__file__).resolve().parents[2]
PACK = ROOT / "tests" / "pack" / "pack.py"


@pytest.fixture(scope="session")
def pack() -> dict[str, Operator]:
    """The operators of tests/pack, by their short names."""
    return {op.name.partition("::")[2]: op for op in registry.load([str(PACK)])}


@pytest.fixture(scope="session")
def pack_library(pack: dict[str, Operator], tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Their library."""
    return compile_library(ops=[str(PACK)], out=tmp_path_factory.mktemp("pack"))


def node_model(
    op: Operator,
    tensors: Sequence[torch.Tensor | None],
    attributes: dict[str, Any],
    outputs: Sequence[torch.Tensor],
) -> onnx.ModelProto:
    """One node without a body; bfloat16 goes in and out as float32, which numpy can hold. Old enough for ORT 1.17."""
    float32, bfloat16 = TensorProto.FLOAT, TensorProto.BFLOAT16
    nodes, inputs, names = [], [], []
    for k, t in enumerate(tensors):
        if t is None:
            names.append("")
            continue
        own = dtypes.onnx_number(t.dtype)
        inputs.append(
            helper.make_tensor_value_info(f"in{k}", float32 if own == bfloat16 else own, [None] * t.dim())
        )
        names.append(f"in{k}")
        if own == bfloat16:
            nodes.append(helper.make_node("Cast", [f"in{k}"], [f"narrow{k}"], to=bfloat16))
            names[-1] = f"narrow{k}"
    results = [f"y{k}" for k in range(len(outputs))]
    node = helper.make_node(op.op_type, names, results, name="the_node", domain=op.domain)
    kinds = {a.name: a.onnx_type for a in op.interface.attributes}
    for name, value in attributes.items():
        kind = onnx.AttributeProto.AttributeType.Value(kinds.get(name, "INT"))
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    nodes.append(node)
    declared = []
    for name, t in zip(results, outputs, strict=True):
        own = dtypes.onnx_number(t.dtype)
        if own == bfloat16:
            nodes.append(helper.make_node("Cast", [name], [f"wide_{name}"], to=float32))
        declared.append(
            helper.make_tensor_value_info(
                f"wide_{name}" if own == bfloat16 else name, float32 if own == bfloat16 else own, None
            )
        )
    # As an exported model has them: up to 1.23, ONNX Runtime infers no type behind a list of tensors.
    known = [
        helper.make_tensor_value_info(n, dtypes.onnx_number(t.dtype), None)
        for n, t in zip(results, outputs, strict=True)
        if dtypes.onnx_number(t.dtype) == bfloat16
    ]
    graph = helper.make_graph(nodes, "one", inputs, declared, value_info=known)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(op.domain, op.version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def model_of(run: SampleRun, outputs: Sequence[torch.Tensor]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The one-node model of a sample, and what to feed it."""
    bound = run.op.interface.bind((), run.arguments)
    flat = run.op.interface.flat_inputs(bound)
    feeds = {
        f"in{k}": np.asarray((t.float() if t.dtype == torch.bfloat16 else t).detach().contiguous())
        for k, t in enumerate(flat)
        if t is not None
    }
    return node_model(run.op, flat, dict(bound.attributes), outputs), feeds


@pytest.fixture(scope="session")
def other_runtime() -> Callable[[str], dict[str, str]]:
    """``other_runtime("1.17.3")``: the environment in which Python imports that ONNX Runtime instead of ours."""

    def install(version: str) -> dict[str, str]:
        # numpy 1 for those built before numpy 2 came out
        wanted = [f"onnxruntime=={version}", "numpy==1.26.4", "flatbuffers"]
        return {"PYTHONPATH": str(installed(version, wanted, "--no-deps"))}

    return install


def pack_node(op_type: str, *inputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node of the pack with the output `y`."""
    return helper.make_node(op_type, list(inputs), ["y"], name="the_node", domain="pack", **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, int] | None = None,
    *,
    versions: Mapping[str, int] | None = None,
    shape: Sequence[Any] | None = None,
    outputs: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Nodes from `inputs` (names and element types, one float `x`) to `outputs` (`y`, of a type that is not said).

    `versions`: of the domains, 1 where nothing else is said. `shape`: of inputs and outputs.
    """
    domains = {"pack": 1, "deployops": 1} | dict(versions or {})
    graph = helper.make_graph(
        list(nodes),
        "g",
        [
            helper.make_tensor_value_info(n, kind, shape)
            for n, kind in (inputs or {"x": TensorProto.FLOAT}).items()
        ],
        [helper.make_tensor_value_info(n, kind, shape) for n, kind in outputs.items()]
        if outputs
        else [helper.make_empty_tensor_value_info("y")],
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, v) for d, v in domains.items())]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def opened(library: str | Path, made: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session of plain ONNX Runtime, with two threads."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.register_custom_ops_library(str(library))
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="session")
def nvcc() -> str:
    """The CUDA compiler of this machine, or the one from PyPI."""
    try:
        return str(find_nvcc(find_cxx()).path)
    except NotCheckedError:
        folder = installed("cuda-wheels", WHEELS.split())
        return str(next(folder.glob("nvidia/cu*/bin/nvcc")))
