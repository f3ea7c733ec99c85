"""The calls to compare on: from the user, from an input signature, from one example, from a folder of real samples."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...errors import UsageError
from ..backends import Sample
from .call_names import leaf_names, named_inputs, parameters
from .declared_maxima import cheap_sizes, declared_maxima
from .distributions import varied
from .file_inputs import UNNAMED, file_inputs, file_outputs
from .sample_files import FolderSample, read_folder
from .sizes import OpenDim
from .sweep import Bounds, other_values, signature_dims, swept_sizes
from .tried_values import untried
from .whole_numbers import not_tried

if TYPE_CHECKING:
    import onnx

    from ...export.inputs.signature import Signature

__all__ = ["Sweep", "from_example", "from_signature", "named_inputs", "resolve"]

Sweep = Literal["quick", "full"] | None


def resolve(
    model: Any,
    graph: onnx.GraphProto,
    inputs: Any,
    signature: Any,
    samples: Iterable[Any] | None,
    sizes: int,
    seed: int,
    sweep: Sweep = None,
    folder: str | os.PathLike[str] | None = None,
    notes: dict[str, None] | None = None,
    parsed: onnx.ModelProto | None = None,
) -> list[Sample]:
    """The samples of a `validate` call, from whichever of the three the caller gave, and from a folder.

    Args:
        sizes: how many sizes to try, the example's included; a full sweep chooses them itself.
        sweep: None: the example and other sizes. "quick": also the declared maxima that cost little, and large and tiny
            values at the example's size. "full": sizes across the declared ranges, several seeds, every distribution,
            other layouts.
        folder: real samples, which come first; `inputs` and `signature` may then be missing.
        notes: what a sweep left out is added here.
        parsed: the file that `graph` is of, by which costs are estimated.
    """
    notes = {} if notes is None else notes
    given = [
        name
        for name, v in (("inputs", inputs), ("signature", signature), ("samples", samples))
        if v is not None
    ]
    if len(given) > 1 or (not given and folder is None):
        raise UsageError(f"give one of inputs, signature and samples; got {', '.join(given) or 'none'}")
    if sizes < 1:
        raise UsageError(f"sizes must be at least 1, got {sizes}")
    if sweep not in (None, "quick", "full"):
        raise UsageError(f"a sweep is quick or full, not {sweep!r}")
    if samples is not None:
        found = [s if isinstance(s, Sample) else Sample(str(s[0]), tuple(s[1]), *s[2:]) for s in samples]
        if sweep is not None:
            notes["the given samples are taken as they are: a sweep needs inputs or a signature"] = None
        found = [*_from_folder(model, graph, folder, found[0] if found else None, None), *found]
    elif signature is not None or _texts(inputs):
        if signature is None:
            from ...export.inputs.signature import signature_from_specs

            signature = signature_from_specs(inputs)
        found = from_signature(signature, model, sizes, seed, sweep, notes, parsed)
        found = [*_from_folder(model, graph, folder, found[0], signature), *found]
    else:
        real: list[Sample] = []
        if inputs is not None:
            args, kwargs = _call(inputs)
            example = Sample("example", args, kwargs)
            real = _from_folder(model, graph, folder, example, None)
        else:
            real = _from_folder(model, graph, folder, None, None)
            example = real.pop(0)
        made = from_example(example, model, graph, sizes, seed, sweep, notes)
        found = [*real, *made] if inputs is not None else [made[0], *real, *made[1:]]
    if not found:
        raise UsageError("no samples: there is nothing to compare on")
    if samples is None:
        declared = () if signature is None else signature.specs
        bounds = {s.name: s.value_range for s in declared if s.value_range is not None}
        notes |= dict.fromkeys(untried(model, found, bounds))
        notes |= dict.fromkeys(not_tried(model, found, bounds))
    return found


def from_signature(
    signature: Signature,
    model: Any,
    sizes: int,
    seed: int,
    sweep: Sweep = None,
    notes: dict[str, None] | None = None,
    parsed: onnx.ModelProto | None = None,
) -> list[Sample]:
    """The example sizes, then `sizes - 1` others, or those of the sweep; then other values.

    Of the others the first has odd heights and widths where the original takes them.

    `parsed`: the ONNX file, by which the cost at other sizes is estimated.
    """
    import torch

    from ...export.buffers import buffers_kept
    from ...export.inputs.odd_sizes import with_odd_sizes

    notes = {} if notes is None else notes
    forward = getattr(model, "forward", model)

    def at(size: Mapping[str, int], number: int) -> Sample:
        values = signature.make(size, number)
        args, kwargs = signature.bind(values, forward)
        label = ", ".join(f"{k}={v}" for k, v in size.items()) or "example"
        names = {id(v): k for k, v in values.items() if hasattr(v, "shape")}
        return Sample(label, tuple(args), dict(kwargs), leaf_names(model, args, kwargs, names))

    def runs(size: Mapping[str, int]) -> bool:
        try:
            with torch.no_grad(), buffers_kept(model):
                sample = at(size, seed)
                model(*sample.args, **sample.kwargs)
        except Exception:  # whatever the user's model raises, and sizes that are too large
            return False
        return True

    others: list[Mapping[str, int]] = list(signature.other_sizes(sizes - 1))
    if others and sweep != "full":
        others[0] = with_odd_sizes(signature, others[0], runs)
    if sweep == "full":
        dims, bytes_at = signature_dims(signature)
        others = swept_sizes(dims, bytes_at, notes)
    elif sweep == "quick":
        dims, _ = signature_dims(signature)
        tried = [signature.example_sizes(), *others]
        others = [*others, *declared_maxima(dims, tried, cheap_sizes(parsed, signature), notes)]
    found = [at(size, seed + i) for i, size in enumerate([signature.example_sizes(), *others])]
    if sweep is not None:
        bounds = {s.name: s.value_range for s in signature.specs if s.value_range is not None}
        found += _values_of(found[0], model, bounds, seed, sweep, notes)
    return found


def from_example(
    example: Sample,
    model: Any,
    graph: onnx.GraphProto,
    sizes: int,
    seed: int,
    sweep: Sweep = None,
    notes: dict[str, None] | None = None,
) -> list[Sample]:
    """The example, and the example at other sizes of the dims that the ONNX model leaves open; then other values.

    Values at other sizes are drawn from the example along the axis, so that indices stay valid and images stay images.
    """
    import torch
    from torch.utils import _pytree

    notes = {} if notes is None else notes
    leaves, spec = _pytree.tree_flatten((example.args, dict(example.kwargs)))
    names = example.names or leaf_names(model, example.args, example.kwargs, {})
    axes = _open_axes(graph, [(n, v) for n, v in zip(names, leaves, strict=True)])
    empty = {symbol for position, axis, symbol in axes if not leaves[position].shape[axis]}
    for symbol in sorted(empty):
        notes[f"{symbol} is 0 in the example, so that no values could be drawn for another size of it"] = None
    axes = [a for a in axes if a[2] not in empty]
    symbols: dict[str, int] = {}
    for position, axis, symbol in axes:
        symbols.setdefault(symbol, leaves[position].shape[axis])
    others = _other_sizes(symbols, sizes - 1)
    if sweep == "full":
        dims, bytes_at = _example_dims(leaves, axes, symbols)
        others = [dict(s) for s in swept_sizes(dims, bytes_at, notes)]
    elif symbols and len(others) < sizes - 1:
        notes[f"{1 + len(others)} sizes were tried, not {sizes}: input specs with ranges give more"] = None
    found = [example]
    for index, size in enumerate(others):
        generator = torch.Generator().manual_seed(seed + index)
        values = list(leaves)
        for position, axis, symbol in axes:
            pick = torch.randint(0, values[position].shape[axis], (size[symbol],), generator=generator)
            values[position] = values[position].index_select(axis, pick)
        for position in dict.fromkeys(p for p, _, _ in axes):
            values[position] = varied(values[position], leaves[position], generator)
        args, kwargs = _pytree.tree_unflatten(values, spec)
        label = ", ".join(f"{k}={v}" for k, v in size.items())
        found.append(Sample(label, args, kwargs, example.names))
    if sweep is not None:
        found += _values_of(example, model, {}, seed, sweep, notes)
    return found


def _values_of(
    base: Sample, model: Any, bounds: Bounds, seed: int, sweep: Sweep, notes: dict[str, None]
) -> list[Sample]:
    names = base.names or leaf_names(model, base.args, base.kwargs, {})
    return other_values(base, names, bounds, seed, sweep == "full", notes)


def _from_folder(
    model: Any,
    graph: onnx.GraphProto,
    folder: str | os.PathLike[str] | None,
    base: Sample | None,
    signature: Signature | None,
) -> list[Sample]:
    """The samples of a folder as calls: of the form of `base`, or by the names of the ONNX model's inputs."""
    if folder is None:
        return []
    outputs = file_outputs(graph)
    specs = file_inputs(graph)
    if base is None:
        return [_by_name(model, s) for s in read_folder(folder, specs, outputs)]
    leaves = [(n, v) for n, v in named_inputs(model, base) if hasattr(v, "dtype")]
    wanted, also = _wanted(leaves, specs, signature)
    return [_like(base, model, s) for s in read_folder(folder, wanted, outputs, also)]


