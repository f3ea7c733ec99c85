"""torch's decomposition of a whole program, with decompositions of ours in place of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .onnx_functions import better_decompositions
from .size_sums import write_sums_as_lists

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["own_decompositions"]


@contextlib.contextmanager
def own_decompositions(program: ExportedProgram) -> Iterator[None]:
    """Inside the block, `program.run_decompositions` takes ours first, and writes sums of sizes as lists."""
    import torch

    own = vars(program).get("run_decompositions")
    run: Any = program.run_decompositions

    def rewritten(table: Any = None, *args: Any, **kwargs: Any) -> Any:
        if table:
            table = {**table, **better_decompositions()}
        decomposed = run(table, *args, **kwargs)
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
