"""What the tests of the build machinery share: the machine's compilers, a cache of their own, and compilers that misbehave."""

from __future__ import annotations

import ctypes
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deployops.native.compilers import Compiler, find_cxx
from deployops.native.object_cache import Cache, CompileJob

FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")


@pytest.fixture(params=["g++", "clang++"])
def compiler(request: pytest.FixtureRequest) -> Compiler:
    if shutil.which(request.param) is None:
        pytest.skip(f"not checked: no {request.param} on this machine")
    return find_cxx(request.param)


@pytest.fixture
def gcc() -> Compiler:
    if shutil.which("g++") is None:
        pytest.skip("not checked: no g++ on this machine")
    return find_cxx("g++")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """``script(name, text)``: a shell script on the disk, that can be run."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / "scripts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return write


@dataclass(frozen=True)
class Counted:
    """A compiler that leaves a mark for each object it is asked to compile."""

    compiler: Compiler
    marks: Path

    @property
    def runs(self) -> int:
        return len(self.marks.read_text()) if self.marks.exists() else 0


@pytest.fixture
def wrapped(script: Callable[..., Path]) -> Callable[[Compiler, str], Compiler]:
    """``wrapped(compiler, on_compile)``: the compiler, with shell commands to run when it is to make an object.

    They may use $real, the compiler itself, and go on to it where they do not end the script.
    """

    def wrap(compiler: Compiler, on_compile: str) -> Compiler:
        real = shlex.quote(str(compiler.path))
        text = f'real={real}\ncase " $* " in *" -c "*)\n{on_compile}\n;; esac\nexec "$real" "$@"'
        return replace(compiler, path=script(compiler.path.name, text))

    return wrap


@pytest.fixture
def counted(gcc: Compiler, tmp_path: Path, wrapped: Callable[[Compiler, str], Compiler]) -> Counted:
    marks = tmp_path / "marks"
    return Counted(wrapped(gcc, f"printf x >> {shlex.quote(str(marks))}"), marks)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., CompileJob]:
    """``job(compiler, source, *include_dirs, ...)``: one whose entry is `extern "C" int entry()`."""

    def make(
        compiler: Compiler, source: str, *include_dirs: Path, name: str = "kernel", keep: str | None = "entry"
    ) -> CompileJob:
        return CompileJob(name, source, compiler, FLAGS, include_dirs, keep)

    return make


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., int]:
    """``call(cache, job, entry="entry")``: compile, link, load, and call a function without arguments."""
    count = 0

    def run(cache: Cache, job: CompileJob, entry: str = "entry") -> int:
        nonlocal count
        count += 1
        shown = '__attribute__((visibility("default")))'
        exported = f'extern "C" int {entry}(); extern "C" {shown} int go() {{ return {entry}(); }}'
        front = CompileJob("front", exported, job.compiler, FLAGS, ())
        library = cache.link([cache.compile(front), cache.compile(job)], job.compiler, (), "libtest.so")
        copy = tmp_path / f"loaded-{count}.so"  # a library of the same path is loaded only once
        shutil.copy(library, copy)
        value: int = ctypes.CDLL(str(copy)).go()
        return value

    return run
