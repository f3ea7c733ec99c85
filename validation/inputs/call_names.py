"""The names of a call's values: of the parameters of `forward`, or those that the caller knows."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UsageError
from ...export.inputs.forward_binding import script_arguments
from ..backends import Sample

__all__ = ["leaf_names", "named_inputs", "parameters"]


def named_inputs(model: Any, sample: Sample) -> list[tuple[str, Any]]:
    """Every leaf of the call with its name, in the order of the call."""
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    names = sample.names or leaf_names(model, sample.args, sample.kwargs, {})
    if len(names) != len(leaves):
        raise UsageError(f"sample {sample.label!r}: {len(names)} names for {len(leaves)} inputs")
    return [(n, v) for n, v in zip(names, leaves, strict=True) if v is not None]


def leaf_names(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: Mapping[int, str]
) -> tuple[str, ...]:
    """A name for each leaf; `known` has those of some tensors by their id."""
    from torch.utils import _pytree

    names_of_args = parameters(model)
    top = [
        *((names_of_args[i] if i < len(names_of_args) else f"arg{i}", v) for i, v in enumerate(args)),
    ]
    names = []
    for name, value in (*top, *kwargs.items()):
        leaves = _pytree.tree_leaves(value)
        alone = len(leaves) == 1 and leaves[0] is value
        names += [known.get(id(leaf), name if alone else f"{name}_{i}") for i, leaf in enumerate(leaves)]
    return tuple(names)


def parameters(model: Any) -> list[str]:
    """Names of the positional parameters of a model's forward; none where they are unknown."""
    forward = getattr(model, "forward", model)
    schema = getattr(forward, "schema", None)  # a ScriptModule's method
    if schema is not None:
        return [a.name for a in script_arguments(forward)]
    try:
        found = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
