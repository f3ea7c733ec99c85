"""What eval mode does not switch off in the original: dropout, random slopes, statistics of the batch, and random numbers.

One line says all of it, with what to do for each kind: `F.dropout` is told to look at `self.training`, a module that
stays in training mode is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...export.census import draws
from ..backends import Sample
from ..operators_seen import Place, operators_seen
from ..record import Finding

__all__ = ["in_original"]

_SHOWN = 4
_DROPS = ("dropout", "rrelu")  # in the name of a function that takes `training`
_BATCH_NORM = ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "miopen_batch_norm")


def in_original(call: Callable[[], Any], sample: Sample, random: bool) -> Iterator[Finding]:
    """What a run shows. At most a finding of what computes as in training, and one of other random numbers.

    `random`: what draws random numbers; else what takes the statistics of the batch.
    """
    import torch

    training: dict[str, str] = {}  # what -> what to do
    others: dict[str, None] = {}

    def see(place: Place, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if random and torch.Tag.nondeterministic_seeded in func.tags and draws(func, args):
            named = _as_in_training(place, _DROPS)
            if named is not None and place.function.startswith("aten."):
                return  # of a traced program: `training_mode` has told what is written down there
            if named is None:
                others.setdefault(f"{place.function or func}{f' in `{place.path}`' if place.path else ''}")
            else:
                training.setdefault(*named)
        elif not random and _of_the_batch(place, func, args):
            named = _as_in_training(place, ("batch_norm",))
            if named is not None:
                training.setdefault(*named)

    with operators_seen(see):
        call()
    if training:
        yield Finding(
            "training mode",
            "note",
            f"the original computes as in training on {sample.label}, in eval mode: {_listed(list(training))}",
            where="pytorch",
            advice="; ".join(dict.fromkeys(training.values())),
        )
    if others:
        yield Finding(
            "randomness",
            "note",
            f"the original draws random numbers on {sample.label}: {_listed(list(others))}",
            where="pytorch",
            advice="draw them in training only (`if self.training:`), or make them an input of the model, so that both sides get "
            "the same",
        )


def _as_in_training(place: Place, functions: tuple[str, ...]) -> tuple[str, str] | None:
    """(what, what to do) of something that has an eval mode and is not in it; None for what has none."""
    import torch

    module = place.module
    kind = type(module).__name__
    name = f"`{place.path}` ({kind})" if place.path else kind
    short = place.function.replace("torch.nn.functional.", "F.").replace("torch._C._nn.", "F.")
    if module is not None and module.training and not isinstance(module, torch.fx.GraphModule):
        return (
            f"{name} is in training mode",
            f"see that eval() reaches {f'`{place.path}`' if place.path else 'it'}: a train() of its own, or one that forward "
            "calls, keeps it in training mode",
        )
    if getattr(module, "track_running_stats", True) is False and "batch_norm" in functions:
        return (
            f"{name} has no running statistics and takes those of the batch",
            "train it with track_running_stats=True, or export it as it is: one item's result then depends on the others",
        )
    where = f" in {name}" if module is not None else ""
    if "scaled_dot_product_attention" in short:
        return (
            f"{short}{where} is called with dropout_p above 0",
            "pass `dropout_p=p if self.training else 0.0` to it: it knows no eval mode",
        )
    if isinstance(module, torch.fx.GraphModule) and "batch_norm" in short:
        return f"{short} takes the statistics of the batch", "trace it in eval mode, with running statistics"
    if any(f in short for f in functions):
        besides = ", and running statistics" if "batch_norm" in short else ""
        return (
            f"{short}{where} is called with training=True",
            f"pass `training=self.training` to {short}{besides}",
        )
    return None


def _of_the_batch(place: Place, func: Any, args: Any) -> bool:
    """Whether an operator normalizes by the statistics of the batch; those of each item are what InstanceNorm is."""
    import torch

    name = func._schema.name.removeprefix("aten::")
    if name not in _BATCH_NORM or "instance_norm" in place.function:
        return False
    if isinstance(place.module, torch.nn.modules.instancenorm._InstanceNorm):
        return False
    training = 5 if len(func._schema.arguments) > 5 and func._schema.arguments[5].name == "training" else 3
    return len(args) > training and args[training] is True


def _listed(texts: list[str]) -> str:
    return ", ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")
