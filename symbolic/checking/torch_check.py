"""torch's own checks of an operator, `torch.library.opcheck`: schema, aliasing, autograd registration, compilation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..adopted_gradient import why_no_gradient
from ..torch_logs import quiet
from .sample_runs import map_tensors, sound_runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator

__all__ = ["check_with_torch"]

_COMPILE_TEST = "test_aot_dispatch_dynamic"  # 0.1 s each: one sample is enough
_SMALL = 4096  # elements


def check_with_torch(op: Operator, faulty: Collection[str] = ()) -> CheckResult:
    """`torch.library.opcheck`: undeclared mutation, aliasing, fake kernels, autograd registration.

    `faulty`: which of "fake" and "gradient" are known to be wrong, and need not be found again.
    """
    import torch

    tally = Tally(op.name, "opcheck")
    tests = ["test_schema"]
    trainable = why_no_gradient(op) is None
    if trainable or op.custom_op is not None:
        tests.append("test_autograd_registration")
    else:
        tally.unchecked.append("autograd registration (it has no gradient)")
    if "fake" not in faulty:
        tests.append("test_faketensor")
    else:
        tally.unchecked.append("with the fake kernel, which is missing or wrong")
    if "gradient" in faulty:
        tally.unchecked.append("compiled, as the gradient is wrong")
    compiled = op.stateful or bool(faulty)

    def leaf(t: torch.Tensor) -> torch.Tensor:
        fresh = t.detach().clone()
        wanted = (
            fresh.is_floating_point() and not op.interface.mutates and (trainable or op.custom_op is not None)
        )
        return fresh.requires_grad_() if wanted else fresh

    for run, results in sound_runs(op, tally):
        chosen = list(tests)
        small = sum(t.numel() for t in run.sample.tensors()) <= _SMALL
        # torch compares NaN with NaN there and finds them different; `smooth` samples have none.
        if not compiled and run.sample.smooth and small:
            chosen.append(_COMPILE_TEST)
            compiled = True
        args = tuple(map_tensors(a, leaf) for a in run.sample.args)
        kwargs = {n: map_tensors(a, leaf) for n, a in run.sample.kwargs.items()}
        apart = _COMPILE_TEST in chosen and _whole_numbers_first(results)
        if apart:
            chosen.remove(_COMPILE_TEST)
        with quiet():
            found: dict[str, object] = dict(
                torch.library.opcheck(op.overload, args, kwargs, test_utils=chosen, raise_exception=False)
            )
            if apart:
                found[_COMPILE_TEST] = _compiled(op, args, kwargs)
        faults = [(test, e) for test, e in found.items() if e != "SUCCESS"]
        for test, error in faults:
            tally.fail(f"{test}: {_torch_reason(error)}", run)
        tally.passed += not faults
    return tally.result()


def _whole_numbers_first(results: Sequence[torch.Tensor]) -> bool:
    """Whether an output of whole numbers (or a mask) stands before one of floating point."""
    floating = [t.is_floating_point() for t in results]
    return floating != sorted(floating, reverse=True)


def _compiled(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """opcheck's compile test with the floating outputs first; "SUCCESS", or what is wrong.

    For the gradient, torch (2.13) adds up all outputs in place, beginning with the first: where that is of whole numbers,
    it fails with "result type Float can't be cast to the desired output type Long", whatever the operator does.
    """
    import torch
    from torch.testing._internal.optests.aot_autograd import aot_autograd_check
    from torch.utils import _pytree as pytree

    def floating_first(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
        outputs = pytree.tree_leaves(op.overload(*args, **kwargs))
        return tuple(sorted(outputs, key=lambda t: not t.is_floating_point()))

    try:
        aot_autograd_check(floating_first, tuple(args), dict(kwargs), dynamic=True, check_gradients="auto")
    except Exception as e:  # whatever the user's functions raise
        return e
    return "SUCCESS"


def _torch_reason(error: object) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}…"
    advice = {
        "Stride mismatch": "return contiguous results (`.contiguous()`), or give the fake's the same strides",
        "mutated": "name the argument in `mutates=`, or work on a copy",
        "alias": "return a new tensor (`.clone()`)",
    }
    return text + next((f": {what}" for sign, what in advice.items() if sign in text), "")
