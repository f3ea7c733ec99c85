"""What the decomposition of a traced model assumed of its sizes, weighed as the conditions of the trace are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ExportError
from . import findings
from .inputs.narrowing import spatial_narrowing, sufficient_ranges

if TYPE_CHECKING:
    from .graph.declared_sizes import DeclaredSizes
    from .inputs.dim_guards import DimCondition
    from .inputs.signature import Signature
    from .result import Note

__all__ = ["decomposed_sizes"]


def decomposed_sizes(
    declared: DeclaredSizes | None, signature: Signature, notes: list[Note]
) -> tuple[Signature, dict[DimCondition, str | None]]:
    """The signature, and the conditions that running the file can settle, each with the user's line.

    Spatial dims with no declared range are narrowed a little, as for the conditions of a trace. Raises ExportError for
    the others that some declared size breaks: the file would be wrong there.
    """
    assumed = declared.assumed() if declared is not None else {}
    grave = {c: line for c, line in assumed.items() if c.is_grave}
    if grave and declared is not None:
        ranges = sufficient_ranges(signature, declared.texts())
        narrowed = spatial_narrowing(signature, ranges)
        if narrowed is None:
            raise ExportError(findings.conditions_text(grave, ranges))
        notes.append(findings.narrowing_note(narrowed, list(grave)))
        signature = narrowed
    return signature, {c: line for c, line in assumed.items() if c.can_be_tried}
