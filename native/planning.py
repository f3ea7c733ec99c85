"""From what the user names (operators, packs, nothing) to the plan of what there is to build, from a record where it holds."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import UsageError
from .plan_record import PlanRecord

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["TAKE_OTHERS", "planned"]


# What to do with an operator that a library cannot have.
TAKE_OTHERS = "name the others alone, each by its own --ops FILE.py::NAME"


class _Plan(Protocol):
    @property
    def holds(self) -> bool: ...
    def to_dict(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=_Plan)


def planned(
    ops: Sequence[Operator | str] | None,
    *,
    cache: Path,
    target: str,
    ours: tuple[str, ...],
    read: Callable[[Any], P],
    make: Callable[[list[Operator]], P],
) -> P:
    """The plan for these operators; declarations are loaded only where nothing on record holds.

    Args:
        ops: operators, or modules and files that declare them (they are run); None: those that come with deployops.
        cache, target, ours: see `PlanRecord`.
        read: a plan from data; raises KeyError or TypeError where it is none.
        make: a plan from operators, in the order of their names.

    Raises UsageError where nothing is declared, and what `make` raises.
    """
    packs = None if ops is None else [o for o in ops if isinstance(o, str)]
    given = [op for op in ops or () if not isinstance(op, str)]
    record = PlanRecord(cache, target, packs, ours)
    if not given and (known := record.load()) is not None:
        with contextlib.suppress(KeyError, TypeError):
            plan = read(known)
            if plan.holds:
                return plan

    with _modules_stay():
        operators, loaded = _declared(ops, packs, given)
        plan = make([operators[name] for name in sorted(operators)])
    if not given:
        record.save(plan.to_dict(), loaded)
    return plan


def _declared(
    ops: Sequence[Operator | str] | None, packs: Sequence[str] | None, given: Sequence[Operator]
) -> tuple[dict[str, Operator], set[str]]:
    """The operators by name, and the modules that loading them brought in."""
    from ..symbolic import registry

    registry.load_builtin()
    if ops is None:
        chosen = [op for op in registry.all_operators() if op.name.startswith("deployops::")]
        loaded: set[str] = set()
    else:
        before = set(sys.modules)
        chosen = [*given, *registry.load(packs or ())]
        loaded = set(sys.modules) - before
    if not chosen:
        raise UsageError(f"{', '.join(packs or ()) or 'ops'} declares no operator")
    return {op.name: op for op in chosen}, loaded


@contextlib.contextmanager
def _modules_stay() -> Iterator[None]:
    """What is loaded inside is kept from the garbage collector, where torch is loaded for the first time.

    To look through its modules again and again takes a third as long as loading them, and as long again when the process
    ends.
    """
    if "torch" in sys.modules:
        yield
        return
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
