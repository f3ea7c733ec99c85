"""Batch normalisation in training mode: torch's translation takes the running statistics instead of the batch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ExportError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["refuse_batch_statistics"]


def refuse_batch_statistics(program: ExportedProgram) -> None:
    """Raise ExportError naming every line that normalises with the batch's statistics though it has running ones."""
    import torch

    from .graph.translation import user_frame

    lines = [
        user_frame(node) or node.name
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if _trains(node)
    ]
    if lines:
        raise ExportError(
            "batch normalisation runs in training mode, which eval() does not switch off (training=True): an exported model "
            "would take the running statistics instead of the batch's:\n"
            + "\n".join(f"  - {line}" for line in dict.fromkeys(lines))
            + "\n  Write training=self.training; or, to normalise with the batch's own in the file too, give no running ones "
            "(F.batch_norm(x, None, None, training=True)). A torch.export program is traced anew, after model.eval()"
        )


def _trains(node: torch.fx.Node) -> bool:
    """Whether it is ``batch_norm(x, weight, bias, running_mean, running_var, training=True, …)``."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or "batch_norm" not in schema.name or not schema.name.startswith("aten::"):
        return False
    given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    trains = given.get("training", "with_update" in schema.name)
    return trains is True and given.get("running_mean") is not None
