"""Is the gradient right? `gradcheck` in float64 on every smooth sample; its dtype in every declared dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..adopted_gradient import why_no_gradient
from ..torch_logs import quiet
from .gradient_fault import explain
from .precision import IN_FLOAT32, computes_in_float32
from .sample_runs import SampleRun, accepted_dtypes, map_tensors, sound_runs
from .tally import CheckResult, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator

__all__ = ["check_gradient", "check_gradient_dtypes"]

_MANY = 64  # elements of all inputs beyond which gradcheck compares random projections instead of columns


def check_gradient(op: Operator) -> CheckResult:
    """`torch.autograd.gradcheck` against finite differences, on the smooth samples in float64."""
    tally = Tally(op.name, "gradient")
    reason = why_no_gradient(op)
    if reason or "float64" not in accepted_dtypes(op):
        tally.unchecked.append(reason or "float64 is not declared, and finite differences need it")
        return tally.result()
    for run, _ in sound_runs(op, tally, ("float64",)):
        if not run.sample.smooth:
            tally.unchecked.append("sample not smooth")
            continue
        _check_one(run, tally)
    return tally.result("sample")


def _check_one(run: SampleRun, tally: Tally) -> None:
    import torch

    leaves, names, call = _as_function(run)
    if not leaves:
        tally.unchecked.append("sample without floating-point input")
        return
    try:
        outputs = call(*leaves)
    except Exception as e:
        tally.fail(f"the operator raises {type(e).__name__}: {e}", run)
        return
    if not any(o.requires_grad for o in outputs):
        if run.op.custom_op is None:
            tally.unchecked.append("torch has no gradient for it")
        else:
            tally.unchecked.append("no differentiable output")
        return
    if sum(leaf.numel() for leaf in leaves) == 0:
        tally.unchecked.append("sample without elements")
        return
    fast = sum(leaf.numel() for leaf in leaves) > _MANY
    with quiet():
        try:
            torch.autograd.gradcheck(call, leaves, eps=1e-6, atol=1e-5, rtol=1e-3, fast_mode=fast)
        except Exception as e:
            tally.fail(f"{_reason(run, e, call, leaves, names)}", run)
            return
    tally.passed += 1


def _reason(run: SampleRun, error: Exception, call: Any, leaves: list[torch.Tensor], names: list[str]) -> str:
    from ...errors import DeployOpsError

    if isinstance(error, DeployOpsError):
        return f"{error}: correct the backward function"
    advice = (
        "correct the backward function, or, if the sample lies on a kink, declare it with "
        "`draw.call(..., smooth=False)`"
    )
    if computes_in_float32(run):
        advice = f"{IN_FLOAT32}; finite differences need float64"
    try:
        found = explain(call, leaves, names, _output_names(run))
    except Exception:
        found = None
    return f"{found or _gradcheck_reason(error)}: {advice}"


def _output_names(run: SampleRun) -> list[str]:
    """Of the results that `_as_function` gives, those with a gradient."""
    outputs = run.op.interface.outputs
    flat = run.call(run.op.overload, *run.copies())
    names = [o.name for o in outputs if o.form != "variadic"]
    lists = next((o.name for o in outputs if o.form == "variadic"), "y")
    names += [f"{lists}[{k}]" for k in range(len(flat) - len(names))]
    return [n for n, t in zip(names, flat, strict=False) if t.is_floating_point()]


def check_gradient_dtypes(op: Operator) -> CheckResult:
    """Backward runs in every declared dtype and gives each tensor a gradient of its own dtype and shape."""
    tally = Tally(op.name, "gradient dtypes")
    reason = why_no_gradient(op)
    if reason:
        tally.unchecked.append(reason)
        return tally.result()
    for run, _ in sound_runs(op, tally):
        if dtypes.name_of(run.dtype) not in dtypes.FLOATS:
            continue
        leaves, _, call = _as_function(run)
        try:
            with quiet():
                outputs = [o for o in call(*leaves) if o.requires_grad]
                if not outputs:
                    tally.unchecked.append("no differentiable output")
                    continue
                gradients = _raw_gradients(outputs, leaves)
        except Exception as e:
            lines = str(e).strip().splitlines() or [""]
            tally.fail(
                f"the gradient raises {type(e).__name__}: {lines[0]}: it must run in every declared dtype",
                run,
            )
            continue
        fault = next((f for leaf, g in zip(leaves, gradients, strict=True) if (f := _fault(leaf, g))), None)
        if fault:
            tally.fail(fault, run)
        else:
            tally.passed += 1
    return tally.result()


def _raw_gradients(outputs: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor | None]:
    import torch

    ones = [torch.ones_like(o) for o in outputs]
    return list(torch.autograd.grad(outputs, leaves, ones, allow_unused=True))


def _fault(leaf: torch.Tensor, gradient: torch.Tensor | None) -> str | None:
    if gradient is None:
        return None  # a zero gradient: whether that is right, gradcheck says
    if gradient.dtype != leaf.dtype:
        return f"a gradient is {gradient.dtype} where its tensor is {leaf.dtype}: convert it"
    if gradient.shape != leaf.shape:
        return f"a gradient is {tuple(gradient.shape)} where its tensor is {tuple(leaf.shape)}"
    return None


def _as_function(
    run: SampleRun,
) -> tuple[list[torch.Tensor], list[str], Callable[..., tuple[torch.Tensor, ...]]]:
    """The floating-point inputs as leaves, their names, and the operator as a function of them alone."""
    leaves: list[torch.Tensor] = []
    names: list[str] = []

    def take(t: torch.Tensor) -> Any:
        if not t.is_floating_point():
            return t
        leaves.append(t.detach().clone().requires_grad_())
        return len(leaves) - 1  # its place among the leaves

    kept = {}
    for name, value in run.arguments.items():
        before = len(leaves)
        kept[name] = map_tensors(value, take)
        is_list = isinstance(value, (list, tuple))
        names += [f"{name}[{k}]" if is_list else name for k in range(len(leaves) - before)]
    tensor_inputs = {i.name for i in run.op.interface.inputs}

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def back(value: Any) -> Any:
            if isinstance(value, list):
                return [back(v) for v in value]
            return given[value] if isinstance(value, int) else value

        values = {n: back(v) if n in tensor_inputs else v for n, v in kept.items()}
        outputs = run.op.flatten_outputs(run.op.overload(**values), {})
        return tuple(o for o in outputs if o.is_floating_point())

    return leaves, names, call


def _gradcheck_reason(error: Exception) -> str:
    """gradcheck's message in one line: its matrices say more to a machine than to a reader."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    text = " ".join(lines)
    return text if len(text) <= 300 else f"{text[:300]}…"
