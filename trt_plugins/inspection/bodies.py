"""Bodies (model-local functions) that TensorRT's parser puts in the place of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...symbolic.graph_inspection.expansion import expansion, too_large
from ...symbolic.graph_inspection.findings import FAILS, Finding, where
from ...symbolic.graph_inspection.node_uses import ModelUses, NodeUse, domain_key
from ...symbolic.graph_inspection.standard_types import as_text
from .plugin_nodes import PluginNodes

if TYPE_CHECKING:
    import onnx

__all__ = ["body_findings"]


def body_findings(model: onnx.ModelProto, uses: ModelUses, nodes: PluginNodes) -> Iterator[Finding]:
    """Functions that call themselves, and calls that do not fit; where a plugin runs, the body does not matter."""
    for title in uses.recursive:
        what = f"the model-local function {title} calls itself: TensorRT's parser crashes"
        yield Finding(FAILS, "function-recursive", "", what, "ONNX functions must not be recursive")
    expanded = expansion(model, lambda node: nodes.runs(node, domain_key(node.domain)) is not None)
    if expanded.is_bomb:
        yield Finding(FAILS, "functions-expand", "", *too_large(expanded))
    inputs = {as_text(f.name): len(f.input) for f in reversed(model.functions)}  # the parser keeps the first
    for use in uses.uses:
        if use.op_type not in inputs or nodes.is_standard(use) or use.node is None:
            continue
        if nodes.runs(use.node, use.domain) is None:
            yield from _call_findings(use, inputs[use.op_type])


def _call_findings(use: NodeUse, declared: int) -> Iterator[Finding]:
    count = len(use.inputs)
    if count != declared:
        inputs = f"{count} input{'' if count == 1 else 's'}"
        what = f"{use.title} has {inputs} here, its body {declared}; TensorRT's parser wants as many"
        advice = "Export with --custom-ops standard, which expands the body, or give a plugin"
        yield Finding(FAILS, "body-inputs", where(use), what, advice)
    elif any(not name for name in use.node.input):  # type: ignore[union-attr]
        what = f"{use.title} has an absent input (''), which TensorRT's parser cannot hand to a body"
        advice = "Export with --custom-ops standard, which expands the body"
        yield Finding(FAILS, "absent-input", where(use), what, advice)
