"""Where the time goes in ONNX Runtime: its trace, node by node, with the user's modules and what custom nodes cut.

The runtime runs another graph than the file has: nodes are fused, renamed, and expanded. Names tell most of it:

- a fused or blocked node is named after one of its nodes ("fused conv1", "act/GeluFusion/"), or after the value it makes
  ("conv2d_nchwc");
- what was expanded from a function begins with "_inlfunc_" and the function's name;
- a node of the file that is not found again went into the one that follows it, or the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...export.graph.passes import SOURCE_KEY
from ...ort_ops.inspection.custom_nodes import Kernels
from ...ort_ops.inspection.graph_cuts import cut_findings
from ...ort_ops.inspection.runtime_limits import limits_for
from ...ort_ops.node_uses import model_uses
from ...symbolic.graph_inspection.domains import is_custom
from ...symbolic.graph_inspection.findings import where
from ...symbolic.graph_inspection.graph_view import GraphViews
from .record import NodeTime, Profile
from .runtime_trace import Trace

if TYPE_CHECKING:
    import onnx

    from ...ort_ops.library_manifest import LibraryManifest

__all__ = ["BODY", "common_module", "cuts", "runtime_profile"]

# after the operator in `NodeTime.op_type`: no kernel of it ran, but the standard nodes of its body
BODY = " (its body)"

_INLINED = "_inlfunc_"
# "Transpose_token_51": a node that the runtime put in, named after its operator
_GENERATED = re.compile(r"\w+_token_\d+")


def runtime_profile(
    trace: Trace,
    model: onnx.ModelProto,
    candidate: str,
    sample: str,
    libraries: Sequence[LibraryManifest] = (),
) -> Profile:
    """The trace as a profile, the costliest first. Nodes expanded from one custom operator are one entry.

    Args:
        model: the file that was run; its weights need not be loaded.
        libraries: manifests of those that the session had, for what they keep from being expanded.
    """
    graph = _Names(model.graph)
    functions = {f.name: f"{f.domain}::{f.name}" for f in model.functions}
    ran = {n.name: graph.found(n.name) for n in trace.nodes}
    absorbed = graph.absorbed(ran)
    cut = cuts(model, libraries)
    found: dict[str, NodeTime] = {}
    for node in trace.nodes:
        if (function := _function(node.name, functions)) is not None:
            entry = _of_function(functions[function], function, model.graph, graph, node.time, cut)
        else:
            k = ran[node.name]
            of = None if k is None else graph.nodes[k]
            own = of is not None and of.op_type == node.op_type
            custom = own and of is not None and is_custom(of.domain)
            title = f"{of.domain}::{of.op_type}" if custom and of is not None else node.op_type
            entry = NodeTime(
                name=node.name,
                op_type=title,
                time=node.time,
                share=0.0,
                custom=custom,
                cuts=cut.get(of.name, "") if custom and of is not None else "",
                module=graph.shared_module(k, absorbed.get(node.name, ())),
                calls=node.calls,
            )
        before = found.get(entry.name)
        found[entry.name] = entry if before is None else replace(before, time=before.time + entry.time)
    entries = sorted(found.values(), key=lambda n: -n.time)
    total = trace.total
    return Profile(
        candidate=candidate,
        sample=sample,
        nodes=tuple(replace(n, share=n.time / total if total else 0.0) for n in entries),
        total=total,
        overhead=max(0.0, total - sum(n.time for n in entries)),
        runs=trace.runs,
        notes=tuple(_notes(trace)),
    )


def common_module(modules: Iterable[str]) -> str:
    """The module that all of these lie in: "block.0" of "block.0.conv" and "block.0.norm"; unknown ones do not count."""
    paths = [m.split(".") for m in modules if m]
    if not paths:
        return ""
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def cuts(model: onnx.ModelProto, libraries: Sequence[LibraryManifest] = ()) -> dict[str, str]:
    """Name of a custom node -> what the installed runtime would do around it, but for the node."""
    uses = model_uses(model, libraries)
    names = {where(use): use.name for graph in uses.graphs for use in graph.custom.values() if use.name}
    found: dict[str, list[str]] = {}
    for finding in cut_findings(uses, Kernels(libraries), limits_for(None), GraphViews()):
        if finding.where in names:
            found.setdefault(names[finding.where], []).append(finding.what)
    return {name: "; ".join(dict.fromkeys(texts)) for name, texts in found.items()}


class _Names:
    """The nodes of the file's graph, by what the runtime may have named after them."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes: list[onnx.NodeProto] = list(graph.node)
        self._by_name = {n.name: k for k, n in enumerate(self.nodes) if n.name}
        self._maker = {o: k for k, n in enumerate(self.nodes) for o in n.output if o}
        stored = {t.name for t in graph.initializer}
        self._constant: set[int] = set()
        for k, node in enumerate(self.nodes):
            live = [
                n for n in node.input if n and n not in stored and self._maker.get(n) not in self._constant
            ]
            if not live:
                self._constant.add(k)

    def module(self, k: int) -> str:
        """As the export noted it; the TorchScript exporter names nodes after their module instead."""
        node = self.nodes[k]
        noted = next((p.value for p in node.metadata_props if p.key == SOURCE_KEY), "")
        return noted or _scopes(node.name)

    def shared_module(self, k: int | None, absorbed: Sequence[int]) -> str:
        """That of the node, or the one above where nodes of its siblings went into it; no more than that is claimed."""
        if k is None:
            return ""
        own = self.module(k)
        above = common_module(self.module(j) for j in (k, *absorbed))
        return above if above == own.rpartition(".")[0] and above else own

    def found(self, name: str) -> int | None:
        """The node that a name of the runtime's is from: itself, the longest beginning, or the value's maker."""
        name = name.removeprefix("fused ")
        if name in self._by_name:
            return self._by_name[name]
        if _GENERATED.fullmatch(name):
            return None
        value = name.removesuffix("_nchwc")
        if value != name and value in self._maker:
            return self._maker[value]
        for end in range(len(name) - 1, 0, -1):
            if name[end] in "/_ " and (k := self._by_name.get(name[:end])) is not None:
                return k
        return None

    def absorbed(self, ran: Mapping[str, int | None]) -> dict[str, list[int]]:
        """Name in the trace -> the nodes that it stands for, its own among them."""
        of: dict[int, str] = {k: name for name, k in ran.items() if k is not None}
        # backwards: what feeds only into a node that ran, and did not run itself
        for k in range(len(self.nodes) - 1, -1, -1):
            if k in of:
                self._take_makers(k, of[k], of)
        for k, node in enumerate(self.nodes):
            if k not in of and k not in self._constant:
                before = [of[m] for n in node.input if (m := self._maker.get(n)) is not None and m in of]
                if before:
                    of[k] = before[-1]
        found: dict[str, list[int]] = {}
        for k, name in of.items():
            found.setdefault(name, []).append(k)
        return found

    def _take_makers(self, k: int, name: str, of: dict[int, str]) -> None:
        pending = [k]
        while pending:
            for value in self.nodes[pending.pop()].input:
                maker = self._maker.get(value)
                if maker is not None and maker not in of and maker not in self._constant:
                    of[maker] = name
                    pending.append(maker)


