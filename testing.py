"""Parity as a pytest assertion: ``from deployops.testing import assert_parity, operator_suite``.

::

    def test_the_export_is_sound(net):
        assert_parity(net, "net.onnx", (torch.randn(2, 3, 32, 32),))

A pack of operators is tested in three lines, one test for each operator, dtype and backend, and one for its gradient::

    from deployops.testing import operator_suite

    test_operators = operator_suite("my_ops.py", backends=["onnxruntime", "onnxruntime+library"])

What fails shows its worst elements. What cannot be checked is no pass: `assert_parity` fails, a test of the suite is
skipped with the reason, or fails where the backend is required.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from .symbolic.operator import Operator
    from .validation.record import Report

__all__ = ["assert_gradient", "assert_operator", "assert_parity", "operator_suite"]

StrPath = str | os.PathLike[str]

BACKEND = "onnxruntime"
GRADIENT = "gradient"


def assert_parity(model: Any, onnx: StrPath, inputs: Any = None, **options: Any) -> Report:
    """Assert that an ONNX file computes what the PyTorch model does; returns the report.

    Args:
        model, onnx, inputs, options: as for `deployops.validate`. Latency is not measured unless asked for: tests share
            their machine.

    Raises:
        AssertionError: an output differs, or could not be checked; the text shows the worst elements.
        UsageError, ModelFileError: arguments that make no sense, or a file that is no model.
    """
    __tracebackhide__ = True
    from .validation import validate

    options.setdefault("latency", False)
    report = validate(model, onnx, inputs, **options)
    _assert_passed(report)
    return report


def assert_operator(
    op: Operator,
    dtype: str,
    backend: str = BACKEND,
    *,
    folder: StrPath,
    required: bool = False,
    **options: Any,
) -> Report:
    """Assert that a declared operator computes the same on a backend, on its own samples in one dtype.

    Args:
        folder: where the exported files go, such as `tmp_path`.
        required: what cannot be checked is a failure. Else the test is skipped, with the reason.
        options: as for `deployops.validate`.

    Raises:
        AssertionError: an output differs.
    """
    __tracebackhide__ = True
    report = _operator_report(op, dtype, backend, Path(folder), options)
    if report.exit_code == 3 and not required:
        import pytest

        pytest.skip(_not_checked(report))
    _assert_passed(report)
    return report


def assert_gradient(op: Operator, dtypes: Sequence[str] | None = None, *, seed: int = 0) -> Report:
    """Assert that an operator's gradient is right: by gradcheck in float64, and against autograd through the reference.

    Skips the test where there is nothing to check: no gradient is declared, or no sample is differentiable.

    Raises:
        AssertionError: a gradient differs, or has another dtype than its input.
    """
    __tracebackhide__ = True
    from .validation.gradients import check
    from .validation.record import FAILED, PASSED, Report

    report = Report(f"the gradient of {op.name}", "", tuple(check(op, dtypes, seed)))
    found = {c.verdict for c in report.cells}
    if FAILED not in found and PASSED not in found:
        import pytest

        pytest.skip(_not_checked(report))
    if FAILED in found:
        _assert_passed(report)
    return report


def operator_suite(
    pack: StrPath | Operator | Iterable[StrPath | Operator],
    backends: Sequence[str] = (BACKEND,),
    *,
    dtypes: Sequence[str] | None = None,
    required: Sequence[str] = (),
    gradients: bool = True,
    **options: Any,
) -> Callable[..., None]:
    """A parametrised test function for the operators of a pack: give it a name that begins with ``test``.

    Args:
        pack: a Python file or an importable module that declares operators, an operator, or several of these. A file is
            looked for beside the test, then in the current folder. It is run.
        backends: by the names that `deployops validate --backend` knows.
        dtypes: instead of every dtype that an operator is declared in.
        required: backends whose tests fail where others would be skipped.
        gradients: test the gradient of each operator too.
        options: as for `deployops.validate`: `atol`, `rtol`, `libraries`, `seed`.

    Raises:
        UsageError, DeclarationError: no such pack, or nothing is declared in it.
    """
    import pytest

    from .symbolic.checking.sample_runs import accepted_dtypes
    from .validation.backends import chosen

    if isinstance(backends, str):
        raise UsageError(f"backends is a list of names: [{backends!r}]")
    chosen([*backends, *required])
    beside = Path(str(sys._getframe(1).f_globals.get("__file__", ""))).parent
    operators = _operators(pack, beside)
    cases = [
        pytest.param(op, dtype, backend, id=f"{op.name}-{dtype}-{backend}")
        for op in operators
        for dtype in (dtypes if dtypes is not None else accepted_dtypes(op))
        for backend in dict.fromkeys((*backends, *required))
    ]
    if gradients:
        cases += [pytest.param(op, "", GRADIENT, id=f"{op.name}-{GRADIENT}") for op in operators]

    @pytest.mark.parametrize(("operator", "dtype", "backend"), cases)
    def test_operator(operator: Operator, dtype: str, backend: str, tmp_path: Path) -> None:
        """The operator on this backend computes what its reference does."""
        if backend == GRADIENT:
            assert_gradient(operator, dtypes, seed=options.get("seed", 0))
            return
        assert_operator(operator, dtype, backend, folder=tmp_path, required=backend in required, **options)

    return test_operator


def _assert_passed(report: Report) -> None:
    __tracebackhide__ = True
    if report.exit_code != 0:
        from .validation.reports.failure import failure

        raise AssertionError(failure(report))


def _operators(pack: Any, beside: Path) -> list[Operator]:
    from .symbolic import registry
    from .symbolic.operator import Operator

    registry.load_builtin()
    found: dict[str, Operator] = {}
    for item in [pack] if isinstance(pack, (str, os.PathLike, Operator)) else pack:
        if isinstance(item, Operator):
            found[item.name] = item
            continue
        place = os.fspath(item)
        declared = registry.load([str(beside / place) if (beside / place).is_file() else place])
        if not declared:
            raise UsageError(f"{place} declares no operators: there is nothing to test")
        found |= {op.name: op for op in declared}
    if not found:
        raise UsageError("no operators are given: there is nothing to test")
    return list(found.values())


def _operator_report(op: Operator, dtype: str, backend: str, folder: Path, options: dict[str, Any]) -> Report:
    """One report of all the files that an operator's samples need, with every cell's `subject` the operator."""
    from .validation import validate
    from .validation.operator_run import joined
    from .validation.operators import operator_subjects
    from .validation.record import Report

    asked = {"latency": False, **options, "backends": [backend], "require": [backend]}
    reports = []
    for subject in operator_subjects(op, (dtype,), folder, options.get("seed", 0)):
        unchecked = tuple(replace(c, backend=backend) for c in subject.unchecked)
        reports.append(Report(op.name, "", unchecked, notes=subject.notes))
        if subject.onnx is not None and subject.samples:
            part = validate(subject.module, subject.onnx, samples=subject.samples, **asked)
            reports.append(replace(part, cells=tuple(replace(c, subject=op.name) for c in part.cells)))
    return replace(joined(reports), model=f"{op.name} in {dtype}", onnx="", files=())


def _not_checked(report: Report) -> str:
    from .validation.reports.plain_text import one_line

    why = [b.missing for b in report.backends if b.missing]
    why += [c.reason for c in report.cells if c.verdict == "not checked"]
    why += [f.text for f in report.findings if f.severity == "not checked"]
    return f"not checked: {one_line('; '.join(dict.fromkeys(filter(None, why))) or 'no sample was compared')}"
