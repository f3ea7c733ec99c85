"""The steps of a diagnosis: what is known before a run, and what is tried after a failure, cheap before costly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..backends import Sample
from ..inputs.call_names import leaf_names
from ..inputs.golden import golden_expected
from ..original import Expected, Original
from ..record import Finding
from . import (
    eval_mode,
    float16_overflow,
    impure_original,
    integer_overflow,
    nondeterminism,
    output_forms,
    preprocessing,
    randomness,
    training_mode,
    weights,
)
from .float16_overflow import FileValues
from .residual import Elsewhere, failing, nowhere, scattered

if TYPE_CHECKING:
    import onnx

__all__ = ["before", "explain", "explain_golden", "of_the_original"]

Array = npt.NDArray[Any]


def before(
    model: Any,
    graph: onnx.GraphProto,
    functions: Iterable[onnx.FunctionProto] = (),
    training: Sequence[str] = (),
) -> list[Finding]:
    """What stands in the file and the model: training mode and random numbers. Nothing is run.

    Args:
        model: the original, in eval mode; `training` has the modules that were not, as it was given.
        functions: the model-local functions of the file.
    """
    functions = list(functions)
    return [
        *training_mode.in_original(model, training),
        *training_mode.in_file(graph, functions),
        *randomness.in_file(graph, functions),
    ]


def of_the_original(
    original: Original, expectations: Iterable[tuple[Sample, Sequence[Expected]]]
) -> list[Finding]:
    """What running the original has shown: state, and that it goes by places in memory. Runs it again where it may."""
    found: list[Finding] = []
    for k, (sample, outputs) in enumerate(expectations):
        if k == 0:
            found += impure_original.in_state(original, sample, outputs)
        found += impure_original.in_layout(original, sample, outputs)
    return found


def explain(
    original: Original,
    sample: Sample,
    got: Sequence[Array],
    expected: Sequence[Expected],
    graph: onnx.GraphProto,
    *,
    again: Sequence[Array] | None = None,
    backend: str = "the candidate",
    file_values: FileValues | None = None,
    elsewhere: Elsewhere = nowhere,
    failed: Collection[str] = (),
) -> list[Finding]:
    """What the difference on a sample may come from. A few runs of the original, dozens at most; of the candidate none.

    Args:
        got: the candidate's outputs, in the order of `expected`.
        again: its outputs of a second run, where there was one.
        file_values: gives values inside the file by name, where it can be run with them exposed.
        failed: names of the outputs that are known to have failed; empty: they are compared once more.
        elsewhere: what both sides give on other samples; a form, a change of an input and a weight must hold there too.
    """
    got, expected = list(got), list(expected)
    if len(got) != len(expected):
        return []
    names = _output_names(graph, len(expected))
    found: list[Finding] = []
    traced = original.source or original.model
    if any(e.unsteady for e in expected) and training_mode.written_down(traced):
        return []  # `before` has told it
    if any(e.unsteady for e in expected):
        found += eval_mode.in_original(lambda: original.arrays(sample), sample, random=True)
    if again is not None:
        found += nondeterminism.differs_from_itself(got, again, names, backend, sample.label)
    if found:  # a side that differs from itself: every other explanation would be chance
        told = training_mode.drops(graph) or any(True for _ in randomness.in_file(graph))
        return [f for f in found if f.kind != nondeterminism.KIND] if told else found
    wrong = [(k, g, e) for k, (g, e) in enumerate(zip(got, expected, strict=True)) if names[k] in failed]
    wrong = wrong or list(failing(got, expected))
    found += integer_overflow.explain(got, expected, names, wrong)
    found += float16_overflow.explain(original, sample, got, expected, graph, names, wrong, file_values)
    if found or all(scattered(g, e.array) for _, g, e in wrong):
        return found  # what follows is about whole outputs
    found += eval_mode.in_original(lambda: original.arrays(sample), sample, random=False)
    if found and any(f.kind == training_mode.KIND for f in training_mode.in_file(graph)):
        found = []  # the file takes the statistics of the batch, too
    found += output_forms.explain(got, expected, names, elsewhere, wrong)
    if not found:
        inputs = sample.names or leaf_names(original.source or original.model, sample.args, sample.kwargs, {})
        found += preprocessing.explain(original, sample, got, expected, names, inputs, elsewhere, wrong)
    if not found:
        found += weights.explain(original, sample, got, expected, names, elsewhere, wrong)
    return found


def explain_golden(
    original: Original, sample: Sample, expected: Sequence[Expected], graph: onnx.GraphProto
) -> list[Finding]:
    """Why the original differs from the golden outputs of a sample: what the inputs would have to be instead."""
    names = _output_names(graph, len(expected))
    chosen = [k for k, name in enumerate(names) if name in sample.golden]
    got = [np.asarray(e.array) for e in expected]
    wanted = list(expected)
    for k in chosen:
        golden = golden_expected(sample.golden[names[k]], expected[k])
        # the golden value plays the candidate: which change of the inputs makes the original give it?
        got[k] = golden.array
    inputs = sample.names or leaf_names(original.source or original.model, sample.args, sample.kwargs, {})
    return [
        Finding(
            f.kind,
            f.severity,
            f"golden outputs of {sample.label}: {f.text}",
            where=f.where,
            advice="the stored inputs were prepared in another way than the expected outputs' were: correct the preprocessing",
        )
        for f in preprocessing.explain(original, sample, got, wanted, names, inputs)
    ]


def _output_names(graph: onnx.GraphProto, count: int) -> list[str]:
    names = [o.name for o in graph.output]
    return names if len(names) == count else [f"output {k}" for k in range(count)]
