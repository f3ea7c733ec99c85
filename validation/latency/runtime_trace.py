"""ONNX Runtime's own profile, read: which node ran how long, on which shapes. The trace may come from another process."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .values import Value

__all__ = ["Trace", "TraceNode", "read_trace"]

_KERNEL = "_kernel_time"
_RUN = "model_run"
_NAMES = {"float": "float32", "double": "float64"}
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of the graph as the runtime runs it, over all runs that count.

    Attributes:
        time: milliseconds per run, of the node itself and not of nodes inside of it.
        calls: per run.
        inputs, outputs: types and shapes of the last call; None where they were not noted.
    """

    name: str
    op_type: str
    time: float
    calls: float
    provider: str
    inputs: tuple[Value, ...] | None
    outputs: tuple[Value, ...] | None


@dataclass(frozen=True, slots=True)
class Trace:
    """`total`: milliseconds of a run under the profiler, the median of `runs`."""

    nodes: tuple[TraceNode, ...]
    total: float
    runs: int


def read_trace(text: str, *, warmup: int = 1) -> Trace:
    """The medians over all runs of a trace but the first `warmup`, which are kept where there are no others.

    Medians of each node, because another process that gets the core in one run would be blamed on a node for good.

    Raises:
        ValueError: not a trace of ONNX Runtime, or one without a complete run.
    """
    try:
        events = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a trace: {error}") from None
    if not isinstance(events, list):
        raise ValueError("not a trace of ONNX Runtime: no list of events")
    runs = list(_runs(events))
    if not runs:
        raise ValueError("a trace without a complete run")
    runs = runs[warmup:] or runs
    times: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    last: dict[str, Mapping[str, Any]] = {}
    for k, (_, nodes) in enumerate(runs):
        for event, own in _own_times(nodes):
            name = str(event["name"]).removesuffix(_KERNEL)
            times.setdefault(name, [0.0] * len(runs))[k] += own
            calls[name] = calls.get(name, 0) + 1
            last[name] = event["args"]
    found = [
        TraceNode(
            name,
            str(args["op_name"]),
            median(times[name]) / 1e3,
            calls[name] / len(runs),
            str(args.get("provider", "")),
            *_shapes(args),
        )
        for name, args in last.items()
    ]
    total = median(float(run["dur"]) for run, _ in runs) / 1e3
    return Trace(tuple(sorted(found, key=lambda n: -n.time)), total, len(runs))


def _runs(events: Sequence[Any]) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Each run with its nodes' events: those that lie inside of it in time."""
    complete = [e for e in events if isinstance(e, Mapping) and {"cat", "name", "ts", "dur"} <= e.keys()]
    nodes = sorted(
        (
            e
            for e in complete
            if e["cat"] == "Node"
            and str(e["name"]).endswith(_KERNEL)
            and (e.get("args") or {}).get("op_name")
        ),
        key=lambda e: (e["ts"], -e["dur"]),
    )
    place = 0
    for run in sorted((e for e in complete if e["name"] == _RUN), key=lambda e: float(e["ts"])):
        end = run["ts"] + run["dur"]
        inside = []
        while place < len(nodes) and nodes[place]["ts"] <= end:
            if nodes[place]["ts"] >= run["ts"]:
                inside.append(nodes[place])
            place += 1
        yield run, inside


def _own_times(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Microseconds of each node without those of the nodes in its graphs (If, Loop), which have events of their own.

    The clock ticks in microseconds: two nodes that follow each other may seem to overlap, so that only nodes that can
    hold graphs hold others.
    """
    own = [float(e["dur"]) for e in nodes]
    open_: list[int] = []
    for k, event in enumerate(nodes):
        while open_ and nodes[open_[-1]]["ts"] + nodes[open_[-1]]["dur"] <= event["ts"]:
            open_.pop()
        if open_:
            own[open_[-1]] -= float(event["dur"])
        if event["args"]["op_name"] in ("If", "Loop", "Scan", "SequenceMap"):
            open_.append(k)
    return ((event, max(0.0, time)) for event, time in zip(nodes, own, strict=True))


def _shapes(args: Mapping[str, Any]) -> tuple[tuple[Value, ...] | None, tuple[Value, ...] | None]:
    given, made = _values(args.get("input_type_shape")), _values(args.get("output_type_shape"))
    if given and made and args["op_name"] in _PRODUCTS:
        given = _with_packed(given, made[0])
    return given, made


def _values(noted: Any) -> tuple[Value, ...] | None:
    """`[{"float": [1, 3]}, ...]`."""
    if not isinstance(noted, list):
        return None
    try:
        return tuple(
            Value(_NAMES.get(dtype, str(dtype)), tuple(int(d) for d in shape))
            for entry in noted
            for dtype, shape in entry.items()
        )
    except (AttributeError, TypeError, ValueError):
        return None


def _with_packed(given: tuple[Value, ...], out: Value) -> tuple[Value, ...]:
    """A constant matrix that the runtime has packed into its own layout is missing in the notes: (K, N) of (M, K) and (M, N)."""
    first = given[0]
    if len(first.shape) < 2 or len(out.shape) < 2 or any(len(v.shape) >= 2 for v in given[1:]):
        return given
    rows, columns = math.prod(out.shape[:-1]), out.shape[-1]
    if not rows or first.count % rows:
        return given
    return (first, Value(first.dtype, (first.count // rows, columns)), *given[1:])
