"""torch's own checks of an operator, `torch.library.opcheck`: schema, aliasing, autograd registration, compilation."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

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

    for run, _ in sound_runs(op, tally):
        chosen = list(tests)
        small = sum(t.numel() for t in run.sample.tensors()) <= _SMALL
        # torch compares NaN with NaN there and finds them different; `smooth` samples have none.
        if not compiled and run.sample.smooth and small:
            chosen.append(_COMPILE_TEST)
            compiled = True
        args = tuple(map_tensors(a, leaf) for a in run.sample.args)
        kwargs = {n: map_tensors(a, leaf) for n, a in run.sample.kwargs.items()}
        with quiet():
            found = torch.library.opcheck(op.overload, args, kwargs, test_utils=chosen, raise_exception=False)
        faults = [(test, e) for test, e in found.items() if e != "SUCCESS"]
        for test, error in faults:
            tally.fail(f"{test}: {_torch_reason(error)}", run)
        tally.passed += not faults
    return tally.result()


def _torch_reason(error: object) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}…"
    advice = {
        "Stride mismatch": "return contiguous results (`.contiguous()`), or give the fake's the same strides",
        "mutated": "name the argument in `mutates=`, or work on a copy",
        "alias": "return a new tensor (`.clone()`)",
    }
    return text + next((f": {what}" for sign, what in advice.items() if sign in text), "")
