"""Kernels that are compiled once for many tests: those that come with deployops, and those with a planted fault."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deployops.errors import NotCheckedError
from deployops.symbolic import registry
from deployops.symbolic.checking.tally import CheckResult
from deployops.symbolic.operator import Operator
from deployops.trt_plugins.emulation.build import Sanitizer
from deployops.trt_plugins.emulation.check import emulate
from deployops.trt_plugins.emulation.library import EmulatedLibrary, emulated_library


def _planted() -> ModuleType:
    if "planted_kernels" not in sys.modules:
        spec = importlib.util.spec_from_file_location("planted_kernels", Path(__file__).parent / "planted.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["planted_kernels"] = module
        spec.loader.exec_module(module)
    return sys.modules["planted_kernels"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for kind in ("always", "races", "address"):
        if f"{kind}_fault" in metafunc.fixturenames:
            metafunc.parametrize(f"{kind}_fault", getattr(_planted(), kind.upper()))


@pytest.fixture(scope="session")
def shipped() -> dict[str, Operator]:
    """The operators that come with deployops, by the name of their kernel."""
    registry.load_builtin()
    return {
        op.name.partition("::")[2]: op for op in registry.all_operators() if op.name.startswith("deployops::")
    }


@pytest.fixture(scope="session")
def emulated(shipped: dict[str, Operator]) -> Iterator[EmulatedLibrary]:
    """All shipped kernels, without a sanitizer."""
    with emulated_library(list(shipped.values())) as library:
        yield library


class _Results:
    """What `emulate` says of planted kernels, all compiled at once."""

    def __init__(self, folder: Path, sanitize: Sanitizer | None, names: list[str]) -> None:
        planted = _planted()
        operators = registry.load([str(planted.plant(folder, names))])
        try:
            results = emulate(operators, sanitize=sanitize)
        finally:
            for op in operators:
                registry.remove(op)
        self._results = {r.operator.removeprefix("planted::"): r for r in results}

    def __getitem__(self, name: str) -> CheckResult:
        return self._results[name]

    def expect(self, name: str, faults: Mapping[str, Any]) -> None:
        result = self._results[name]
        assert result.status == "failed", f"the planted fault was not found: {result.detail}"
        assert re.search(faults[name].said, result.detail, re.DOTALL), result.detail


def _results(kind: str, sanitize: Sanitizer | None) -> Callable[..., _Results]:
    @pytest.fixture(scope="session")
    def results(tmp_path_factory: pytest.TempPathFactory) -> _Results:
        planted = _planted()
        names = [*getattr(planted, kind.upper()), *planted.SOUND_ONES]
        try:
            return _Results(tmp_path_factory.mktemp(kind), sanitize, names)
        except NotCheckedError as e:
            pytest.skip(f"not checked: {e}")

    return results


always = _results("always", None)
races = _results("races", "thread")
address = _results("address", "address")
