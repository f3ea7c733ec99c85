"""The traced program: conditions on its sizes weighed, operators that write functionalised, names of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from ..symbolic import translate
from . import checks, findings, naming
from .capture import capture
from .graph.program_copy import copy_program
from .inputs.condition_lines import condition_line
from .inputs.dim_guards import conditions_of, unmet_conditions
from .inputs.narrowing import spatial_narrowing, sufficient_ranges
from .inputs.signature import Signature
from .inputs.working_dtypes import dtype_advice
from .inputs.working_sizes import size_advice
from .source import Source

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .inputs.dim_guards import DimCondition
    from .inputs.input_spec import Symbol

__all__ = ["functionalised", "leaf_names", "size_adviser", "traced_program"]


def traced_program(
    source: Source,
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[str],
) -> tuple[ExportedProgram, Signature, dict[DimCondition, str | None]]:
    """Trace the module, or take the program the file holds; with conditions on sizes that are to be tried, and their lines.

    Spatial dims with no declared range are narrowed to what the traced model takes, with a warning. Raises ExportError
    for other conditions that no trial can settle.
    """
    if source.program is not None:
        return copy_program(source.program), signature, {}
    program, log = capture(source, signature, args, kwargs)
    source.notes += findings.function_notes(log)
    unmet = unmet_conditions(program, signature, source.module)
    ranges: dict[str, Symbol] = {}
    if any(c.is_grave for c in unmet):
        ranges = sufficient_ranges(signature, conditions_of(program, signature, source.module))
        narrowed = spatial_narrowing(signature, ranges)
        if narrowed is not None:
            signature, ranges = narrowed, {}
            source.notes.append(findings.narrowing_note(narrowed, unmet))
            unmet = unmet_conditions(program, signature, source.module)
    names = naming.input_names(program, leaves)
    lines = {c: condition_line(program, signature, names, c.breaks_at) for c in unmet}
    grave = {c: line for c, line in lines.items() if c.is_grave}
    if grave:
        raise ExportError(findings.conditions_text(grave, ranges))
    return program, signature, {c: line for c, line in lines.items() if c.can_be_tried}


def functionalised(program: ExportedProgram, opset: int) -> ExportedProgram:
    """Operators that write into an argument return it instead, where the program has one of ours."""
    calls = list(translate.custom_calls(program))
    if any(graph is not program.graph for graph, _, _, _ in calls):
        # In a branch of torch.cond. torch's decomposition cannot retrace the placeholder of an ONNX node there, so it
        # comes first, and the exporter's own has nothing left to do.
        from .graph.onnx_functions import decompositions

        functional = _decomposed(program, decompositions(opset))
        vars(functional)["run_decompositions"] = lambda *_, **__: functional
        return functional
    if any(op.interface.mutates for _, _, op, _ in calls):
        return _decomposed(program, {})
    return program


def _decomposed(program: ExportedProgram, table: dict[Any, Any]) -> ExportedProgram:
    try:
        decomposed: ExportedProgram = program.run_decompositions(table)
        return decomposed
    except Exception as e:
        lines = str(e).strip().splitlines() or [""]
        raise ExportError(f"torch cannot decompose the traced model: {type(e).__name__}: {lines[0]}") from e


def leaf_names(source: Source, signature: Signature, original: Any) -> list[str]:
    """The names of the arguments in the order in which the traced program takes them."""
    from torch.utils import _pytree as pytree

    names = {spec.name: spec.name for spec in signature.specs}
    return [str(leaf) for leaf in pytree.tree_leaves(source.arrange(*signature.bind(names, original)))]


def size_adviser(source: Source, signature: Signature, original: Any) -> Callable[..., str | None]:
    """What to write in place of inputs that the model fails on: other dtypes, or other sizes."""

    def runs(sizes: Mapping[str, int], at: Signature = signature) -> bool:
        try:
            checks.call_original(original, *source.arrange(*at.bind(at.make(sizes), original)))
        except Exception:  # whatever the user's model raises
            return False
        return True

    def advise(failed: Mapping[str, int] | None = None) -> str | None:
        texts = [note.text for note in source.notes]
        other = (
            dtype_advice(source.module, signature, lambda at: runs({}, at), texts) if failed is None else None
        )
        return other or size_advice(signature, runs, failed)

    return advise
