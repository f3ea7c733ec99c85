"""Whether a model's outputs depend on its earlier calls, or on Python's or numpy's random numbers: an exported one has
neither. Found out before the trace, which would write what the trial calls left behind into the file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ExportError
from . import checks
from .branches import compiled_apart
from .generators import Drawn, drawing_line, generators_seeded
from .inputs.signature import Signature
from .python_state import PythonState, python_state
from .result import Note

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .census import Census
    from .source import Source

__all__ = ["Memory", "refuse_memory", "state_kept"]

_SEEDS = range(1, 9)  # a fair coin stays hidden in one of 256 exports
_ROUNDING = 64  # times eps of the dtype, of the output's scale: two runs may add in another order
_SHOWN = 4
_LOOSE = {"float64": 1e-6, "float32": 2e-3, "float16": 4e-2, "bfloat16": 2e-1}


class Run(Protocol):
    """Calls the original on inputs by name, Python's and numpy's generators seeded."""

    def __call__(self, values: Mapping[str, Any], seed: int = 0, /) -> list[Any]: ...


@dataclass(slots=True)
class Memory:
    """What the trial calls left in the model although no output shows it."""

    notes: list[Note] = field(default_factory=list)
    draws: str | None = None  # "random numbers from `random`, at net.py:12 in Net.forward"
    derived: list[tuple[str, Any]] = field(
        default_factory=list
    )  # attribute, tensor: computed from trial inputs

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """An ExportError within says that the model draws, which may be why."""
        try:
            yield
        except ExportError as e:
            if self.draws is None:
                raise
            raise ExportError(f"{e}\n  The model draws {self.draws}, and the exported model does not") from e

    def refuse_constants(self, program: ExportedProgram) -> None:
        """Raise ExportError where a constant of the traced program was computed from a trial input."""
        import torch

        for constant in program.constants.values():
            if not isinstance(constant, torch.Tensor):
                continue
            for owner, tensor in self.derived:
                if _are_equal(constant, tensor):
                    raise ExportError(
                        f"the trace took {owner} for a constant, and a call computed it from its input: the file would hold "
                        f"numbers of a trial input. {_ADVICE}"
                    )


_ADVICE = "An exported model keeps nothing from call to call: pass such state as an input and return it"


@contextlib.contextmanager
def state_kept(model: Any) -> Iterator[PythonState]:
    """What `model` keeps outside its buffers is afterwards as before: no user's attribute holds a trial's tensors."""
    state = python_state(model)
    try:
        yield state
    finally:
        state.restore()


def refuse_memory(
    source: Source, signature: Signature, original: Any, census: Census, before: PythonState, drawn: Drawn
) -> Memory:
    """Call the original again on other values and on the same. Raises ExportError where its outputs do not repeat.

    `before`: its state before the census. `drawn`: what the census drew from. Two calls where the model keeps nothing.
    """

    memory = Memory()
    if source.program is not None:
        return memory

    def run(values: Mapping[str, Any], seed: int = 0, /) -> list[Any]:
        arranged = source.arrange(*signature.bind(values, original))
        with generators_seeded(seed):
            return checks.call_original(original, *arranged)

    values = signature.make()
    after = python_state(original)
    changed = before.changed(after)
    with compiled_apart(lambda: census.has_branches):
        if census.promises.random:  # no two calls are equal anyway
            if changed:
                text = f"whether {_listed(changed)}, which a call changes, shows in the outputs: the original is random"
                memory.notes.append(Note("not checked", text))
            return memory
        if drawn.names:
            memory.draws = _refuse_draws(run, values, before, drawn, census.narrowest)
            memory.notes.append(_draws_note(memory.draws))
        _refuse_history(run, values, original, before, after, changed, census, memory)
    return memory


def _refuse_history(
    run: Run,
    values: Mapping[str, Any],
    original: Any,
    before: PythonState,
    after: PythonState,
    changed: list[str],
    census: Census,
    memory: Memory,
) -> None:
    others = {name: _other(name, value) for name, value in values.items()}
    try:
        late = run(others)
    except Exception as e:  # values that the model does not take
        reason = f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0]}"
        text = "whether outputs depend on earlier calls with other values"
        memory.notes.append(Note("not checked", f"{text}: the model fails on those tried ({reason})"))
        others, late = dict(values), run(values)
    differ = _comparison(census.narrowest, strict=bool(changed))
    if differ(run(values), _tensors(census.outputs)):
        # The census watches every operator, and torch may take other kernels then.
        first = run(values)
        run(others)
        if differ(run(values), first):
            raise ExportError(_history_text(changed))
    if not changed:
        return
    before.restore()
    if differ(run(others), late):
        raise ExportError(_history_text(changed))
    memory.derived = python_state(original).tensors_unlike(after)


def _history_text(changed: Sequence[str]) -> str:
    where = (
        f"a call changes {_listed(changed)}"
        if changed
        else "it keeps state that no attribute of its modules shows, or draws random numbers outside torch"
    )
    return (
        f"the model's outputs depend on its earlier calls: the same input gives other numbers after a call with another one, "
        f"and {where}. {_ADVICE}"
    )


def _refuse_draws(
    run: Run, values: Mapping[str, Any], before: PythonState, drawn: Drawn, narrowest: str
) -> str:
    """What the model draws, and where. Raises ExportError where its outputs show it."""
    names = " and ".join(f"`{n}`" for n in drawn.names)
    before.restore()
    with drawing_line() as lines:
        first = run(values)
    draws = f"random numbers from {names}" + (f", at {lines[0]}" if lines else "")
    differ = _comparison(narrowest, strict=False)
    for seed in _SEEDS:
        before.restore()
        if differ(run(values, seed), first):
            raise ExportError(
                f"the model draws {draws}, and its outputs depend on them; an exported model would "
                "repeat those of the export. Draw with torch (torch.rand), which the file then does too, or pass the numbers "
                "as an input"
            )
    return draws


def _draws_note(draws: str) -> Note:
    return Note(
        "warning",
        f"the model draws {draws}; the exported model does not. In {len(_SEEDS) + 1} runs with other ones the outputs were "
        "the same",
    )


def _listed(changed: Sequence[str]) -> str:
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return ", ".join(changed[:_SHOWN]) + more


def _other(name: str, value: Any) -> Any:
    """Other values that the model takes as likely: the same ones in reverse, floats halved besides."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    turned = value.flatten().flip(0).reshape(value.shape)
    return (turned / 2).to(value.dtype) if value.is_floating_point() or value.is_complex() else turned