def _wanted(
    leaves: Sequence[tuple[str, Any]], specs: Sequence[Any], signature: Signature | None
) -> tuple[list[Any], dict[str, str]]:
    """What a folder must hold, by the names of the call; and the ONNX model's own names for it."""
    from ...export.result import TensorSpec

    by_name = {s.name: s for s in specs}
    names = [n for n, _ in leaves]
    if not set(by_name) <= set(names):
        matched = dict(zip(names, specs, strict=True)) if len(names) == len(specs) else {}
    else:
        matched = by_name
    declared = {} if signature is None else {s.name: s for s in signature.specs}
    wanted = []
    for name, value in leaves:
        dims: tuple[int | str, ...] = matched[name].dims if name in matched else ()
        if name in declared and declared[name].shape is not None:
            dims = tuple(d if isinstance(d, int) else d.name for d in declared[name].shape or ())
        elif name not in matched:
            dims = (UNNAMED,) * value.dim()
        wanted.append(TensorSpec(name, str(value.dtype).removeprefix("torch."), dims))
    return wanted, {s.name: n for n, s in matched.items() if s.name != n}


def _like(base: Sample, model: Any, stored: FolderSample) -> Sample:
    """The call of `base` with the stored tensors in the place of its own."""
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten((base.args, dict(base.kwargs)))
    names = base.names or leaf_names(model, base.args, base.kwargs, {})
    values = [stored.values.get(n, v) for n, v in zip(names, leaves, strict=True)]
    args, kwargs = _pytree.tree_unflatten(values, spec)
    return Sample(stored.label, args, kwargs, base.names, stored.golden)


