"""Does the body compute what the reference does? One-node models, run and compared on every sample.

How much they may differ is decided in `error_budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...errors import DeclarationError
from .. import dtypes, functions
from .edge_values import EDGES, edge_runs
from .error_budget import faults
from .precision import IN_FLOAT32, computes_in_float32
from .sample_runs import MoreThanATenthOff, SampleRun, sound_runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir
    import torch

    from ..operator import Operator

__all__ = ["check_body", "one_node_model"]

_OPSET = 20  # what export writes by default


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
        seen += [(run, status) for run in _first_right(seen) for status in _at_edges(run, tally)]
        wrong = {run.dtype for run, status in seen if status == "wrong"}
        right = {run.dtype for run, status in seen if status == "right"}
        if wrong == {"float64"} and right & {"float32", "float16"}:
            tally.fail(_FLOAT64_ALONE)
    return tally.result()


def _first_right(seen: list[tuple[SampleRun, str]]) -> list[SampleRun]:
    """Of each dtype the first sample on which the body is right."""
    found: dict[str, SampleRun] = {}
    for run, status in seen:
        if status == "right":
            found.setdefault(run.dtype, run)
    return list(found.values())


def _at_edges(run: SampleRun, tally: Tally) -> Iterator[str]:
    """A status for each run on edge values that the reference takes."""
    for other in edge_runs(run):
        try:
            real, exact = other.reference(), other.exact()
            got = _run_body(other, real)
        except MoreThanATenthOff as e:
            tally.unchecked.append(f"at edge values ({EDGES}): {e}")
            continue
        except Exception:  # a reference that refuses such values
            continue
        fault = next(((k, f) for k, f in enumerate(faults(other, got, real, exact)) if f), None)
        if fault is not None:
            tally.fail(f"at edge values ({EDGES}), output {fault[0]}: {fault[1]}: correct the body", other)
        yield "right" if fault is None else "wrong"


def _check_one(run: SampleRun, torch_result: Sequence[torch.Tensor], tally: Tally) -> str:
    """Compare one run; `wrong` where the numbers are, `failed` where there are none."""
    try:
        exact = run.exact()
    except MoreThanATenthOff as e:
        tally.unchecked.append(str(e))
        return "unchecked"
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
    for k, fault in enumerate(faults(run, got, torch_result, exact)):
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


def _shortened(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]}…"
