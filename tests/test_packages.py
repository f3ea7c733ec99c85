"""Packages that cannot be installed leave tests out on a developer's machine, and fail them where they are required."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import packages

MISSING = "deployops-has-no-such-package"


@pytest.mark.parametrize(
    ("value", "outcome", "said"),
    [
        ("", pytest.skip.Exception, f"not checked: {MISSING} cannot be installed: .*{MISSING}"),
        ("0", pytest.skip.Exception, f"not checked: {MISSING} cannot be installed: .*{MISSING}"),
        ("1", pytest.fail.Exception, f"^{MISSING} cannot be installed: .*{packages.REQUIRED}=1"),
    ],
)
def test_a_package_that_cannot_be_installed(
    value: str, outcome: type[BaseException], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(packages.REQUIRED, value)
    monkeypatch.setattr(packages, "FOLDER", tmp_path)
    with pytest.raises(outcome, match=f"(?s){said}"):
        packages.installed("folder", [MISSING], "--no-index")
    assert not (tmp_path / "folder").exists()


def test_what_is_there_is_not_installed_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(packages.REQUIRED, "1")
    monkeypatch.setattr(packages, "FOLDER", tmp_path)
    (tmp_path / "folder").mkdir()
    assert packages.installed("folder", [MISSING], "--no-index") == tmp_path / "folder"
