"""Sizes that the runtime does not know because a custom node stands before them."""

from __future__ import annotations

from collections.abc import Iterator

from ...symbolic.graph_inspection.domains import is_custom
from ...symbolic.graph_inspection.findings import NOTE, Finding, where
from ...symbolic.graph_inspection.graph_view import GraphViews
from ...symbolic.graph_inspection.node_uses import ModelUses, NodeUse
from .custom_nodes import Kernels
from .runtime_limits import RuntimeLimits

__all__ = ["shape_findings"]

# Libraries of deployops infer shapes in ONNX Runtime from this version on; before, it crashes on absent inputs.
_INFERS_SINCE = (1, 24)


def shape_findings(
    uses: ModelUses, kernels: Kernels, limits: RuntimeLimits, views: GraphViews
) -> Iterator[Finding]:
    """For each custom node that shape inference stops at: how many nodes after it have no sizes in the file either."""
    infers = limits.release[:2] >= _INFERS_SINCE
    for graph in uses.graphs:
        stopping = {
            k: use
            for k, use in graph.custom.items()
            if is_custom(use.domain) and kernels.stays_a_node(use) and not (infers and kernels.library(use))
        }
        if not stopping:
            continue
        view = views.of(graph)
        lost: dict[str, int] = {}  # value without a size -> the custom node that it comes from
        behind: dict[int, int] = dict.fromkeys(stopping, 0)
        for k, node in enumerate(view.nodes):
            source = k if k in stopping else next((lost[n] for n in node.input if n in lost), None)
            if source is None:
                continue
            unknown = [n for n in node.output if n and view.size(n) is None]
            lost |= dict.fromkeys(unknown, source)
            behind[source] += bool(unknown) and k != source
        for k, use in stopping.items():
            if any(lost.get(n) == k for n in view.nodes[k].output):
                yield _finding(use, behind[k], limits)


def _finding(use: NodeUse, count: int, limits: RuntimeLimits) -> Finding:
    unknown = f"{count} node{'' if count == 1 else 's'} after it" if count else "its results"
    what = (
        f"shape inference stops at {use.title}, and the file states no sizes: they are unknown for {unknown}"
    )
    advice = (
        "deployops export writes the sizes; onnx.shape_inference does where the operator's schema is registered. ONNX Runtime "
        "leaves out optimisations that need them"
    )
    return Finding(NOTE, "shapes-lost", where(use), what, advice)
