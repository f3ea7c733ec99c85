"""Sums of sizes as torch's ONNX translation takes them.

torch's tracer writes a size `1 + n` that it has to make anew as `torch.sym_sum(1, n)`, and its exporter knows
`torch.sym_sum([1, n])` alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["sums_as_lists", "write_sums_as_lists"]


def write_sums_as_lists(graph: torch.fx.Graph) -> None:
    """Rewrite the calls of `graph` in place."""
    import torch

    for node in graph.find_nodes(op="call_function", target=torch.sym_sum):
        if node.args and not isinstance(node.args[0], (list, tuple)):
            node.args = (list(node.args),)


@contextlib.contextmanager
def sums_as_lists(program: ExportedProgram) -> Iterator[None]:
    """Inside the block, what `program.run_decompositions` returns has its sums as lists."""
    import torch

    own = vars(program).get("run_decompositions")
    run: Any = program.run_decompositions

    def rewritten(*args: Any, **kwargs: Any) -> Any:
        decomposed = run(*args, **kwargs)
        for module in decomposed.graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                write_sums_as_lists(module.graph)
        return decomposed

    vars(program)["run_decompositions"] = rewritten
    try:
        yield
    finally:
        if own is None:
            del vars(program)["run_decompositions"]
        else:
            vars(program)["run_decompositions"] = own
