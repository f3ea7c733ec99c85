"""How far from the limit: the time that memory and arithmetic need at least, over the time that was measured.

The roofline of Williams, Waterman and Patterson (2009): nothing takes less than its bytes over the bandwidth, nor less than
its operations over the peak. A share of 1 is at the limit; a small one says that something else takes the time: overhead,
a kernel that does not use the machine, more bytes than needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from .cost import Cost, cost
from .graph_cost import ModelCost
from .machine import Machine, floor_ms
from .record import LatencyRecord, Profile, Roofline
from .runtime_profile import BODY
from .runtime_trace import Trace

__all__ = ["of_machine", "of_model", "of_profile", "predicted"]

PREDICTED = "predicted"


def of_machine(record: LatencyRecord, machine: Machine) -> LatencyRecord:
    """The record with this machine's limits in it."""
    bandwidths = {
        f"{what}, {b.size} bytes": rate
        for b in machine.bandwidths
        for what, rate in (("copy", b.copy), ("read", b.read))
    }
    return replace(
        record,
        copy_bandwidth=machine.bandwidths[-1].copy,
        peak_flops=machine.peaks.get("float32"),
        bandwidths=bandwidths,
        peaks=dict(machine.peaks),
    )


def of_model(
    found: ModelCost, machine: Machine, candidate: str, sample: str, median: float | None = None
) -> Roofline:
    """The whole model. `median`: milliseconds as measured; None where it was not, as on another machine."""
    memory, arithmetic = floor_ms(machine, found.read, found.written, dict(found.flops))
    gaps = _gaps(found.uncounted)
    unknown = sorted(d for d in found.flops if d and d not in machine.peaks)
    if unknown:
        gaps.append(f"not in the floor: operations in {', '.join(unknown)}, whose peak is not known")
    return _roofline(
        machine,
        candidate,
        sample,
        "",
        "",
        (found.read + found.written, sum(found.flops.values())),
        (memory, arithmetic),
        median,
        gaps,
    )


def predicted(found: ModelCost, machines: Iterable[Machine], sample: str) -> list[Roofline]:
    """The floor of the whole model on machines that are not here: labelled so, and without a share."""
    return [of_model(found, machine, PREDICTED, sample) for machine in machines]


def of_profile(
    profile: Profile, trace: Trace, machine: Machine, graph: ModelCost | None = None
) -> list[Roofline]:
    """Each entry of ONNX Runtime's profile, the costliest first: fused nodes, and custom operators whole.

    A trace has shapes, but no attributes and no bodies: where the node is still one of the file's, `graph` tells its
    operations; else those that depend on attributes (pooling, Einsum) are not counted, and the floor is a lower bound
    still.
    """
    known = {n.name: n for n in graph.nodes if n.name and n.cost is not None} if graph is not None else {}
    ran = {n.name: n for n in trace.nodes}
    found = []
    for entry in profile.nodes:
        calls = max(entry.calls, 1.0)
        node, of = ran.get(entry.name), None
        title = entry.op_type.removesuffix(BODY)
        dtype = ""
        if (same := known.get(entry.name)) is not None and title in (same.title, same.op_type):
            of, dtype = same.cost, same.dtype
        elif entry.custom and graph is not None:  # several nodes, expanded from one body
            callers = [n for n in graph.nodes if n.title == title]
            of, calls = _sum(n.cost for n in callers), 1.0
            dtype = callers[0].dtype if callers else ""
        elif node is not None and node.inputs is not None and node.outputs is not None:
            of = cost(node.op_type, node.inputs, node.outputs)
            dtype = next((v.dtype for v in (*node.inputs, *node.outputs) if "float" in v.dtype), "")
        if of is None or not (of.bytes or of.flops):
            continue
        label = (profile.candidate, profile.sample, entry.name, title)
        found.append(_of_cost(machine, *label, of, {dtype: of.flops}, entry.time / calls))
    return found


def _sum(costs: Iterable[Cost | None]) -> Cost | None:
    """Of all; None where one is not known."""
    total = Cost(0, 0, 0)
    for one in costs:
        if one is None:
            return None
        counted = total.counted and one.counted
        total = Cost(total.read + one.read, total.written + one.written, total.flops + one.flops, counted)
    return total


def _of_cost(
    machine: Machine,
    candidate: str,
    sample: str,
    name: str,
    op_type: str,
    of: Cost,
    flops: Mapping[str, int],
    measured: float | None,
) -> Roofline:
    floors = floor_ms(machine, of.read, of.written, dict(flops))
    gaps = [] if of.counted else ["its operations are not counted"]
    return _roofline(machine, candidate, sample, name, op_type, (of.bytes, of.flops), floors, measured, gaps)


def _roofline(
    machine: Machine,
    candidate: str,
    sample: str,
    name: str,
    op_type: str,
    counts: tuple[int, int],
    floors: tuple[float, float],
    measured: float | None,
    gaps: Sequence[str],
) -> Roofline:
    memory, arithmetic = floors
    floor = max(memory, arithmetic)
    bound: Literal["memory", "compute"] = "compute" if arithmetic > memory else "memory"
    source = "; ".join([*([machine.source] if machine.source else []), *gaps])
    return Roofline(
        candidate=candidate,
        sample=sample,
        subject=name,
        bytes=counts[0],
        flops=counts[1],
        floor=floor,
        share=floor / measured if measured else None,
        bound=bound,
        machine=machine.name,
        op_type=op_type,
        source=source,
    )


def _gaps(uncounted: Sequence[str]) -> list[str]:
    if not uncounted:
        return []
    some = ", ".join(uncounted[:5]) + (f" and {len(uncounted) - 5} more" if len(uncounted) > 5 else "")
    return [f"operations not counted: {some}"]
