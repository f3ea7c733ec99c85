"""Sums of sizes as torch's ONNX translation takes them.

torch's tracer writes a size `1 + n` that it has to make anew as `torch.sym_sum(1, n)`, and its exporter knows
`torch.sym_sum([1, n])` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["write_sums_as_lists"]


def write_sums_as_lists(graph: torch.fx.Graph) -> None:
    """Rewrite the calls of `graph` in place."""
    import torch

    for node in graph.find_nodes(op="call_function", target=torch.sym_sum):
        if node.args and not isinstance(node.args[0], (list, tuple)):
            node.args = (list(node.args),)
