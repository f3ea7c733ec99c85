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
        ("fresh::loop_names", "(i: Tensor, begin: Tensor, end: int = 3) -> Tensor"),
        ("fresh::no_defaults", "(a: torch.Tensor, m: Tensor | None, k: float = -1.5) -> Tensor"),
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
        (["fresh::odd_op", "--signature", "(x: Tensor, op: int = 1) -> Tensor"], "cannot be called `op`"),
        (["fresh::odd_par", "--signature", "(par: Tensor) -> Tensor"], "cannot be called `par`"),
        (["fresh::odd_arg", "--signature", f"({'x' * 300}: Tensor) -> Tensor"], "more than 100 characters"),
        (
            ["fresh::odd_list", "--signature", "(x: Tensor, w: list[str] = ['a']) -> Tensor"],
            "a list of texts",
        ),
        (["fresh::hard_swish"], "is a standard ONNX operator"),
    ],
)
def test_refused(arguments: list[str], words: str, command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("ops", "new", *arguments, "--into", tmp_path)
    assert done.code == 2
    assert words in done.err
    assert not list(tmp_path.iterdir()) or list(tmp_path.rglob("*.py")) == []


@pytest.mark.parametrize(
    "signature",
    [
        "(x: Tensor, a: float = open('ran', 'w') and 1.0) -> Tensor",
        "(x: Tensor, a: float = [open('ran', 'w') for _ in '1'][0]) -> Tensor",
        "(x: Tensor, a: float = (lambda: 1.0)) -> Tensor",
        "(x: Tensor, a: float = (b := 1.0)) -> Tensor",
        '(x: Tensor, *, a: float = f\'{open("ran", "w")}\') -> Tensor',
        "(x: Tensor, a: float = torch.ops.load_library) -> Tensor",
        "(x: Tensor, a: open('ran', 'w') = 1.0) -> Tensor",
        "(x: Tensor, a: \"open('ran', 'w')\" = 1.0) -> Tensor",
        "(x: Tensor, a: list[open('ran', 'w')] = 1.0) -> Tensor",
        "(x: Tensor) -> open('ran', 'w')",
        "(x: Tensor) -> tuple[Tensor, \"open('ran', 'w')\"]",
        "(x: Tensor, *a: open('ran', 'w')) -> Tensor",
        "(x: Tensor, **a: \"open('ran', 'w')\") -> Tensor",
        "(x: Tensor) -> Tensor: open('ran', 'w') #",
        "(x: Tensor) -> Tensor: ...\nopen('ran', 'w')\nif True",
        "(x: Tensor) -> Tensor:\n    open('ran', 'w')\n    if True",
        "_(x: Tensor) -> Tensor",
        "[T: open('ran', 'w')](x: Tensor) -> Tensor",
    ],
)
def test_a_signature_is_never_run(
    signature: str, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("ops", "new", "fresh::harmful", "--signature", signature)
    assert done.code == 2, done.err
    assert "the signature" in done.err
    assert list(tmp_path.iterdir()) == []


def test_literal_defaults_and_dtypes_are_taken(command: Callable[..., Any], tmp_path: Path) -> None:
    signature = (
        "(x: Tensor, a: float = -1.5, n: int | None = None, s: str = 'a', *, "
        "w: list[int] = [1, -2], d: torch.dtype = torch.float32, b: bool = True) -> Tensor"
    )
    done = command("ops", "new", "fresh::literals", "--signature", signature, "--into", tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "literals.py").read_text().count(f"{signature}:\n") == 2


@pytest.mark.parametrize("name", ["torch", "typing", "numpy", "math", "operator", "__main__", "Tensor", "_"])
def test_a_file_that_would_stand_for_a_module_is_not_written(
    name: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    done = command("ops", "new", f"acme::{name}", "--into", tmp_path)
    assert done.code == 2
    assert f"`{name}`" in done.err
    assert "give the operator another name" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [f"acme::{'x' * 300}", f"{'x' * 300}::y", f"acme::{'x' * 101}"])
def test_a_name_too_long_for_a_file(name: str, command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("ops", "new", name, "--into", tmp_path)
    assert done.code == 2
    assert "at most 100 characters" in done.err


def test_the_longest_name_and_a_folder_that_cannot_be(command: Callable[..., Any], tmp_path: Path) -> None:
    name = "fresh::" + "z" * 100
    done = command("ops", "new", name, "--into", tmp_path / ("y" * 300))
    assert (done.code, "cannot be written into" in done.err) == (2, True), done.err
    assert command("ops", "new", name, "--into", tmp_path).code == 0


def test_samples_have_a_scalar_and_one_without_what_is_optional(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    signature = "(a: Tensor, b: Tensor | None, c: Tensor | None = None) -> Tensor"
    done = command("ops", "new", "fresh::sampled", "--signature", signature, "--into", tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "sampled.py").read_text()
    assert "    yield draw.call(a=draw(), b=draw(), c=draw())\n" in text
    assert text.endswith("    yield draw.call(a=draw(3, 5), b=None)\n")


def test_a_declared_list_of_texts_gets_no_kernel(command: Callable[..., Any], tmp_path: Path) -> None:
    assert command("ops", "new", "fresh::texted", "--into", tmp_path).code == 0
    text = (tmp_path / "texted.py").read_text().replace("fresh::texted", "fresh::texted_list")
    file = tmp_path / "texted_list.py"
    text = text.replace("scale: float = 1.0", "words: list[str] | None = None").replace(
        "x, scale)", "x, words)"
    )
    file.write_text(text)
    done = command("ops", "new", "fresh::texted_list", "--ops", file)
    assert done.code == 2
    assert "`words` is a list of texts" in done.err


def test_nothing_is_overwritten(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "kept.h").write_text("mine")
    done = command("ops", "new", "fresh::kept", "--into", tmp_path)
    assert done.code == 2
    assert "is there already" in done.err
    assert (tmp_path / "kernels" / "kept.h").read_text() == "mine"
    assert not (tmp_path / "kept.py").exists()
