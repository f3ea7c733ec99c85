"""Checks of a declaration: is everything declared, and does it all say the same?

A declaration says what an operator means several times over (reference, fake kernel, gradient, body, lock);
each check holds two of these against one another. What could not be checked is reported as *not checked*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import lock
from .body_check import check_body
from .bound_check import check_bound
from .declaration_check import check_declaration
from .fake_check import check_fake, check_shape_rule
from .gradient_check import check_gradient, check_gradient_dtypes
from .table import render
from .tally import CheckResult, Tally
from .torch_check import check_with_torch

if TYPE_CHECKING:
    from ..operator import Operator

__all__ = ["CheckResult", "check_operator", "exit_code", "render"]


def check_operator(op: Operator, lock_path: Path | None = None) -> list[CheckResult]:
    """Run every check of one operator.

    `lock_path` is the lock file to compare with; by default the one beside the operator's own file.
    """
    stopped: list[str | None] = [None]

    def declaration(op: Operator) -> CheckResult:
        result, stopped[0] = check_declaration(op)
        return result

    results = {"declaration": _guarded(op, "declaration", declaration)}
    # A fault is told where it lies, and not again by every check that stumbles over it.
    fake = _unless(stopped[0] or (None if op.has_fake else "there is no fake kernel"), op, "fake", check_fake)
    fake_fault = {"failed": "the fake kernel is wrong (see fake)", "not checked": fake.detail}.get(
        fake.status
    )
    gradient = _unless(stopped[0], op, "gradient", check_gradient)
    faulty = {name for name, r in (("fake", fake), ("gradient", gradient)) if r.status == "failed"}
    faulty |= set() if op.has_fake else {"fake"}
    gradient_fault = "the gradient is wrong (see gradient)" if "gradient" in faulty else None
    checks: tuple[tuple[str, Callable[[Operator], CheckResult], str | None], ...] = (
        ("opcheck", lambda o: check_with_torch(o, faulty), stopped[0]),
        ("fake", lambda o: fake, None),
        ("shape rule", check_shape_rule, fake_fault),
        *(
            [("bound", check_bound, fake_fault)]
            if op.bound_function or op.usual_function or op.shape_inputs
            else []
        ),
        ("gradient", lambda o: gradient, None),
        ("gradient dtypes", check_gradient_dtypes, stopped[0] or gradient_fault),
        ("body", check_body, stopped[0]),
        ("lock", lambda o: check_lock(o, lock_path), None),
    )
    for name, check, reason in checks:
        results[name] = _unless(reason, op, name, check)
    return list(results.values())


def _unless(
    reason: str | None, op: Operator, name: str, check: Callable[[Operator], CheckResult]
) -> CheckResult:
    return CheckResult(op.name, name, "not checked", reason) if reason else _guarded(op, name, check)


def _guarded(op: Operator, name: str, check: Callable[[Operator], CheckResult]) -> CheckResult:
    """A fault that no check foresaw is a fault all the same."""
    try:
        return check(op)
    except Exception as e:
        return CheckResult(op.name, name, "failed", f"it cannot be run: {type(e).__name__}: {e}")


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
        if "is not locked yet" in line:
            tally.unchecked.append(line)
        else:
            tally.fail(line)
    tally.passed += not (tally.failed or tally.unchecked)
    return tally.result("signature")


def exit_code(results: Sequence[CheckResult]) -> int:
    """1 where anything failed, else 0."""
    return int(any(r.status == "failed" for r in results))
