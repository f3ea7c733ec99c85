"""Training mode that was left on: in the file, or in the original."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..record import Finding
from .graph_nodes import attribute, constants, described_node, nodes_of

if TYPE_CHECKING:
    import onnx

__all__ = ["drops", "in_file", "in_original", "modules_in_training", "written_down"]

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
                    advice="call `model.eval()` before the export; for that to count, an F.dropout in the model needs "
                    "`training=self.training`",
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
                advice="call `model.eval()` before the export: the running statistics are then used, where the module keeps some "
                "(track_running_stats=True)",
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


def drops(graph: onnx.GraphProto) -> bool:
    """Whether a Dropout of the file itself is active."""
    held = constants(graph, [])
    return any(n.op_type == "Dropout" and _dropout(n, held) is not None for n in nodes_of(graph))


def modules_in_training(model: Any) -> list[str]:
    """The names of the modules that are; the whole by its class."""
    import torch

    if not isinstance(model, torch.nn.Module) or _is_traced(model):
        return []
    return [name or type(model).__name__ for name, m in model.named_modules() if m.training]


def _is_traced(model: Any) -> bool:
    import torch

    return isinstance(model, torch.jit.ScriptModule) or isinstance(
        getattr(model, "graph", None), torch.fx.Graph
    )


def written_down(model: Any) -> list[str]:
    """The operators of a traced program that compute as in training, whatever its mode is; none of another model."""
    import torch

    if isinstance(model, torch.jit.ScriptModule):
        return sorted({n.kind() for n in _script_nodes(model) if _script_active(n)})
    return sorted({str(n.target) for n in model.graph.nodes if _active(n)}) if _is_traced(model) else []


def in_original(model: Any, training: Sequence[str]) -> Iterator[Finding]:
    """Modules that were in training mode (`training`), and a traced program in which training mode is written down.

    `model`: in eval mode. Where one of its modules is not (a train() of its own), nothing is said here: `eval_mode` tells what
    it does.
    """
    if active := written_down(model):
        yield _fixed(active)
    still = set(modules_in_training(model))
    switched = [name for name in training if name not in still]
    if switched:
        shown = ", ".join(switched[:3]) + (f" and {len(switched) - 3} more" if len(switched) > 3 else "")
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
        advice="call `model.eval()` before `torch.export.export` or `torch.jit.trace`; what its code calls with training=True or a "
        "dropout_p stays on even so: pass `self.training` there",
    )


# The positions of what switches an operator of a traced program to training: `train`, or a probability.
_SWITCHES = {
    "dropout": 2,
    "dropout_": 2,
    "native_dropout": 2,
    "alpha_dropout": 2,
    "alpha_dropout_": 2,
    "feature_dropout": 2,
    "feature_dropout_": 2,
    "feature_alpha_dropout": 2,
    "feature_alpha_dropout_": 2,
    "rrelu": 3,
    "rrelu_": 3,
    "scaled_dot_product_attention": 4,
    "batch_norm": 5,
    "native_batch_norm": 5,
}


def _active(node: Any) -> bool:
    """A node of an exported program that computes as in training."""
    import torch

    name = str(node.target)
    if not isinstance(node.target, torch._ops.OpOverload) or not name.startswith("aten."):
        return False
    kind = name.split(".")[1]
    values = list(node.args)
    position = _SWITCHES.get(kind)

    def at(position: int) -> Any:
        argument = node.target._schema.arguments[position].name
        return values[position] if len(values) > position else node.kwargs.get(argument)

    if position is None:
        return kind.startswith("_native_batch_norm_legit_functional")
    if "dropout" in kind and at(1) == 0:
        return False
    if "batch_norm" in kind and at(3) is None:  # without running statistics it can do nothing else
        return False
    return _is_on(at(position))


def _is_on(switch: Any) -> bool:
    return switch is True or (isinstance(switch, float) and switch > 0)


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
    kind = node.kind().removeprefix("aten::")
    position = _SWITCHES.get(kind)
    inputs = list(node.inputs())
    if position is None or len(inputs) <= position:
        return False
    if "batch_norm" in kind and inputs[3].type().kind() == "NoneType":
        return False
    return _is_on(inputs[position].toIValue())
