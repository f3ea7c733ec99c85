"""One operator on one node: the smallest model that runs its body, and how far two results are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from deployops.symbolic import dtypes, functions, registry
from deployops.symbolic.operator import Operator
from deployops.symbolic.samples import Sample

registry.load_builtin()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The machines that run the suite share their cores among the tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _forget_declarations() -> Iterator[None]:
    """What a test declares is not there for the next one; torch alone remembers its names."""
    before = {op.name for op in registry.all_operators()}
    yield
    for op in registry.all_operators():
        if op.name not in before:
            registry.remove(op)
            if onnx.defs.has(op.op_type, op.domain):
                known = onnx.defs.get_schema(op.op_type, domain=op.domain)
                onnx.defs.deregister_schema(op.op_type, known.since_version, op.domain)


def _named_inputs(
    op: Operator, sample: Sample
) -> tuple[list[tuple[str, torch.Tensor] | None], dict[str, Any]]:
    """The node's inputs in order, None where one is absent, and its attributes."""
    bound = op.interface.bind(sample.args, sample.kwargs)
    flat = op.interface.flat_inputs(bound)
    return [None if t is None else (f"in{k}", t) for k, t in enumerate(flat)], dict(bound.attributes)


def _one_node_model(op: Operator, sample: Sample, opset: int) -> ir.Model:
    """The operator between casts: Python has no bfloat16 arrays, and float32 carries them exactly."""
    inputs, attributes = _named_inputs(op, sample)
    nodes: list[ir.Node] = []
    graph_inputs: list[ir.Value] = []
    node_inputs: list[ir.Value | None] = []
    for item in inputs:
        if item is None:
            node_inputs.append(None)
            continue
        name, tensor = item
        kind, shape = ir.DataType(dtypes.onnx_number(tensor.dtype)), ir.Shape(tensor.shape)
        narrow = kind == ir.DataType.BFLOAT16
        value = ir.Value(name=name, shape=shape, type=ir.TensorType(ir.DataType.FLOAT if narrow else kind))
        graph_inputs.append(value)
        if narrow:
            cast = ir.Node("", "Cast", [value], attributes=[ir.AttrInt64("to", int(kind))], num_outputs=1)
            nodes.append(cast)
            value = cast.outputs[0]
            value.name, value.shape, value.type = f"{name}_narrow", shape, ir.TensorType(kind)
        node_inputs.append(value)
    kinds = {a.name: a.onnx_type for a in op.interface.attributes}
    node = ir.Node(
        op.domain,
        op.op_type,
        node_inputs,
        attributes=[ir.Attr(n, ir.AttributeType[kinds[n]], v) for n, v in attributes.items()],
        num_outputs=len(op.interface.outputs),
    )
    nodes.append(node)
    graph_outputs = []
    # All outputs of the shipped operators have the dtype of the first input.
    kind = ir.DataType(dtypes.onnx_number(sample.tensors()[0].dtype))
    for value, output, result in zip(node.outputs, op.interface.outputs, _call(op, sample), strict=True):
        value.name, value.type, shape = output.name, ir.TensorType(kind), ir.Shape([None] * result.dim())
        if kind == ir.DataType.BFLOAT16:
            to = ir.AttrInt64("to", int(ir.DataType.FLOAT))
            cast = ir.Node("", "Cast", [value], attributes=[to], num_outputs=1)
            nodes.append(cast)
            value = cast.outputs[0]
            value.name, value.type = f"{output.name}_wide", ir.TensorType(ir.DataType.FLOAT)
        value.shape = shape
        graph_outputs.append(value)
    imports = {"": opset, op.domain: op.version}
    model = ir.Model(
        ir.Graph(graph_inputs, graph_outputs, nodes=nodes, opset_imports=imports, name="one"), ir_version=10
    )
    functions.attach(model, {(op.domain, op.op_type): op})
    return model


def _run_body(
    op: Operator, sample: Sample, *, opset: int = 18, optimised: bool = False
) -> list[torch.Tensor]:
    model = ir.to_proto(_one_node_model(op, sample, opset))
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs, _ = _named_inputs(op, sample)
    feeds = {}
    for name, tensor in filter(None, inputs):
        tensor = tensor.detach().contiguous()
        feeds[name] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return [torch.from_numpy(np.array(y)).to(sample.tensors()[0].dtype) for y in session.run(None, feeds)]


def _in_float64(sample: Sample) -> Sample:
    def convert(v: Any) -> Any:
        return v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v

    return Sample(
        tuple(map(convert, sample.args)), {n: convert(v) for n, v in sample.kwargs.items()}, sample.smooth
    )


def _call(op: Operator, sample: Sample) -> list[torch.Tensor]:
    result = op(*sample.args, **sample.kwargs)
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _assert_within(
    got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, ulps: float, what: str = ""
) -> float:
    """`got` is `expected` (float64) within `ulps` units in the last place of numbers of size `scale`.

    What rounds to infinity in the dtype of `got` must be infinite, or the largest number; NaN must be NaN.
    Returns the largest error in ULPs.
    """
    info = torch.finfo(got.dtype)
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    actual = got.double()
    wrong_nan = torch.isnan(actual) != torch.isnan(expected)
    # One ULP below infinity either answer is right: rounding decides.
    top = expected.abs() > info.max * (1 - 4 * info.eps)
    wrong_inf = (torch.isinf(actual) | torch.isinf(expected)) & ~top & (actual != expected)
    wrong_inf |= top & ~((actual.abs() >= info.max * (1 - 8 * info.eps)) & (actual.sign() == expected.sign()))
    finite = torch.isfinite(actual) & torch.isfinite(expected) & ~top
    unit = torch.clamp(scale.double().abs() * info.eps, min=info.smallest_normal * info.eps)
    errors = torch.where(
        finite, (actual - expected).abs() / unit.expand(expected.shape), torch.zeros_like(expected)
    )
    bad = (wrong_nan & ~top) | (wrong_inf & ~torch.isnan(expected)) | ~(errors <= ulps)
    if bad.any():
        places = bad.nonzero().tolist()[:5]
        shown = "; ".join(
            f"{tuple(p)}: {actual[tuple(p)].item()!r}, expected {expected[tuple(p)].item()!r} "
            f"({errors[tuple(p)].item():.3g} ULP)"
            for p in places
        )
        raise AssertionError(f"{what}: {int(bad.sum())} of {bad.numel()} numbers are wrong: {shown}")
    return float(errors.max()) if errors.numel() else 0.0


@pytest.fixture
def run_body() -> Callable[..., list[torch.Tensor]]:
    """``run_body(op, sample, opset=18, optimised=False)``: the body's results in ONNX Runtime on the CPU."""
    return _run_body


@pytest.fixture
def one_node_model() -> Callable[..., ir.Model]:
    """``one_node_model(op, sample, opset)``: the model that `run_body` runs."""
    return _one_node_model


@pytest.fixture
def in_float64() -> Callable[[Sample], Sample]:
    """A sample with its floating point tensors as float64: the same numbers, in which nothing is rounded."""
    return _in_float64


@pytest.fixture
def call() -> Callable[[Operator, Sample], Sequence[torch.Tensor]]:
    """``call(op, sample)``: the outputs of the torch operator, as a list."""
    return _call


@pytest.fixture
def assert_within() -> Callable[..., float]:
    """See `_assert_within`."""
    return _assert_within
