"""A file in another floating dtype than its original: float16 made from a float32 checkpoint, for one.

Both get the same numbers: the inputs in the file's dtypes. The original computes with them in its own dtype, and
what the file's dtype costs is measured on a copy of the original cast to it.

The dtype is what the file computes in, not what its inputs and outputs have: a model that is cast for an engine keeps
these float32. `computed_types` says what counts; of an engine its sidecar says what the model was cast to. A model
without weights has the dtype of the inputs that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..export.buffers import buffers_kept
from ..symbolic import dtypes
from .backends import Sample
from .backends.engine_checks import engine_record
from .backends.torch import cast, described, outputs_of
from .computed_types import ComputedIn, computed_in
from .inputs.samples import named_inputs
from .narrow_original import NarrowOriginal, changed_copy
from .original import Original, cloned

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = ["in_the_engines_precision", "in_the_files_precision"]

_CAST_TO = {"fp16": "float16", "bf16": "bfloat16"}  # as a sidecar says it
_NARROWEST = 2  # bytes of a number of these


class _InDtype:
    """The model, called with its floating inputs cast. Its buffers stay; `written` has the names of those it has written."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._model, self._dtype = model, dtype
        self.written: set[str] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_map(lambda v: cast(v, self._dtype), (args, kwargs))
        with buffers_kept(self._model) as written:
            result = cloned(self._model(*args, **kwargs))
        self.written.update(written)
        return result


def in_the_files_precision(
    original: Original, model: onnx.ModelProto, samples: list[Sample]
) -> tuple[Original, list[Sample]]:
    """Both as they are where original and file agree on the dtype; else as this module says, with notes.

    `model`: the file, without its external data.
    """
    graph = model.graph
    own, theirs = _own_dtype(original.model, samples), _dtype_of(graph)
    if own is None or theirs is None:
        return original, samples
    if own == theirs[0] and own == theirs[1]:
        return _narrow_inside(original, own, model, samples), samples
    retyped = [_retyped(original.model, graph, s) for s in samples]
    # what has no weights takes any dtype, and agrees with all of them: as it was given it has to
    stored = _stored_dtypes(original.model)
    as_given = stored or _dtypes_of(samples) == _dtypes_of(retyped)
    if as_given and _agrees(
        original.model, graph, retyped[0]
    ):  # its dtypes are meant so: x.float() in the model
        return _narrow_inside(original, own, model, retyped), retyped
    deployed = theirs[0] if theirs[0] != own else theirs[1]
    if deployed == own:
        return original, samples
    if (
        not stored and deployed.itemsize >= own.itemsize
    ):  # nothing but the inputs tells a dtype: it fails by that
        return original, samples
    mine, file = dtypes.name_of(own), dtypes.name_of(deployed)
    note = (
        f"the original is {mine}, the file {file}: both get inputs in the file's dtypes, the original computes in "
        f"{mine}, and the outputs are judged as {file}"
    )
    if deployed.itemsize > own.itemsize:
        note += f". The file is the wider one: to compare like with like, cast the original to {file}"
    whole = _apart(original, own, deployed, note)
    if original.atol is None and original.rtol is None:
        narrow, why = _cast_copy(original.model, deployed, retyped[0])
        if narrow is None:
            whole.unknown = f"the original does not run in {file}, so what {file} costs it is unknown: {why}"
        elif deployed.itemsize < own.itemsize:
            whole.model = NarrowOriginal(original.model, own, narrow, deployed, whole.notes)
        else:
            whole.model = narrow
    return whole, retyped


def in_the_engines_precision(
    original: Original, model: onnx.ModelProto, samples: list[Sample], engine: Path | None
) -> Original | None:
    """The original as the outputs of an engine are judged, where its sidecar says that the model was cast for it.

    None where there is no such engine, or where the file has that dtype already. `original`: as it was given.
    """
    record = engine_record(engine) if engine is not None and engine.is_file() else None
    name = _CAST_TO.get(record.precision) if record is not None else None
    own = _own_dtype(original.model, samples)
    if engine is None or record is None or name is None or own is None:
        return None
    dtype, theirs = dtypes.torch_dtype(name), _dtype_of(model.graph)
    if dtype.itemsize >= own.itemsize or (theirs is not None and theirs[0] != own):
        return None
    words = f"its sidecar says that the model was cast to {name} for it"
    return _inner(original, own, dtype, samples, f"the engine {engine.name}", words)


def _inside(model: onnx.ModelProto, own: torch.dtype) -> ComputedIn | None:
    """What the file has in a narrower dtype than the original's."""
    if own.itemsize <= _NARROWEST:
        return None
    found = computed_in(model)
    return None if found is None or dtypes.torch_dtype(found.dtype).itemsize >= own.itemsize else found


def _narrow_inside(
    original: Original, own: torch.dtype, model: onnx.ModelProto, samples: list[Sample]
) -> Original:
    """The original as the outputs of a file are judged whose inputs and outputs are the original's."""
    inside = _inside(model, own)
    if inside is None:
        return original
    if inside.most:
        return _inner(original, own, dtypes.torch_dtype(inside.dtype), samples, "the file", inside.words)
    mine = dtypes.name_of(own)
    note = (
        f"of the file, {inside.words}. That is not most of both, so it is taken for a {mine} file and its outputs are judged "
        f"as {mine}; where {inside.dtype} is meant, give the tolerance that you accept (--atol, --rtol)"
    )
    return replace(original, notes={**original.notes, note: None})