def _tensors(results: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]


def _are_equal(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.layout == b.layout and bool((a == b).all())


def _comparison(narrowest: str, *, strict: bool) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """``differ(a, b)``. `strict`: beyond what another order of sums explains; else grossly."""
    import torch

    def tolerance(dtype: str) -> float:
        loose = max(_LOOSE.get(dtype, 0.0), _LOOSE[narrowest])
        eps = max(torch.finfo(getattr(torch, d)).eps for d in (dtype, narrowest) if d in _LOOSE)
        return min(loose, _ROUNDING * eps) if strict else loose

    def differ(some: Sequence[Any], others: Sequence[Any]) -> bool:
        return len(some) != len(others) or any(
            _unlike(a, b, tolerance(str(a.dtype).removeprefix("torch.")))
            for a, b in zip(some, others, strict=True)
        )

    return differ


def _unlike(a: Any, b: Any, tolerance: float) -> bool:
    import torch

    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return True
    if a.layout is not torch.strided or not a.numel():
        return False
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if not a.is_floating_point():
        return not torch.equal(a, b)
    a, b = a.double(), b.double()
    finite = a.isfinite() & b.isfinite()
    if not torch.equal(a.nan_to_num(0)[~finite], b.nan_to_num(0)[~finite]):
        return True
    error = torch.where(finite, (a - b).abs(), 0).max()
    scale = torch.where(finite, a.abs(), 0).max()
    return bool(error > tolerance * scale)
