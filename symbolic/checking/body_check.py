"""Does the body compute what the reference does? One-node models, run and compared on every sample.

The budget is relative to what torch itself loses in that dtype: with the reference in float64 as the truth,
the body's error may be four times torch's, or a few units in the last place. An error is measured against the
element's own size plus the median size of the output, so that one huge element hides nothing; the runtime's
own kernels are allowed a few float32 units (float64 for float64) of the inputs' size. NaN and infinities must
stand where the truth, rounded to the dtype, or torch has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...errors import DeclarationError
from .. import dtypes, functions
from .precision import IN_FLOAT32, computes_in_float32
from .sample_runs import SampleRun, sound_runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import torch

    from ..operator import Operator

__all__ = ["check_body", "one_node_model"]

_OPSET = 20  # what export writes by default
_TIMES_TORCH = 4.0
_ULPS = 8.0


_FLOAT64_ALONE = (
    "in float64 alone, where the other dtypes pass: either the body loses digits (a constant of float32, an `op.cast`), "
    "or the runtime's own float64 kernel of one of its nodes is imprecise (ONNX Runtime computes some in float32): "
    'write that node out of simpler ones where `x.dtype == "float64"`, or leave float64 out of `dtypes`'
)


class _NoKernel(Exception):
    """The runtime lacks a kernel that the body needs."""


def check_body(op: Operator) -> CheckResult:
    """Every sample in every dtype, run by ONNX Runtime (or onnx.reference), against the float64 reference."""
    tally = Tally(op.name, "body")
    if op.body_function is None:
        tally.unchecked.append("no body")
    elif op.stateful:
        tally.unchecked.append("stateful")
    else:
        seen = [(run, _check_one(run, real, tally)) for run, real in sound_runs(op, tally)]
        wrong = {run.dtype for run, status in seen if status == "wrong"}
        right = {run.dtype for run, status in seen if status == "right"}
        if wrong == {"float64"} and right & {"float32", "float16"}:
            tally.fail(_FLOAT64_ALONE)
    return tally.result()


def _check_one(run: SampleRun, torch_result: Sequence[torch.Tensor], tally: Tally) -> str:
    """Compare one run; `wrong` where the numbers are, `failed` where there are none."""
    try:
        exact = run.exact()
    except Exception as e:
        tally.unchecked.append(f"the reference fails in float64 ({type(e).__name__})")
        return "unchecked"
    try:
        got = _run_body(run, torch_result)
    except _NoKernel as e:
        tally.unchecked.append(f"{run.dtype}: {e}")
        return "unchecked"
    except DeclarationError as e:
        tally.fail(str(e).removeprefix(f"{run.op.name}: "), run)
        return "failed"
    except Exception as e:
        tally.fail(f"the body does not run: {type(e).__name__}: {_shortened(e)}", run)
        return "failed"
    noise = _ULPS * _input_size(run)
    own_errors = _torch_errors(run, torch_result, exact)
    for k, (mine, theirs, truth) in enumerate(zip(got, torch_result, exact, strict=True)):
        fault = _fault(mine, theirs, truth, max(_ULPS, _TIMES_TORCH * own_errors[k]), noise)
        if fault:
            if run.dtype == "float64" and computes_in_float32(run):
                tally.fail(IN_FLOAT32, run)
                return "failed"
            tally.fail(f"output {k}: {fault}: correct the body", run)
            return "wrong"
    tally.passed += 1
    return "right"


def one_node_model(run: SampleRun, outputs: Sequence[torch.Tensor]) -> ir.Model:
    """A model of one node of the operator and its body; bfloat16 passes as float32, which numpy can hold."""
    import onnx_ir as ir

    op = run.op
    call = op.interface.bind((), run.arguments)
    nodes: list[ir.Node] = []
    graph_inputs: list[ir.Value] = []
    node_inputs: list[ir.Value | None] = []
    for k, t in enumerate(op.interface.flat_inputs(call)):
        if t is None:
            node_inputs.append(None)
            continue
        own = ir.DataType(dtypes.onnx_number(t.dtype))
        shape = ir.Shape([None] * t.dim())
        outer = ir.DataType.FLOAT if own == ir.DataType.BFLOAT16 else own
        value = ir.Value(name=f"in{k}", shape=shape, type=ir.TensorType(outer))
        graph_inputs.append(value)
        if outer != own:
            cast = ir.node("Cast", [value], attributes={"to": int(own)})
            nodes.append(cast)
            value = cast.outputs[0]
            value.name, value.shape, value.type = f"cast{k}", shape, ir.TensorType(own)
        node_inputs.append(value)
    kinds = {a.name: a.onnx_type for a in op.interface.attributes}
    attributes = [ir.Attr(n, ir.AttributeType[kinds.get(n, "INT")], v) for n, v in call.attributes.items()]
    node = ir.Node(
        op.domain, op.op_type, node_inputs, attributes, num_outputs=len(outputs), version=op.version
    )
    nodes.append(node)
    graph_outputs = []
    for k, (value, t) in enumerate(zip(node.outputs, outputs, strict=True)):
        own = ir.DataType(dtypes.onnx_number(t.dtype))
        value.name, value.type = f"y{k}", ir.TensorType(own)
        if own == ir.DataType.BFLOAT16:
            cast = ir.node("Cast", [value], attributes={"to": int(ir.DataType.FLOAT)})
            nodes.append(cast)
            value = cast.outputs[0]
            value.name, value.type = f"out{k}", ir.TensorType(ir.DataType.FLOAT)
        graph_outputs.append(value)
    graph = ir.Graph(
        graph_inputs,
        graph_outputs,
        nodes=nodes,
        opset_imports={"": _OPSET, op.domain: op.version},
        name="body",
    )
    model = ir.Model(graph, ir_version=10)
    functions.attach(model, {(op.domain, op.op_type): op})
    return model


def _run_body(run: SampleRun, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    import onnx_ir as ir
    import torch

    content = ir.to_proto(one_node_model(run, outputs)).SerializeToString(deterministic=True)
    bound = run.op.interface.bind((), run.arguments)
    feeds = {}
    for k, t in enumerate(run.op.interface.flat_inputs(bound)):
        if t is not None:
            plain = t.float() if t.dtype == torch.bfloat16 else t
            feeds[f"in{k}"] = plain.detach().contiguous().numpy()
    results = _runner(content)(feeds)
    return [torch.from_numpy(r.copy()).to(t.dtype) for r, t in zip(results, outputs, strict=True)]


@lru_cache(maxsize=64)
def _runner(content: bytes) -> Callable[[dict[str, np.ndarray[Any, Any]]], list[Any]]:
    """A model as a function of its inputs: by ONNX Runtime, or by onnx's evaluator where that is missing."""
    if find_spec("onnxruntime") is None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(onnx.load_from_string(content))
        return lambda feeds: list(evaluator.run(None, feeds))
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as e:
        if "NOT_IMPLEMENTED" in str(e) or "Could not find an implementation" in str(e):
            raise _NoKernel(f"ONNX Runtime has no kernel for {_kernel_name(str(e))}") from e
        raise
    return lambda feeds: list(session.run(None, feeds))