def _scopes(name: str) -> str:
    """ "/layers/layers.0/up/MatMul" -> "layers.0.up": each scope is a module's name in the one before, or a longer form of it."""
    if not name.startswith("/"):
        return ""
    path: list[str] = []
    for scope in name.strip("/").split("/")[:-1]:
        if path and scope.startswith(path[-1] + "."):
            path.pop()
        path.append(scope)
    return ".".join(path)


def _function(name: str, functions: Mapping[str, str]) -> str | None:
    """The function that a node was expanded from: the longest name that fits."""
    if not name.startswith(_INLINED):
        return None
    rest = name.removeprefix(_INLINED)
    fitting = [f for f in functions if rest.startswith(f"{f}_")]
    return max(fitting, key=len, default=None)


def _of_function(
    title: str, name: str, graph: onnx.GraphProto, names: _Names, time: float, cut: Mapping[str, str]
) -> NodeTime:
    callers = [k for k, n in enumerate(graph.node) if f"{n.domain}::{n.op_type}" == title]
    only = names.nodes[callers[0]].name if len(callers) == 1 else ""
    return NodeTime(
        name=only or f"{len(callers)} × {title}",
        op_type=title + BODY,
        time=time,
        share=0.0,
        custom=True,
        cuts=cut.get(only, ""),
        module=common_module(names.module(k) for k in callers),
        calls=float(len(callers)),
    )


def _notes(trace: Trace) -> list[str]:
    providers = sorted({n.provider for n in trace.nodes if n.provider})
    return [f"nodes on {', '.join(providers)}"] if len(providers) > 1 else []
