"""Nodes of the file that draw random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ...symbolic import registry
from ..record import Finding
from .graph_nodes import described_node, nodes_of

if TYPE_CHECKING:
    import onnx

__all__ = ["in_file"]

KIND = "randomness"

_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)


def in_file(graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto] = ()) -> Iterator[Finding]:
    """Nodes that draw random numbers; custom ones that are declared stateful are among them."""
    for node in nodes_of(graph, functions):
        if node.domain in ("", "ai.onnx"):
            random = node.op_type in _RANDOM
        else:
            op = registry.by_onnx_name(node.domain, node.op_type)
            random = op is not None and op.stateful
        if random:
            yield Finding(
                KIND,
                "note",
                f"the file draws random numbers: {described_node(node)}; two runs need not agree",
                where=node.name or node.output[0],
                advice="make the random numbers an input of the model, so that both sides get the same",
            )
