"""Does the reference go by the values of its arguments, or by their places in memory?

A kernel that takes rows for dense is right on dense tensors, as runtimes hand them over, and silently wrong in PyTorch on a
transposed or a sliced one. `validation.diagnosis.impure_original` asks the same of whole models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..memory_layouts import copied, is_dense, laid_out
from .error_budget import faults
from .sample_runs import SampleRun, same_values

if TYPE_CHECKING:
    import torch

__all__ = ["layout_fault"]

_BY_PLACE = "it goes by places in memory and not by values"
_AS_IF_DENSE = "it reads strided inputs as if they were dense"
_TRIED = {"transposed storage": "transposed in memory", "strided": "with gaps in memory"}


def layout_fault(run: SampleRun, others: bool) -> str | None:
    """What the reference gives for the same numbers at other places in memory, where it is something else.

    `others`: hold it against layouts that the sample does not have, too. A reference that refuses those (it raises) is sound.
    """
    dense = run.changed(lambda t: t.contiguous())
    try:
        results = dense.reference()
    except Exception as e:
        return f"{_BY_PLACE}: it raises {type(e).__name__} where the same numbers lie one behind another in memory"
    for name, other in _layouts(run, dense, others):
        try:
            got = other.reference()
        except Exception:  # a refusal; of the sample itself the caller has told it
            continue
        if not same_values(got, results) and (fault := _beyond_rounding(dense, got, results)):
            return (
                f"{_cause(other, got)}: for the same numbers, {name}, {fault}. Use the strides of its inputs, or "
                "call .contiguous() on them first"
            )
    return None


def _layouts(run: SampleRun, dense: SampleRun, others: bool) -> Iterator[tuple[str, SampleRun]]:
    if not all(is_dense(t) for t in run.sample.tensors()):
        yield "strided as in the sample", run
    if others:
        for layout, words in _TRIED.items():
            yield words, dense.changed(lambda t, layout=layout: _or_as_it_is(laid_out(t, layout), t))  # type: ignore[misc]


def _or_as_it_is(other: torch.Tensor | None, t: torch.Tensor) -> torch.Tensor:
    return t if other is None else other


def _beyond_rounding(
    dense: SampleRun, got: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> str | None:
    """The first output that is farther from the dense one than a kernel may be: sums in another order are no fault."""
    if len(got) != len(results):
        return f"it returns {len(got)} tensors, for dense ones {len(results)}"
    exact = _in_float64(dense, results)
    for k, fault in enumerate(faults(dense, got, results, exact)):
        # whole numbers that float64 decides otherwise may be near a tie
        if fault and (results[k].is_floating_point() or same_values(results[k : k + 1], exact[k : k + 1])):
            return f"output {k} has {fault}" if results[k].is_floating_point() else f"of output {k}, {fault}"
    return None


def _in_float64(dense: SampleRun, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The reference in float64; its own results where it has none, or reads the bytes as those of another dtype."""
    try:
        return dense.exact()
    except Exception:  # whatever the user's reference raises
        return [t.double() if t.is_floating_point() else t for t in results]


def _cause(other: SampleRun, got: Sequence[torch.Tensor]) -> str:
    """What the reference does, as far as it shows: read as if it were dense, does the same memory give the same?"""
    import torch

    def read_as_dense(t: torch.Tensor) -> torch.Tensor:
        return copied(t).as_strided(t.shape, torch.empty(t.shape, device="meta").stride())

    try:
        as_if = other.changed(read_as_dense).reference()
    except Exception:  # an expanded tensor has less memory than that
        return _BY_PLACE
    return _AS_IF_DENSE if same_values(got, as_if) else _BY_PLACE
