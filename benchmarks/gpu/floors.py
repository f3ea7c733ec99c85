"""What the shipped operators would need at least on GPUs that are not here: bytes and operations over published limits."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import torch
from onnx import helper
from ort_cases import CASES, Case

from deployops.symbolic import dtypes
from deployops.trt_plugins.emulation.packing import fake_outputs
from deployops.validation.latency.gpus import GPUS
from deployops.validation.latency.graph_cost import ModelCost, model_cost
from deployops.validation.latency.roofline import predicted
from deployops.validation.latency.values import Value

LARGE = 64 << 20  # elements of the largest input
SIDE = 8192
LENGTH = 4096  # of attention: 8 heads, width 64
SHOWN = ("T4", "L4", "RTX 4090", "A100 80GB SXM", "H100 SXM", "H200 SXM")


def size_of(case: Case) -> int:
    """Elements that a case is drawn with here."""
    return 8 * LENGTH * 64 if case.op_name == "attention" else LARGE


def cost_of(case: Case, dtype: torch.dtype) -> tuple[ModelCost, str]:
    """Of one run, and the shapes of the tensors; nothing is allocated."""
    with torch.device("meta"):
        args, kwargs = case.draw(size_of(case), dtype)
    # onnx's data propagation makes a symbol for each element of a vector: it would take hours here
    args = [t.reshape(SIDE, -1) if t.dim() == 1 and t.numel() == LARGE else t for t in args]
    bound = case.op.interface.bind(args, kwargs)
    tensors = case.op.interface.flat_inputs(bound)
    given = {f"x{k}": t for k, t in enumerate(tensors) if t is not None}
    made = fake_outputs(case.op, args, kwargs)
    node = helper.make_node(
        case.op.op_type,
        [f"x{k}" if t is not None else "" for k, t in enumerate(tensors)],
        [f"y{k}" for k in range(len(made))],
        domain=case.op.domain,
    )
    kinds = {a.name: a.onnx_type for a in case.op.interface.attributes}
    for name, value in bound.attributes.items():
        if value is not None:
            kind = onnx.AttributeProto.AttributeType.Value(kinds.get(name, "INT"))
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    graph = helper.make_graph(
        [node],
        "one",
        [_declared(n, t) for n, t in given.items()],
        [_declared(f"y{k}", t) for k, t in enumerate(made)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(case.op.domain, case.op.version)]
    values = {n: Value(dtypes.name_of(t.dtype), tuple(t.shape)) for n, t in given.items()}
    shapes = ", ".join("×".join(map(str, t.shape)) for t in given.values())
    return model_cost(helper.make_model(graph, opset_imports=opsets), values), shapes


def _declared(name: str, t: torch.Tensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtypes.onnx_number(t.dtype), list(t.shape))


def table() -> Iterator[str]:
    """The lines of the table of floors, in milliseconds."""
    machines = [GPUS[name] for name in SHOWN]
    yield f"| operator | inputs | dtype | MB moved | Gflop | {' | '.join(SHOWN)} |"
    yield f"|---|---|---|---:|---:|{'---:|' * len(SHOWN)}"
    for case in CASES:
        if case.variant == "causal":  # half of its operations need not be done, and the body does them
            continue
        for dtype in (torch.float32, torch.float16):
            cost, shapes = cost_of(case, dtype)
            floors = predicted(cost, machines, "")
            moved = f"{(cost.read + cost.written) / 1e6:.0f}"
            flops = "–" if cost.uncounted else f"{sum(cost.flops.values()) / 1e9:.1f}"
            shown = " | ".join(f"{f.floor:.3f}{' c' if f.bound == 'compute' else ''}" for f in floors)
            name = dtypes.name_of(dtype)
            yield f"| {case.name} | {shapes} | {name} | {moved} | {flops} | {shown} |"


def sources() -> Iterator[str]:
    """Where the limits were published."""
    for name in SHOWN:
        machine = GPUS[name]
        yield f"- {name}: {machine.bandwidths[-1].copy / 1e9:.0f} GB/s ({machine.source})"