def _by_name(model: Any, stored: FolderSample) -> Sample:
    """A call by the names of the forward where they are the stored ones, else in order."""
    names = tuple(stored.values)
    known = parameters(model)
    if set(names) <= set(known) and names != tuple(known[: len(names)]):
        return Sample(stored.label, (), dict(stored.values), names, stored.golden)
    return Sample(stored.label, tuple(stored.values.values()), {}, names, stored.golden)


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
    inputs = file_inputs(graph)
    tensors = [k for k, (_, v) in enumerate(leaves) if hasattr(v, "index_select")]
    by_name = {leaves[k][0]: k for k in tensors}
    if not all(i.name in by_name for i in inputs):
        by_name = (
            {i.name: k for i, k in zip(inputs, tensors, strict=True)} if len(inputs) == len(tensors) else {}
        )
    return [
        (by_name[i.name], axis, dim)
        for i in inputs
        if i.name in by_name and len(i.dims) == leaves[by_name[i.name]][1].dim()
        for axis, dim in enumerate(i.dims)
        if isinstance(dim, str) and dim != UNNAMED
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


def _example_dims(
    leaves: Sequence[Any], axes: Sequence[tuple[int, int, str]], symbols: Mapping[str, int]
) -> tuple[list[OpenDim], Any]:
    """The open dims of an example: any size from 1 on; and what its tensors take at given sizes."""
    spatial = {s for p, axis, s in axes if leaves[p].is_floating_point() and axis >= 2}
    dims = [OpenDim(name, size, spatial=name in spatial) for name, size in symbols.items() if size]
    of_leaf: dict[int, dict[int, str]] = {}
    for position, axis, symbol in axes:
        of_leaf.setdefault(position, {})[axis] = symbol

    def bytes_at(sizes: Mapping[str, int]) -> int:
        at = {**symbols, **sizes}
        return sum(
            v.element_size()
            * math.prod(at[of_leaf[k][a]] if a in of_leaf.get(k, {}) else n for a, n in enumerate(v.shape))
            for k, v in enumerate(leaves)
            if hasattr(v, "element_size")
        )

    return dims, bytes_at
