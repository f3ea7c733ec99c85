"""What a process loads under a path is what the file holds then, not what it held before."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deployops.errors import UsageError
from deployops.native.compilers import Compiler
from deployops.native.loaded_libraries import current_library

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not checked: the loader of Linux")


@pytest.fixture
def build(gcc: Compiler, tmp_path: Path) -> Callable[[int, Path], None]:
    """``build(7, path)``: a library there whose `value()` is 7; what is there is replaced."""

    def make(value: int, path: Path) -> None:
        source = tmp_path / "source.c"
        source.write_text(f"int value() {{ return {value}; }}\n")
        made = tmp_path / "made.so"
        soname = "-Wl,-soname,libsame.so"
        subprocess.run(
            [str(gcc.path), "-x", "c", "-shared", "-fPIC", soname, "-o", str(made), str(source)], check=True
        )
        os.replace(made, path)

    return make


def value(path: Path) -> int:
    found: int = ctypes.CDLL(str(current_library(path))).value()
    return found


def test_a_library_that_was_rebuilt_is_loaded_anew(
    build: Callable[[int, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "libsame.so"
    build(1, path)
    first = ctypes.CDLL(str(current_library(path)))
    build(2, path)
    assert ctypes.CDLL(str(path)).value() == 1  # the loader alone: this is what the rest is about
    assert value(path) == 2
    assert first.value() == 1
    build(3, path)
    assert value(path) == 3
    build(1, path)
    assert value(path) == 1
    assert value(path) == 1


def test_the_path_itself_is_used_as_long_as_it_serves(
    build: Callable[[int, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "libsame.so"
    build(1, path)
    assert current_library(path) == path
    assert value(path) == 1
    assert current_library(path) == path


def test_two_of_one_name_are_two(build: Callable[[int, Path], None], tmp_path: Path) -> None:
    paths = [tmp_path / name / "libsame.so" for name in "ab"]
    for k, path in enumerate(paths):
        path.parent.mkdir()
        build(k, path)
    assert [value(path) for path in paths] == [0, 1]


def test_a_library_that_somebody_else_loaded_before(
    build: Callable[[int, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "lib same.so"
    build(1, path)
    assert ctypes.CDLL(str(path)).value() == 1
    build(2, path)
    assert value(path) == 2


def test_a_link_to_a_library_that_is_turned_to_another(
    build: Callable[[int, Path], None], tmp_path: Path
) -> None:
    link = tmp_path / "current.so"
    for k in (1, 2):
        build(k, tmp_path / f"v{k}.so")
    link.symlink_to("v1.so")
    assert value(link) == 1
    link.unlink()
    link.symlink_to("v2.so")
    assert value(link) == 2


def test_a_library_that_is_overwritten_while_it_is_loaded(
    build: Callable[[int, Path], None], tmp_path: Path
) -> None:
    path, other = tmp_path / "libsame.so", tmp_path / "other.so"
    build(1, path)
    build(2, other)
    # in a process of its own: the loaded code changes under it
    code = (
        "import ctypes, shutil, sys; from pathlib import Path\n"
        "from deployops.native.loaded_libraries import current_library\n"
        "a, b = map(Path, sys.argv[1:])\n"
        "c = ctypes.CDLL(str(current_library(a))); shutil.copyfile(b, a); current_library(a)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path), str(other)], capture_output=True, text=True)
    assert "was overwritten while this process had it loaded" in done.stderr


def test_one_that_is_overwritten_before_it_is_loaded_is_no_trouble(
    build: Callable[[int, Path], None], tmp_path: Path
) -> None:
    path, other = tmp_path / "libsame.so", tmp_path / "other.so"
    build(1, path)
    build(2, other)
    current_library(path)
    shutil.copyfile(other, path)
    assert value(path) == 2


def test_a_library_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        current_library(tmp_path / "absent.so")


def test_a_part_of_a_library(build: Callable[[int, Path], None], tmp_path: Path) -> None:
    """The loader maps it all the same, and the process is killed where it reads what is not there."""
    path = tmp_path / "libsame.so"
    build(1, path)
    whole = path.read_bytes()
    for part in (0.02, 0.3, 0.6):
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(UsageError, match="a damaged ELF file"):
            current_library(path)


def test_a_library_for_another_machine(build: Callable[[int, Path], None], tmp_path: Path) -> None:
    """The loader says that there is no such file."""
    path = tmp_path / "libsame.so"
    build(1, path)
    content = bytearray(path.read_bytes())
    content[18] = 183 if content[18] != 183 else 62  # e_machine: EM_AARCH64, EM_X86_64
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"is a library for .*; this machine is {platform.machine()}"):
        current_library(path)
