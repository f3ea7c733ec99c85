"""The exported file run against the original, at sizes that were not traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ExportError, ModelFileError, NotCheckedError
from ..ort_ops.engine import Engine
from . import checks, findings
from .census import Census
from .inputs.odd_sizes import with_odd_sizes
from .inputs.signature import Signature
from .result import Note

if TYPE_CHECKING:
    import onnx_ir as ir

    from .inputs.dim_guards import DimCondition

__all__ = ["try_out"]


def try_out(
    path: Path,
    weights: Mapping[str, Any],
    model: ir.Model,
    original: Any,
    signature: Signature,
    census: Census,
    doubts: Mapping[DimCondition, str | None],
    notes: list[Note],
    advise: Callable[[Mapping[str, int]], str | None],
    explain: Callable[[Mapping[str, int]], str | None],
) -> list[Mapping[str, int]]:
    """Run the file at sizes other than the example's, those of the doubts among them, against the original.

    Raises ExportError where it differs, with what `explain` has to say of these sizes, and where the original runs at none
    of the other sizes, with what `advise` has to say.
    """
    engine = None
    try:
        # The optimiser would hide faults of the file: it removes an active Dropout, for one.
        engine = Engine(path, threads=None, optimize=False, weights=weights)
    except NotCheckedError as e:
        notes.append(Note("not checked", f"the file was not run: {e}"))
    except ModelFileError as e:
        raise ExportError(f"ONNX Runtime refuses the exported model: {e}") from e
    if census.is_random:
        notes.append(Note("not checked", "the file's numbers: the original is random"))
    runs = None if census.is_random else engine
    excluded = {c: line for c, line in doubts.items() if not c.size_one}
    if excluded and runs is None:
        raise ExportError(findings.conditions_text(excluded))

    def original_runs(sizes: Mapping[str, int]) -> bool:
        try:
            checks.call_original(original, *signature.bind(signature.make(sizes), original))
        except Exception:  # whatever the user's model raises, and sizes that are too large
            return False
        return True

    further: list[Mapping[str, int]] = list(signature.other_sizes(2))
    if further:
        further[0] = with_odd_sizes(signature, further[0], original_runs)
    done: list[Mapping[str, int]] = []
    # The example's own sizes are what was traced: others tell more. The last have every dim at its lowest.
    trials: list[tuple[Mapping[str, int], DimCondition | None]] = [
        *(({**signature.example_sizes(), **c.breaks_at}, c) for c in doubts),  # these can say what is wrong
        *((sizes, None) for sizes in further or [{}]),
        # torch traces as if no dim were 1, and leaves no guard that says so
        *((sizes, None) for sizes in signature.sizes_with_a_one()),
    ]
    failures: list[str] = []
    others = len(further)
    plain = len(doubts) + max(others, 1)
    for seed, (sizes, doubt) in enumerate(trials):
        values = signature.make(sizes, seed)
        args, kwargs = signature.bind(values, original)
        try:
            expected = checks.call_original(
                original, args, kwargs, census.promises if census.custom else None
            )
        except ExportError:
            raise
        except Exception as e:
            if doubt is not None:
                continue  # the condition is the model's own
            text = f"at {_sizes_text(sizes)}: the original itself fails there ({type(e).__name__})"
            if seed < plain:
                failures.append(text)
            else:
                notes.append(Note("not checked", text))
            continue
        try:
            checks.check_output_sizes(model, expected, sizes, has_custom=bool(census.custom))
            if runs is not None:
                checks.run_and_compare(
                    runs,
                    values,
                    expected,
                    sizes,
                    again=lambda v: checks.call_original(original, *signature.bind(v, original)),
                    narrowest=census.narrowest,
                )
                done.append(sizes)
        except ExportError as e:
            if doubt is None:
                why = explain(sizes)
                if why is None:
                    raise
                raise ExportError(f"{e}\n  {why}") from e
            raise ExportError(f"{findings.conditions_text({doubt: doubts[doubt]})}\n  Tried: {e}") from e
    if failures and len(failures) == others:
        raise ExportError(
            "the dims asked for do not vary: the original runs at the example's sizes and fails at every other one tried:\n"
            + "\n".join(f"  - {f}" for f in failures)
            + f"\n  {advise(signature.other_sizes(2)[0]) or 'Give each dim that is fixed its number, the others a range'}"
        )
    notes += [Note("not checked", f) for f in failures]
    return done


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n}={s}" for n, s in sizes.items()) or "the given sizes"
