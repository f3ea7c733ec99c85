"""Random numbers: in the file by its nodes, in the original by the operators that drew some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...symbolic import registry
from ..backends import Sample
from ..record import Finding
from .graph_nodes import described_node, nodes_of
from .operators_seen import operators_seen

if TYPE_CHECKING:
    import onnx

__all__ = ["in_file", "in_original"]

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


def in_original(call: Callable[[], Any], sample: Sample) -> Iterator[Finding]:
    """The operators that draw random numbers in a run, with the module that each is in."""
    import torch

    found: dict[tuple[str, str], None] = {}

    def see(path: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        inactive = "dropout" in str(func) and False in (*args[2:3], kwargs.get("train"))
        if torch.Tag.nondeterministic_seeded in func.tags and not inactive:
            found.setdefault((str(func), path), None)

    with operators_seen(see):
        call()
    if found:
        places = [f"{name} in `{path}`" if path else name for name, path in list(found)[:4]]
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        yield Finding(
            KIND,
            "note",
            f"the original draws random numbers on {sample.label}: {', '.join(places)}{more}",
            where="pytorch",
            advice="switch it off in eval mode (`F.dropout(x, p, self.training)`), or make the numbers an input",
        )