def _kernel_name(message: str) -> str:
    """``Erf(13)`` out of "Could not find an implementation for Erf(13) node with name ''"."""
    _, _, rest = message.partition("implementation for ")
    return rest.split(" ")[0] or "an operator of the body"


def _input_size(run: SampleRun) -> float:
    """The median size of the floating-point inputs, at most 1."""
    import torch

    sizes = [t.detach().double().abs().flatten() for t in run.sample.tensors() if t.is_floating_point()]
    values = torch.cat(sizes) if sizes else torch.zeros(0)
    values = values[torch.isfinite(values)]
    return min(1.0, values.median().item()) if values.numel() else 0.0


def _torch_errors(
    run: SampleRun, by_torch: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]
) -> list[float]:
    """What torch itself loses in each output, in units of the dtype.

    In float64 torch is the truth, and how ill-conditioned the sample is shows in float32.
    """
    import torch

    if run.dtype == "float64":
        by_torch = run.run(run.op.reference, lambda t: t.float() if t.is_floating_point() else t)
        exact = run.run(run.op.reference, lambda t: t.float().double() if t.is_floating_point() else t)
    errors = []
    for theirs, truth in zip(by_torch, exact, strict=True):
        error = 0.0
        if theirs.is_floating_point() and theirs.shape == truth.shape and theirs.numel():
            finite = torch.isfinite(theirs) & torch.isfinite(truth)
            lost = (theirs.double() - truth.double()).abs() / _weight(truth, finite, theirs.dtype)
            error = torch.where(finite, lost, 0.0).max().item() / torch.finfo(theirs.dtype).eps
        errors.append(error)
    return errors


def _weight(truth: torch.Tensor, finite: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What an element's error is measured against: its own size and the output's median."""
    import torch

    size = truth.double().abs()
    own = size[finite & (size > 0)]
    return size + (own.median() if own.numel() else 0.0) + torch.finfo(dtype).tiny


def _fault(
    got: torch.Tensor, by_torch: torch.Tensor, exact: torch.Tensor, budget: float, noise: float
) -> str | None:
    """What is wrong with an output; None where it is within the budget.

    `budget` is in units of the dtype, of an element's weight; `noise` in float32 units at most, absolute.
    """
    import torch

    if got.shape != by_torch.shape:
        return f"its shape is {tuple(got.shape)}, the reference's {tuple(by_torch.shape)}"
    if not got.is_floating_point():
        wrong = int((got != by_torch).sum())
        return f"{wrong} of {got.numel()} values differ" if wrong else None
    rounded = exact.to(by_torch.dtype).double()
    mine, theirs, truth = got.double(), by_torch.double(), exact.double()
    misplaced = ~(_same_kind(mine, rounded) | _same_kind(mine, theirs))
    if misplaced.any():
        at = tuple(misplaced.nonzero()[0].tolist())
        return f"{mine[at].item()} at {list(at)}, where the reference has {theirs[at].item()}"
    finite = torch.isfinite(mine) & torch.isfinite(truth)
    if not finite.any():
        return None
    eps = torch.finfo(by_torch.dtype).eps
    excess = ((mine - truth).abs() - noise * min(eps, torch.finfo(torch.float32).eps)).clamp(min=0)
    error = torch.where(finite, excess / (_weight(truth, finite, by_torch.dtype) * eps), 0.0)
    worst = error.max().item()
    if worst <= budget:
        return None
    at = tuple((error == worst).nonzero()[0].tolist())
    return (
        f"{mine[at].item():.9g} at {list(at)}, where the reference in float64 has {truth[at].item():.9g}: "
        f"an error of {worst:.3g} ULP, allowed are {budget:.3g}"
    )


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Both finite, both NaN, or the same infinity."""
    import torch

    return (torch.isfinite(a) & torch.isfinite(b)) | (torch.isnan(a) & torch.isnan(b)) | (a == b)


def _shortened(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"
