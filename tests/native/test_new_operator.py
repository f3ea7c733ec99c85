"""`deployops ops new`: three files that agree with each other and run before anything is written into them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("fresh::smooth_step", None),
        (
            "fresh::two_of",
            "(a: Tensor, bias: Tensor | None = None, k: int = 2, *, mode: str = 'm') -> tuple[Tensor, Tensor]",
        ),
        ("fresh::of_list", "(xs: list[Tensor], weights: list[float]) -> Tensor"),
    ],
)
def test_what_is_written_passes_its_own_test(
    name: str, signature: str | None, command: Callable[..., Any], tmp_path: Path
) -> None:
    extra = ["--signature", signature] if signature else []
    done = command("ops", "new", name, *extra, "--into", tmp_path)
    assert done.code == 0, done.err
    short = name.partition("::")[2]
    assert done.out.split() == [
        str(tmp_path / f"{short}.py"),
        str(tmp_path / "kernels" / f"{short}.h"),
        str(tmp_path / f"test_{short}.py"),
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{short}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "2 passed" in ran.stdout, ran.stdout[-3000:]


def test_the_test_fails_where_kernel_and_reference_differ(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    assert command("ops", "new", "fresh::unequal", "--into", tmp_path).code == 0
    kernel = tmp_path / "kernels" / "unequal.h"
    kernel.write_text(kernel.read_text().replace("y[i] = x[i];", "y[i] = T(wide_t<T>(x[i]) * 1.001f);"))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_unequal.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout[-3000:]
    assert "an error of" in ran.stdout


def test_a_declared_operator_gets_its_kernel_alone(command: Callable[..., Any], tmp_path: Path) -> None:
    assert command("ops", "new", "fresh::known_one", "--into", tmp_path).code == 0
    for leftover in ("kernels/known_one.h", "test_known_one.py"):
        (tmp_path / leftover).unlink()
    done = command("ops", "new", "fresh::known_one", "--ops", tmp_path / "known_one.py")
    assert done.code == 0, done.err
    assert (
        'throw InputError("the kernel of fresh::known_one is not written yet")'
        in (tmp_path / "kernels" / "known_one.h").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plain"], "`namespace::name`"),
        (["a::class"], "`namespace::name`"),
        (["fresh::odd_one", "--signature", "(x: Tensor"], "is no Python"),
        (["fresh::odd_two", "--signature", "(n: int) -> Tensor"], "no tensor to start from"),
        (["fresh::hard_swish"], "is a standard ONNX operator"),
    ],
)
def test_refused(arguments: list[str], words: str, command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("ops", "new", *arguments, "--into", tmp_path)
    assert done.code == 2
    assert words in done.err
    assert not list(tmp_path.iterdir()) or list(tmp_path.rglob("*.py")) == []


def test_nothing_is_overwritten(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "kept.h").write_text("mine")
    done = command("ops", "new", "fresh::kept", "--into", tmp_path)
    assert done.code == 2
    assert "is there already" in done.err
    assert (tmp_path / "kernels" / "kept.h").read_text() == "mine"
    assert not (tmp_path / "kept.py").exists()
