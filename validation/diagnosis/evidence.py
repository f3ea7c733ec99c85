"""What the samples show, and what they do not: a pass says nothing of an input that no output depends on.

All of it is said and nothing fails by it: a constant output may be meant, and an input may be there for training only.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ..inputs.call_names import leaf_names
from ..inputs.distributions import drawn
from ..record import PASSED, Finding
from .residual import same_bytes

if TYPE_CHECKING:
    import torch

    from ..backends import Sample
    from ..expectations import Expectation
    from ..original import Original
    from ..record import Cell

__all__ = ["constant_outputs", "one_sample", "without_effect"]

Array = npt.NDArray[Any]

KIND = "evidence"
MOST_INPUTS = 16
TRIES = 3  # other values of one input
FIRST = 4096  # elements that tell most arrays apart


def without_effect(original: Original, expectations: Sequence[Expectation]) -> Iterator[Finding]:
    """A note for each input of which other values change no output. At most three runs of the original for each input,
    none where two samples that were run already show an effect."""
    from torch.utils import _pytree

    usable = [e for e in expectations if e.outputs and all(o.array.size for o in e.outputs)]
    if not usable or any(o.unsteady for e in usable for o in e.outputs):
        return
    base = min(usable, key=lambda e: sum(o.array.size for o in e.outputs))
    leaves, spec = _pytree.tree_flatten((base.sample.args, dict(base.sample.kwargs)))
    names = base.sample.names or leaf_names(
        original.source or original.model, base.sample.args, base.sample.kwargs, {}
    )
    tensors = [k for k, v in enumerate(leaves) if hasattr(v, "is_floating_point")]
    if len(tensors) == 1 and _samples_differ(usable):
        return
    for k in tensors[:MOST_INPUTS]:
        tried = 0
        for other in _other_values(leaves[k], names[k], [_leaf(e.sample, k) for e in usable]):
            args, kwargs = _pytree.tree_unflatten([*leaves[:k], other, *leaves[k + 1 :]], spec)
            try:
                arrays = original.arrays(replace(base.sample, args=args, kwargs=kwargs))
            except Exception:  # values that the model does not take show nothing
                continue
            tried += 1
            if len(arrays) != len(base.outputs) or not all(
                same_bytes(a, o.array) for a, o in zip(arrays, base.outputs, strict=True)
            ):
                tried = 0
                break
        if tried:
            yield Finding(
                KIND,
                "note",
                f"no output of the original changed when {names[k]} was given other values ({tried} tried, on "
                f"{base.sample.label}): a file that ignores it, or reads it wrongly, passes as well",
                where=names[k],
                advice="give samples in which this input matters, or leave it out of the model",
            )


def constant_outputs(names: Sequence[str], expectations: Sequence[Expectation]) -> Iterator[Finding]:
    """A note for each output that has one value throughout, or is the same on all samples of one shape."""
    counts = {len(e.outputs) for e in expectations}
    if len(counts) != 1:
        return
    for k in range(counts.pop()):
        name = names[k] if len(names) == len(expectations[0].outputs) else f"output {k}"
        there = [e for e in expectations if e.outputs[k].array.size]
        if not there or any(e.outputs[k].unsteady for e in there):
            continue
        arrays = [e.outputs[k].array for e in there]
        text = ""
        value = arrays[0].reshape(-1)[0]
        if sum(a.size for a in arrays) > 1 and all(_is_throughout(a, value) for a in arrays):
            text = f"{name} is {value} in every element of every sample"
        elif _same_on_all(there, k):
            text = f"{name} is the same on all samples of one shape, whatever their inputs are"
        if text:
            yield Finding(
                KIND,
                "note",
                f"{text}: a file that holds it as a constant passes as well",
                where=name,
                advice="if it is not meant to be constant, give samples on which it is not",
            )


def one_sample(cells: Iterable[Cell]) -> Iterator[Finding]:
    """A note where outputs passed on a single sample: one comparison is little evidence."""
    passes = Counter(
        (c.backend, c.output)
        for c in cells
        if c.verdict == PASSED and c.judged_as != "golden" and (c.metrics is None or c.metrics.compared)
    )
    by_backend: dict[str, list[str]] = {}
    for (backend, output), count in passes.items():
        if count == 1:
            by_backend.setdefault(backend, []).append(output)
    for backend, outputs in by_backend.items():
        shown = ", ".join(outputs[:5]) + (f" and {len(outputs) - 5} more" if len(outputs) > 5 else "")
        yield Finding(
            KIND,
            "note",
            f"one sample: {shown} passed a single comparison on {backend}",
            where=backend,
            advice="try more: `--sweep quick` has other values, `--inputs DIR` takes real samples",
        )


def _leaf(sample: Sample, k: int) -> Any:
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    return leaves[k] if k < len(leaves) else None


def _samples_differ(expectations: Sequence[Expectation]) -> bool:
    """Whether two samples whose inputs have one shape have different outputs: where there is one input, it had an effect."""
    first: dict[Any, Expectation] = {}
    for e in expectations:
        shapes = tuple(tuple(v.shape) for _, v in e.inputs if hasattr(v, "shape"))
        known = first.setdefault(shapes, e)
        if known is not e and any(
            not same_bytes(a.array, b.array) for a, b in zip(known.outputs, e.outputs, strict=False)
        ):
            return True
    return False


def _other_values(value: torch.Tensor, name: str, seen: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Values of the input's own domain: of other samples, in another order, within its extremes. Made when asked for."""
    return itertools.islice((v for v in _made(value, name, seen) if not _equal(v, value)), TRIES)


def _made(value: torch.Tensor, name: str, seen: Sequence[Any]) -> Iterator[torch.Tensor]:
    import torch

    alike = [v for v in seen if isinstance(v, torch.Tensor) and v.dtype == value.dtype]
    yield from (v for v in alike if v.shape == value.shape)
    if value.dtype == torch.bool:
        yield ~value
    yield value.flatten().flip(0).reshape(value.shape)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    if value.is_floating_point():
        made = (drawn(value, kind, generator) for kind in ("uniform", "normal"))
        yield from (v for v in made if v is not None)
    elif value.numel() and not value.is_complex():
        flat = torch.cat([v.reshape(-1) for v in alike[:8]])
        pick = torch.randint(0, len(flat), (value.numel(),), generator=generator)
        yield flat[pick].reshape(value.shape)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    return bool(torch.equal(a, b))


def _is_throughout(array: Array, value: Any) -> bool:
    flat = array.reshape(-1)
    return bool((flat[:FIRST] == value).all()) and bool((flat == value).all())


def _same_on_all(expectations: Sequence[Expectation], k: int) -> bool:
    """Of every shape with several samples, the output is the same, and the inputs of two of them are not."""
    groups: dict[tuple[int, ...], list[Expectation]] = {}
    for e in expectations:
        groups.setdefault(e.outputs[k].array.shape, []).append(e)
    several = [g for g in groups.values() if len(g) > 1]
    varied = False
    for first, *rest in several:
        for e in rest:
            if not same_bytes(first.outputs[k].array, e.outputs[k].array):
                return False
            varied = varied or _inputs_differ(first, e)
    return varied


def _inputs_differ(a: Expectation, b: Expectation) -> bool:
    pairs = zip(a.inputs, b.inputs, strict=False)
    return any(
        hasattr(x, "shape") and hasattr(y, "shape") and (x.shape != y.shape or not _equal(x, y))
        for (_, x), (_, y) in pairs
    )
