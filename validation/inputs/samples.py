"""The calls to compare on: from the user, from an input signature, or from one example at other sizes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import UsageError
from ...export.inputs.forward_binding import script_arguments
from ..backends import Sample

if TYPE_CHECKING:
    import onnx

__all__ = ["InputSignature", "from_example", "from_signature", "named_inputs", "resolve"]


class InputSignature(Protocol):
    """What `export.signature.Signature` offers, as far as samples need it."""

    def example_sizes(self) -> Mapping[str, int]: ...
    def other_sizes(self, count: int) -> Sequence[Mapping[str, int]]: ...
    def make(self, sizes: Mapping[str, int], seed: int) -> Mapping[str, Any]: ...
    def bind(self, values: Mapping[str, Any], forward: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]: ...


def resolve(
    model: Any,
    graph: onnx.GraphProto,
    inputs: Any,
    signature: Any,
    samples: Iterable[Any] | None,
    sizes: int,
    seed: int,
) -> list[Sample]:
    """The samples of a `validate` call, from whichever of the three the caller gave."""
    given = [
        name
        for name, v in (("inputs", inputs), ("signature", signature), ("samples", samples))
        if v is not None
    ]
    if len(given) != 1:
        raise UsageError(f"give one of inputs, signature and samples; got {', '.join(given) or 'none'}")
    if sizes < 1:
        raise UsageError(f"sizes must be at least 1, got {sizes}")
    if samples is not None:
        found = [s if isinstance(s, Sample) else Sample(str(s[0]), tuple(s[1]), *s[2:]) for s in samples]
    elif signature is not None or _texts(inputs):
        if signature is None:
            from ...export.inputs.signature import signature_from_specs

            signature = signature_from_specs(inputs)
        found = from_signature(signature, model, sizes, seed)
    else:
        args, kwargs = _call(inputs)
        found = from_example(Sample("example", args, kwargs), model, graph, sizes, seed)
    if not found:
        raise UsageError("no samples: there is nothing to compare on")
    return found


def from_signature(signature: InputSignature, model: Any, sizes: int, seed: int) -> list[Sample]:
    """The example sizes, then `sizes - 1` others."""
    found = []
    for index, size in enumerate([signature.example_sizes(), *signature.other_sizes(sizes - 1)]):
        values = signature.make(size, seed + index)
        args, kwargs = signature.bind(values, getattr(model, "forward", model))
        label = ", ".join(f"{k}={v}" for k, v in size.items()) or "example"
        names = {id(v): k for k, v in values.items() if hasattr(v, "shape")}
        found.append(Sample(label, tuple(args), dict(kwargs), _leaf_names(model, args, kwargs, names)))
    return found


def from_example(example: Sample, model: Any, graph: onnx.GraphProto, sizes: int, seed: int) -> list[Sample]:
    """The example, and the example at other sizes of the dims that the ONNX model leaves open.

    Values are drawn from the example along the axis, so that indices stay valid and images stay images.
    """
    import torch
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten((example.args, dict(example.kwargs)))
    names = [n for n, _ in named_inputs(model, example)]
    axes = _open_axes(graph, [(n, v) for n, v in zip(names, leaves, strict=True)])
    symbols: dict[str, int] = {}
    for position, axis, symbol in axes:
        symbols.setdefault(symbol, leaves[position].shape[axis])
    found = [example]
    for index, size in enumerate(_other_sizes(symbols, sizes - 1)):
        generator = torch.Generator().manual_seed(seed + index)
        values = list(leaves)
        for position, axis, symbol in axes:
            old = values[position].shape[axis]
            if old:
                pick = torch.randint(0, old, (size[symbol],), generator=generator)
                values[position] = values[position].index_select(axis, pick)
        args, kwargs = _pytree.tree_unflatten(values, spec)
        label = ", ".join(f"{k}={v}" for k, v in size.items())
        found.append(Sample(label, args, kwargs, example.names))
    return found


def named_inputs(model: Any, sample: Sample) -> list[tuple[str, Any]]:
    """Every leaf of the call with its name, in the order of the call."""
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    names = sample.names or _leaf_names(model, sample.args, sample.kwargs, {})
    if len(names) != len(leaves):
        raise UsageError(f"sample {sample.label!r}: {len(names)} names for {len(leaves)} inputs")
    return [(n, v) for n, v in zip(names, leaves, strict=True) if v is not None]


def _leaf_names(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], known: Mapping[int, str]
) -> tuple[str, ...]:
    from torch.utils import _pytree

    parameters = _parameters(model)
    top = [*((parameters[i] if i < len(parameters) else f"arg{i}", v) for i, v in enumerate(args))]
    names = []
    for name, value in (*top, *kwargs.items()):
        leaves = _pytree.tree_leaves(value)
        alone = len(leaves) == 1 and leaves[0] is value
        names += [known.get(id(leaf), name if alone else f"{name}_{i}") for i, leaf in enumerate(leaves)]
    return tuple(names)


def _parameters(model: Any) -> list[str]:
    forward = getattr(model, "forward", model)
    schema = getattr(forward, "schema", None)  # a ScriptModule's method
    if schema is not None:
        return [a.name for a in script_arguments(forward)]
    try:
        found = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _texts(inputs: Any) -> bool:
    return isinstance(inputs, list | tuple) and bool(inputs) and all(isinstance(i, str) for i in inputs)


def _call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if hasattr(inputs, "shape"):
        return (inputs,), {}
    raise UsageError(
        f"inputs must be a tensor, a tuple of arguments or a dict of them, not {type(inputs).__name__}"
    )


def _open_axes(graph: onnx.GraphProto, leaves: list[tuple[str, Any]]) -> list[tuple[int, int, str]]:
    """(leaf, axis, symbol) for every axis whose size the ONNX model leaves open."""
    stored = {t.name for t in graph.initializer}
    inputs = [i for i in graph.input if i.name not in stored]
    tensors = [k for k, (_, v) in enumerate(leaves) if hasattr(v, "index_select")]
    by_name = {leaves[k][0]: k for k in tensors}
    if not all(i.name in by_name for i in inputs):
        by_name = (
            {i.name: k for i, k in zip(inputs, tensors, strict=True)} if len(inputs) == len(tensors) else {}
        )
    return [
        (by_name[i.name], axis, dim.dim_param)
        for i in inputs
        if i.name in by_name and len(i.type.tensor_type.shape.dim) == leaves[by_name[i.name]][1].dim()
        for axis, dim in enumerate(i.type.tensor_type.shape.dim)
        if dim.dim_param
    ]


def _other_sizes(symbols: Mapping[str, int], count: int) -> list[dict[str, int]]:
    """One more than the example and all symbols different, then doubled, then 1, then tripled."""
    if not symbols:
        return []
    choices = [
        {s: v + 1 + i for i, (s, v) in enumerate(symbols.items())},
        {s: 2 * v for s, v in symbols.items()},
        dict.fromkeys(symbols, 1),
        {s: 3 * v for s, v in symbols.items()},
        {s: v + 7 + 2 * i for i, (s, v) in enumerate(symbols.items())},
    ]
    return [c for c in choices if c != dict(symbols)][:count]
