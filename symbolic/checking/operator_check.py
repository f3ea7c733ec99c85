"""Checks of a declaration: is everything declared, and does it all say the same?

A declaration says what an operator means several times over (reference, fake kernel, gradient, body, lock);
each check holds two of these against one another. What could not be checked is reported as *not checked*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import lock
from .body_check import check_body
from .fake_check import check_fake, check_shape_rule
from .gradient_check import check_gradient, check_gradient_dtypes
from .sample_runs import SampleRun, map_tensors, runs
from .tally import CheckResult, Status, Tally

if TYPE_CHECKING:
    import torch

    from ..operator import Operator

__all__ = ["CheckResult", "check_operator", "exit_code", "render"]

_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")
_COMPILE_TEST = "test_aot_dispatch_dynamic"  # 0.1 s each: one sample is enough
_SMALL = 4096  # elements
_WORST_FIRST: tuple[Status, ...] = ("failed", "not checked", "passed")
_CELLS = {"failed": "FAILED", "not checked": "not checked", "passed": "passed"}


def check_operator(op: Operator, lock_path: Path | None = None) -> list[CheckResult]:
    """Run every check of one operator.

    `lock_path` is the lock file to compare with; by default the one beside the operator's own file.
    """
    checks: tuple[tuple[str, Callable[[Operator], CheckResult]], ...] = (
        ("declaration", check_declaration),
        ("opcheck", check_with_torch),
        ("fake", check_fake),
        ("shape rule", check_shape_rule),
        ("gradient", check_gradient),
        ("gradient dtypes", check_gradient_dtypes),
        ("body", check_body),
        ("lock", lambda o: check_lock(o, lock_path)),
    )
    return [_guarded(op, name, check) for name, check in checks]


def _guarded(op: Operator, name: str, check: Callable[[Operator], CheckResult]) -> CheckResult:
    """A fault that no check foresaw (samples that cannot be drawn, say) is a fault all the same."""
    try:
        return check(op)
    except Exception as e:
        return CheckResult(op.name, name, "failed", f"it cannot be run: {type(e).__name__}: {e}")


def check_declaration(op: Operator) -> CheckResult:
    """A fake kernel, samples that can be drawn in every declared dtype, and a reference that takes them."""
    tally = Tally(op.name, "declaration")
    if not op.has_fake:
        tally.failures.append(
            "there is no fake kernel, so no model with it can be exported: "
            f"declare one with `@{op.reference.__name__}.fake`"
        )
    if op.sample_function is None:
        tally.failures.append(
            "there are no samples, so nothing can be tested: "
            f"declare some with `@{op.reference.__name__}.samples`"
        )
        return tally.result()
    for dtype in op.types.drawn:
        try:
            drawn = list(runs(op, (dtype,)))
        except Exception as e:
            tally.failures.append(f"the samples cannot be drawn in {dtype}: {type(e).__name__}: {e}")
            continue
        if not drawn:
            tally.failures.append("the sample function yields nothing")
        for run in drawn:
            _check_reference(run, tally)
    return tally.result()


def _check_reference(run: SampleRun, tally: Tally) -> None:
    try:
        undeclared = run.undeclared
    except Exception as e:
        tally.failures.append(f"{run}: {e}")
        return
    if undeclared:
        tally.failures.append(
            f"{run}: {undeclared}, which `dtypes` does not list: "
            "list it, or draw it as `draw(..., dtype=...)`"
        )
        return
    try:
        run.reference()
    except Exception as e:
        tally.failures.append(
            f"{run}: the reference raises {type(e).__name__}: {e}: correct it, or the sample"
        )
    else:
        tally.passed += 1


def check_with_torch(op: Operator) -> CheckResult:
    """`torch.library.opcheck`: undeclared mutation, aliasing, fake kernels, autograd registration."""
    import torch

    tally = Tally(op.name, "opcheck")
    compiled = op.stateful
    for run in runs(op):
        if run.undeclared:
            continue
        tests = list(_TESTS)
        small = sum(t.numel() for t in run.sample.tensors()) <= _SMALL
        # torch compares NaN with NaN there and finds them different; `smooth` samples have none.
        if not compiled and run.sample.smooth and small:
            tests.append(_COMPILE_TEST)
            compiled = True
        args = tuple(map_tensors(a, lambda t: _leaf(op, t)) for a in run.sample.args)
        kwargs = {n: map_tensors(a, lambda t: _leaf(op, t)) for n, a in run.sample.kwargs.items()}
        found = torch.library.opcheck(op.overload, args, kwargs, test_utils=tests, raise_exception=False)
        faults = [(test, e) for test, e in found.items() if e != "SUCCESS"]
        for test, error in faults:
            tally.failures.append(f"{run}: {test}: {_torch_reason(error)}")
        tally.passed += not faults
    return tally.result()


def _leaf(op: Operator, t: torch.Tensor) -> torch.Tensor:
    fresh = t.detach().clone()
    return fresh.requires_grad_() if fresh.is_floating_point() and not op.interface.mutates else fresh


def _torch_reason(error: object) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}…"
    advice = {
        "Stride mismatch": "return contiguous results (`.contiguous()`), or give the fake's the same strides",
        "mutated": "name the argument in `mutates=`, or work on a copy",
        "alias": "return a new tensor (`.clone()`)",
    }
    return text + next((f": {what}" for sign, what in advice.items() if sign in text), "")


def check_lock(op: Operator, path: Path | None = None) -> CheckResult:
    """The signature against the locked one of the same version."""
    tally = Tally(op.name, "lock")
    path = path or lock.lock_file(op)
    if path is None:
        tally.unchecked.append("it was not declared in a file, so there is no lock file beside it")
        return tally.result()
    locked = lock.read(path)
    mine = {n: v for n, v in locked.items() if n == op.onnx_name}
    for line in lock.compare([op], mine):
        unlocked = "is not locked yet" in line
        (tally.unchecked if unlocked else tally.failures).append(line)
    tally.passed += not (tally.failures or tally.unchecked)
    return tally.result("signature")


def exit_code(results: Sequence[CheckResult]) -> int:
    """1 where anything failed, else 0."""
    return int(any(r.status == "failed" for r in results))


def render(results: Sequence[CheckResult]) -> str:
    """A table of operators × checks, the worst first; below it every failure, and what was not checked."""
    checks = list(dict.fromkeys(r.check for r in results))
    rows: dict[str, dict[str, CheckResult]] = {}
    for r in results:
        rows.setdefault(r.operator, {})[r.check] = r
    ordered = sorted(rows, key=lambda name: (_rank(rows[name].values()), name))
    table = [["operator", *checks]]
    table += [
        [name, *(_CELLS[rows[name][c].status] if c in rows[name] else "" for c in checks)] for name in ordered
    ]
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
    lines.insert(1, "  ".join("-" * w for w in widths))
    for status in ("failed", "not checked"):
        chosen = [r for name in ordered for r in rows[name].values() if r.status == status]
        if chosen:
            lines += ["", f"{status}:"]
            lines += [f"  {r.operator} · {r.check}: " + r.detail.replace("\n", "\n    ") for r in chosen]
    partly = [
        r
        for name in ordered
        for r in rows[name].values()
        if r.status == "passed" and "not checked" in r.detail
    ]
    if partly:
        lines += ["", "passed in part:"]
        lines += [f"  {r.operator} · {r.check}: {r.detail}" for r in partly]
    counts = ", ".join(f"{sum(r.status == s for r in results)} {s}" for s in reversed(_WORST_FIRST))
    return "\n".join([*lines, "", f"{len(rows)} operators: {counts}"])


def _rank(results: Iterable[CheckResult]) -> tuple[int, ...]:
    """Most failures first, then most that was not checked."""
    statuses = [r.status for r in results]
    return tuple(-statuses.count(s) for s in _WORST_FIRST[:-1])
