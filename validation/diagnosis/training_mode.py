"""Training mode that was left on: in the file, or in the original."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..record import Finding
from .graph_nodes import attribute, constants, described_node, nodes_of

if TYPE_CHECKING:
    import onnx

__all__ = ["in_file", "in_original"]

KIND = "training mode"


def in_file(graph: onnx.GraphProto, functions: Iterable[onnx.FunctionProto] = ()) -> Iterator[Finding]:
    """Dropout that drops, and batch normalization that takes the statistics of the batch."""
    functions = list(functions)
    held = constants(graph, functions)
    for node in nodes_of(graph, functions):
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "Dropout":
            active = _dropout(node, held)
            if active is not None:
                yield Finding(
                    KIND,
                    "note",
                    f"the file has a Dropout that {active}: {described_node(node)}; its outputs are random",
                    where=node.name or node.output[0],
                    advice="call `model.eval()` before the export, or export with `deployops export`, which does",
                )
        if node.op_type == "BatchNormalization" and (
            attribute(node, "training_mode") or len(node.output) > 2
        ):
            yield Finding(
                KIND,
                "note",
                f"the file has a BatchNormalization in training mode: {described_node(node)}; it uses the statistics of "
                "the batch at hand, so that one item's result depends on the others",
                where=node.name or node.output[0],
                advice="call `model.eval()` before the export: the running statistics are then used",
            )


def _dropout(node: onnx.NodeProto, held: Any) -> str | None:
    """In what way a Dropout is active; None where it lets everything pass. Before version 12 it always does."""
    names = list(node.input) + [""] * 3
    ratio = held.get(names[1])
    if ratio is not None and float(ratio.reshape(-1)[0]) == 0:
        return None
    if not names[2]:
        return None
    mode = held.get(names[2])
    if mode is None:
        return f"is active where the value {names[2]!r} is true"
    return "is active" if bool(mode.reshape(-1)[0]) else None


def in_original(model: Any) -> Iterator[Finding]:
    """A module in training mode, and a traced program in which training mode is written down."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        active = sorted({n.kind() for n in _script_nodes(model) if _script_active(n)})
        if active:
            yield _fixed(active)
        return
    graph = getattr(model, "graph", None)
    if isinstance(graph, torch.fx.Graph):
        active = sorted({str(n.target) for n in graph.nodes if _active(n)})
        if active:
            yield _fixed(active)
        return
    if isinstance(model, torch.nn.Module):
        training = [name or type(model).__name__ for name, m in model.named_modules() if m.training]
        if training:
            shown = ", ".join(training[:3]) + (f" and {len(training) - 3} more" if len(training) > 3 else "")
            yield Finding(
                KIND,
                "note",
                f"the original was in training mode ({shown}); it is compared in eval mode",
                where="pytorch",
                advice="call `model.eval()`: it is what a deployed model does",
            )


def _fixed(active: list[str]) -> Finding:
    return Finding(
        KIND,
        "note",
        f"the original was traced in training mode, which cannot be switched off: {', '.join(active)}",
        where="pytorch",
        advice="call `model.eval()` before `torch.export.export` or `torch.jit.trace`",
    )


def _active(node: Any) -> bool:
    """A node of an exported program that computes as in training."""
    name = str(node.target)
    args = list(node.args)

    def at(position: int, key: str) -> Any:
        return args[position] if len(args) > position else node.kwargs.get(key)

    if name in ("aten.dropout.default", "aten.dropout_.default", "aten.native_dropout.default"):
        return at(2, "train") is True and at(1, "p") != 0
    if name in ("aten.batch_norm.default", "aten.native_batch_norm.default"):
        return at(5, "training") is True and at(3, "running_mean") is not None
    return name.startswith("aten._native_batch_norm_legit_functional")


def _script_nodes(model: Any) -> Iterator[Any]:
    try:
        graph = model.inlined_graph
    except (RuntimeError, AttributeError):  # a module without forward
        return
    pending = list(graph.nodes())
    while pending:
        node = pending.pop()
        yield node
        pending += [inner for block in node.blocks() for inner in block.nodes()]


def _script_active(node: Any) -> bool:
    position = {"aten::dropout": 2, "aten::dropout_": 2, "aten::batch_norm": 5}.get(node.kind())
    inputs = list(node.inputs())
    return position is not None and len(inputs) > position and inputs[position].toIValue() is True
