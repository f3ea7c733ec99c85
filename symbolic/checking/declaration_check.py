"""Is everything declared, and is the reference a function: the same arguments, the same results, nothing written?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DeployOpsError
from .layout_check import layout_fault
from .sample_runs import SampleRun, accepted_dtypes, map_tensors, runs, same_values
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator

__all__ = ["check_declaration"]


def check_declaration(op: Operator) -> tuple[CheckResult, str | None]:
    """A fake kernel, samples for every declared dtype, and a reference that takes them and is a function.

    Also returns why nothing else can be checked, if so.
    """
    tally = Tally(op.name, "declaration")
    if not op.has_fake:
        tally.fail(
            f"there is no fake kernel, so no model with it can be exported: declare one with {_fake_advice(op)}"
        )
    if op.sample_function is None:
        tally.fail(f"there are no samples, so nothing can be tested: declare some with {_sample_advice(op)}")
        return tally.result(), "no samples"
    drawn = 0
    unsound = None
    for dtype in op.types.drawn:
        try:
            of_this = list(runs(op, (dtype,)))
        except Exception as e:
            tally.fail(f"the samples cannot be drawn: {_told(e)}", f"in {dtype}")
            continue
        drawn += len(of_this)
        if not of_this:
            tally.fail("the samples function yields nothing: `yield draw(3, 4)`")
            break
        accepted = accepted_dtypes(op)
        if dtype not in accepted:
            tally.unchecked.append(f"{dtype}, which the operator does not take")
            continue
        for run in of_this:
            unsound = _check_reference(run, tally, dtype == accepted[0]) or unsound
    return tally.result(), unsound if drawn else "no samples"


def _fake_advice(op: Operator) -> str:
    if op.custom_op is not None:
        return f"`@{op.reference.__name__}.fake`"
    return f"`@torch.library.register_fake({op.name!r})`"


def _sample_advice(op: Operator) -> str:
    if op.custom_op is not None:
        return f"`@{op.reference.__name__}.samples`"
    return f"`.samples` of what `adopt` returned: `op = adopt({op.name!r}, ...)`, then `@op.samples`"


def _check_reference(run: SampleRun, tally: Tally, layouts: bool) -> str | None:
    """Note what is wrong; returns why nothing can be compared with this reference, if so.

    `layouts`: try others than the sample's.
    """
    try:
        misfit = run.misfit
    except Exception as e:
        tally.fail(str(e), run)
        return None
    if misfit:
        tally.fail(misfit, run)
        return None
    args, kwargs = run.copies()
    before = run.copies()
    versions = [t._version for t in _flat((args, kwargs))]
    try:
        results = run.call(run.op.reference, args, kwargs)
    except DeployOpsError as e:
        tally.fail(_told(e).removeprefix(f"{run.op.name}: "), run)
        return None
    except Exception as e:
        tally.fail(f"the reference raises {_told(e)}: correct it, or the sample", run)
        return None
    written = _written(run, (args, kwargs), before, versions)
    if written:
        tally.fail(
            f"the operator writes into `{written}`, which the declaration does not say: exported models would lose that. "
            f"Work on a copy (`{written} = {written}.clone()`), or declare `mutates=({written!r},)`",
        )
        return f"it writes into `{written}` undeclared (see declaration)"
    fresh = results[: len(results) - sum(i.mutated for i in run.op.interface.inputs)]
    if any(_share_memory(r, t) for r in fresh for t in _flat((args, kwargs))):
        tally.fail(
            "the reference returns an argument, or a view of one: return a new tensor (`.clone()`)", run
        )
        return "it returns an argument or a view of one (see declaration)"
    dense = run.changed(lambda t: t.contiguous())
    fault = None if run.op.stateful else _unsteady(dense) or layout_fault(run, layouts) or _unsteady(run)
    if fault:
        tally.fail(fault)
        return f"{fault.partition(':')[0]} (see declaration)"
    tally.passed += 1
    return None


def _flat(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    args, kwargs = value
    for v in (*args, *kwargs.values()):
        map_tensors(v, found.append)
    return found


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _written(run: SampleRun, after: Any, before: Any, versions: Sequence[int]) -> str | None:
    """The name of an argument that was written into and is not declared to be."""
    declared = {i.name for i in run.op.interface.inputs if i.mutated}
    names: list[str] = []
    args, kwargs = after
    by_name = [*zip(run.positional, args, strict=False), *kwargs.items()]
    for name, value in by_name:
        names += [name] * len(_flat(([value], {})))
    for name, new, old, version in zip(names, _flat(after), _flat(before), versions, strict=True):
        if name not in declared and (new._version != version or not same_values([new], [old])):
            return name
    return None


def _unsteady(run: SampleRun) -> str | None:
    """Whether the reference is random, or otherwise gives other results each time."""
    first = _seeded(run, 1)
    if all(same_values(first, _seeded(run, seed)) for seed in (2, 3)):
        return None
    if same_values(_seeded(run, 1), _seeded(run, 1)):
        return (
            "it is random: its results follow torch's seed; declare `stateful=True`, or equal nodes are merged in an "
            "exported model and every run of it gives the same"
        )
    return (
        "it is not deterministic: two calls with the same arguments differ; make it a function of its arguments, or "
        "declare `stateful=True`"
    )


def _seeded(run: SampleRun, seed: int) -> list[torch.Tensor]:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return run.reference()


def _told(error: BaseException) -> str:
    """An error of the user's code; a declaration error speaks for itself."""
    return str(error) if isinstance(error, DeployOpsError) else f"{type(error).__name__}: {error}"
