"""The two sides of a comparison over all samples: the original, and a column for each backend."""

from __future__ import annotations

from collections.abc import Sequence

from .backends import Request, Sample
from .choice import AS_WRITTEN, Choice
from .expectations import Expectation, Expectations
from .inputs.golden import golden_cells
from .inputs.samples import named_inputs
from .matrix import Column, run_backend
from .options import Options
from .original import Original, OriginalFailed
from .record import NOT_CHECKED, BackendRecord, Cell
from .supervision import Journal

__all__ = ["column_of", "run_original", "runs_once"]


def run_original(
    original: Original,
    samples: Sequence[Sample],
    names: Sequence[str],
    into: Expectations,
    journal: Journal,
    subject: str,
) -> list[Cell]:
    """What the original says of each sample, kept; a cell for each that it does not run, or that somebody vouches for."""
    cells = []
    for sample in samples:
        journal.running(sample.label, "pytorch", subject=subject)
        inputs = named_inputs(original.source or original.model, sample)
        try:
            outputs = original.expected(sample)
        except OriginalFailed as error:
            reason = f"the original does not run this sample: {error}"
            cells.append(Cell(sample.label, "*", "pytorch", NOT_CHECKED, reason, subject=subject))
            continue
        into.add(sample, inputs, outputs)
        if sample.golden:
            tensors = [e for e in outputs if len(outputs) == len(names) or not e.number]
            cells += golden_cells(sample, names, [e.array for e in tensors], tensors, "pytorch")
    for cell in cells:
        journal.cell(cell)
    return cells


def column_of(
    choice: Choice,
    request: Request,
    expectations: Expectations,
    options: Options,
    journal: Journal,
    subject: str,
) -> Column:
    """What a backend comes to; of one that is skipped, why."""
    if choice.skipped:
        column = Column(BackendRecord(choice.kind.name, choice.required, choice.skipped))
    else:
        column = run_backend(
            choice.kind,
            request,
            _for(choice, expectations, options),
            required=choice.required,
            modes=options.modes,
            journal=journal,
            subject=subject,
        )
    journal.backend(column.record)
    return column


def _for(choice: Choice, expectations: Expectations, options: Options) -> list[Expectation]:
    """What the optimiser hides it hides at any size: once is enough, but in a full sweep."""
    every = expectations.all()
    if not runs_once(choice, options):
        return every
    # an empty sample shows nothing
    return [e for e in every if all(o.array.size for o in e.outputs)][:1] or every[:1]


def runs_once(choice: Choice, options: Options) -> bool:
    """Whether a backend runs on the first sample only."""
    return choice.kind.name == AS_WRITTEN and options.sweep != "full"
