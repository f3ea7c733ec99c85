"""Which reference the values of a file can be held against: the original where they can be matched, else the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from ...ort_ops.arrays import to_array
from ..backends import Sample
from ..backends.torch import arrays_of, cast, described
from ..computed_types import element_types, has_narrow
from ..inputs.samples import named_inputs
from ..narrow_original import NarrowOriginal, as_the_original_takes_it
from ..original import Expected, Original, cloned
from ..parity.compare import compare_output
from . import wording
from .dataflow import Dataflow
from .file_reference import FileReference
from .interpreter import Interpreter
from .judging import expected_value, judged
from .matching import matched_by_name, matched_by_value, outputs_by_position
from .original_reference import OriginalReference
from .reference import Reference, Unmappable
from .runs import Refused, Runs
from .submodel import Workshop
from .traced_graph import TracedGraph, deployed_module, traces

__all__ = ["Frozen", "reference_for"]

Array = npt.NDArray[Any]

# Of the original's values that the failing output needs, so many must be found in the file.
_ENOUGH = 0.25


@dataclass(frozen=True, slots=True)
class Frozen:
    """Tracing the original at the inputs the file records gives another function than the original is here."""

    text: str
    words: str


@dataclass(frozen=True, slots=True)
class _Attempt:
    run: Interpreter
    pairs: Mapping[str, Any]
    at: str
    share: float


def reference_for(
    original: Original,
    workshop: Workshop,
    runs: Runs,
    sample: Sample,
    feeds: Mapping[str, Array],
    expected: Sequence[Expected],
    goal: set[str],
) -> Reference | Frozen | Unmappable:
    """The reference for one sample.

    Args:
        runs: one may be spent, to match values of files whose names say nothing.
        feeds: the sample under the names of the file's inputs.
        expected: the original's outputs.
        goal: the values of the file that the failing outputs need.
    """
    found = _from_original(original, workshop, sample, expected, goal)
    if isinstance(found, Frozen):
        return found
    if isinstance(found, _Attempt):
        attempt, how = found, "matched by name"
        if attempt.share < _ENOUGH:
            attempt, how = _by_value(attempt, workshop.flow, runs, feeds, goal), "matched by value"
        if attempt.share >= _ENOUGH:
            words = f"the original, traced at {attempt.at}; {len(attempt.pairs)} values {how}"
            model = workshop.flow.model
            types = element_types(model) if has_narrow(model) else {}
            reference = OriginalReference(attempt.run, attempt.pairs, words, types)
            reference.values.update({n: as_the_original_takes_it(original, a) for n, a in feeds.items()})
            return reference
        found = Unmappable("its values cannot be matched to the original's")
    try:
        return FileReference(workshop, feeds, [n for n in workshop.flow.made_by if n in goal], str(found))
    except Unmappable as error:
        return Unmappable(wording.no_reference(str(found), str(error)))


def _from_original(
    original: Original, workshop: Workshop, sample: Sample, expected: Sequence[Expected], goal: set[str]
) -> _Attempt | Frozen | Unmappable:
    best: _Attempt | None = None
    why: Unmappable | None = None
    differing: list[str] = []
    try:
        module = deployed_module(original)
    except Unmappable as error:
        return error
    if isinstance(original.model, NarrowOriginal) and original.model.keeps_range:
        return Unmappable("cast to the file's dtype, the original overflows or does not run")
    cast_inputs = original.deployed if original.source is not None else None
    if cast_inputs is not None and not (original.atol is None and original.rtol is None):
        try:
            expected = _of_the_copy(module, sample, cast_inputs, expected)
        except Exception as error:  # whatever torch raises where dtypes do not fit
            return Unmappable(f"the original does not run in the file's dtype: {described(error)}")
    for traced in traces(module, sample, workshop.flow.model, cast_inputs):
        if isinstance(traced, Unmappable):
            why = why or traced
            continue
        try:
            arguments = _arguments(traced, original, sample)
            if cast_inputs is not None:
                arguments = [cast(value, cast_inputs) for value in arguments]
            run = Interpreter(traced, arguments)
        except Exception as error:  # torch raises of every kind here
            why = why or Unmappable(f"the traced original does not run this sample: {described(error)}")
            continue
        if not _returns(run, expected):
            differing.append(traced.at)
            continue
        if differing:
            return Frozen(wording.frozen(differing[0], traced.at), f"the original, traced at {differing[0]}")
        pairs = matched_by_name(run, workshop.flow)
        attempt = _Attempt(run, pairs, traced.at, _share(run, workshop.flow, pairs, goal))
        if best is None or attempt.share > best.share:
            best = attempt
        if attempt.share >= _ENOUGH:
            break
    if best is not None:
        return best
    if differing:
        return Frozen(wording.frozen(differing[0], ""), f"the original, traced at {differing[0]}")
    return why or Unmappable("the original cannot be traced")


def _of_the_copy(module: Any, sample: Sample, dtype: Any, expected: Sequence[Expected]) -> list[Expected]:
    """What the copy in the file's dtype returns: the user's tolerance is for the original as it was given."""
    from torch.utils import _pytree

    args, kwargs = _pytree.tree_map(
        lambda v: cast(v, dtype), (cloned(sample.args), cloned(dict(sample.kwargs)))
    )
    found = arrays_of(module(*args, **kwargs))
    return [replace(expected_value(a, None), number=e.number) for a, e in zip(found, expected, strict=True)]


def _arguments(traced: TracedGraph, original: Original, sample: Sample) -> list[Any]:
    """The sample's values in the order of the traced program's inputs."""
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    named = dict(named_inputs(original.source or original.model, sample))
    if len(leaves) == len(traced.leaves):
        return [named.get(name, leaf) for name, leaf in zip(traced.leaves, leaves, strict=True)]
    return [named.get(name) for name in traced.leaves]


def _returns(run: Interpreter, expected: Sequence[Expected]) -> bool:
    """Whether the traced original returns on the sample what the original does, but for rounding."""
    found, wide = arrays_of(run.returned()), None
    for candidates in (list(expected), [e for e in expected if not e.number]):
        if len(found) != len(candidates):
            continue
        for k, (array, one) in enumerate(zip(found, candidates, strict=True)):
            if compare_output("", "", "", array, one).verdict != "failed":
                continue
            # the user's tolerance may be narrower than what fast paths of torch differ by
            wide = wide or run.wide([r for r in run.results if run.is_tensor(r)], ())
            exact = wide.get(run.results[k]) if run.is_tensor(run.results[k]) else None
            if judged("", one.array, array, None if exact is None else to_array(exact)).verdict == "failed":
                return False
        return True
    return False


def _share(run: Interpreter, flow: Dataflow, pairs: Mapping[str, Any], goal: set[str]) -> float:
    """The part of the original's own values behind the outputs that are matched; the outputs do not count."""
    outputs = {r for r in run.results if hasattr(r, "all_input_nodes")}
    needed = {n for result in outputs for n in run.needs(result)} - outputs
    variable = run.behind_inputs()
    steps = [n for n in needed if n in variable and n.op == "call_function" and run.is_tensor(n)]
    matched = {node for name, node in pairs.items() if name in goal}
    return sum(n in matched for n in steps) / len(steps) if steps else 1.0


def _by_value(
    attempt: _Attempt, flow: Dataflow, runs: Runs, feeds: Mapping[str, Array], goal: set[str]
) -> _Attempt:
    names = [name for name in flow.made_by if name in goal and name not in flow.constant]
    try:
        (values,) = runs.parts([flow.whole(names)], feeds)
    except Refused:
        return attempt
    pairs = matched_by_value(attempt.run, flow, {n: v for n, v in values.items() if n in flow.made_by})
    pairs |= outputs_by_position(attempt.run, flow)
    return _Attempt(attempt.run, pairs, attempt.at, _share(attempt.run, flow, pairs, goal))