def _inner(
    original: Original, own: torch.dtype, dtype: torch.dtype, samples: list[Sample], what: str, words: str
) -> Original:
    """The original beside something that computes in `dtype` between inputs and outputs of its `own`."""
    name = dtypes.name_of(dtype)
    derived = original.atol is None and original.rtol is None
    judged = f"are rounded to {name} and judged as {name}" if derived else "are held against your tolerance"
    note = f"{what} computes in {name} ({words}): its outputs {judged}"
    whole = _apart(original, own, dtype, note)
    if derived and samples:
        narrow, _ = _cast_copy(original.model, dtype, samples[0])
        whole.model = NarrowOriginal(original.model, own, narrow, dtype, whole.notes)
    return whole


def _apart(original: Original, own: torch.dtype, deployed: torch.dtype, note: str) -> Original:
    given = original.model
    notes = {**original.notes, note: None}
    # what `replace` would share with the original is of its own dtype
    whole = replace(
        original,
        notes=notes,
        source=given,
        own=own,
        deployed=deployed,
        apart=True,
        written=set(),
        _wide=None,
    )
    whole.model = _InDtype(given, own)
    return whole


def _own_dtype(model: Any, samples: Sequence[Sample]) -> torch.dtype | None:
    """The one floating dtype of parameters and buffers, of the inputs where there are none; None where there are several."""
    found = _stored_dtypes(model) or set(_dtypes_of(samples))
    return found.pop() if len(found) == 1 else None


def _stored_dtypes(model: Any) -> set[torch.dtype]:
    """The floating dtypes of parameters and buffers."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return set()
    return {t.dtype for t in (*model.parameters(), *model.buffers()) if t.is_floating_point()}


def _dtypes_of(samples: Sequence[Sample]) -> list[torch.dtype]:
    """Of the floating inputs, in order."""
    import torch
    from torch.utils import _pytree

    leaves = [v for s in samples for v in _pytree.tree_leaves((s.args, dict(s.kwargs)))]
    return [v.dtype for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point()]


def _dtype_of(graph: onnx.GraphProto) -> tuple[torch.dtype, torch.dtype] | None:
    """The narrowest floating dtype of inputs and outputs, and the one that most weights have."""
    values = [d for v in (*graph.input, *graph.output) if (d := _floating(v.type.tensor_type.elem_type))]
    weights: dict[Any, int] = {}
    for tensor in graph.initializer:
        if dtype := _floating(tensor.data_type):
            count = 1
            for size in tensor.dims:
                count *= size
            weights[dtype] = weights.get(dtype, 0) + count
    stored = max(weights, key=lambda d: weights[d], default=None)
    shown = min(values, key=lambda d: d.itemsize, default=stored)
    if shown is None:
        return None
    return shown, stored or shown


def _floating(number: int) -> Any:
    try:
        dtype = dtypes.torch_dtype(number)
    except KeyError:
        return None
    return dtype if dtype.is_floating_point and dtype.itemsize > 1 else None


def _retyped(model: Any, graph: onnx.GraphProto, sample: Sample) -> Sample:
    """The sample with its floating tensors in the dtypes of the file's inputs."""
    from torch.utils import _pytree

    stored = {t.name for t in graph.initializer}
    wanted = {i.name: _floating(i.type.tensor_type.elem_type) for i in graph.input if i.name not in stored}
    leaves, spec = _pytree.tree_flatten((sample.args, dict(sample.kwargs)))
    tensors = [(n, v) for n, v in named_inputs(model, sample) if hasattr(v, "is_floating_point")]
    if all(n in wanted for n, _ in tensors):
        targets = [wanted[n] for n, _ in tensors]
    elif len(tensors) == len(wanted):
        targets = list(wanted.values())
    else:
        return sample
    by_id = {id(v): t for (_, v), t in zip(tensors, targets, strict=True) if t is not None}
    args, kwargs = _pytree.tree_unflatten(
        [cast(v, by_id[id(v)]) if id(v) in by_id else v for v in leaves], spec
    )
    names = sample.names or tuple(n for n, _ in named_inputs(model, sample))
    return replace(sample, args=args, kwargs=kwargs, names=names if len(names) == len(leaves) else None)


def _agrees(model: Any, graph: onnx.GraphProto, sample: Sample) -> bool:
    """Whether the original runs on the file's own dtypes and returns them too."""
    import torch

    try:
        results = outputs_of(model(*cloned(sample.args), **cloned(dict(sample.kwargs))))
    except Exception:  # whatever torch raises where dtypes do not fit
        return False
    got = [r.dtype for r in results if isinstance(r, torch.Tensor)]
    want: Sequence[Any] = [o.type.tensor_type.elem_type for o in graph.output]
    return len(got) == len(want) and all(
        not g.is_floating_point or dtypes.onnx_number(g) == w for g, w in zip(got, want, strict=True)
    )


def _cast_copy(model: Any, dtype: torch.dtype, sample: Sample) -> tuple[Any, str]:
    """The original cast to `dtype`, tried on a sample; or None, and why."""
    try:
        narrow = _InDtype(changed_copy(model, lambda t: cast(t, dtype)), dtype)
        narrow(*cloned(sample.args), **cloned(dict(sample.kwargs)))
    except Exception as error:
        return None, described(error)
    return narrow, ""
