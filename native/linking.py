"""Linking a shared library: the command, what went into it besides its objects, and where it is put."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from ..errors import UsageError
from .compilers import Compiler, file_identity
from .file_contents import FILES
from .file_lock import locked_folder
from .output_files import replace_file
from .processes import run

__all__ = ["MADE", "files_taken", "link_command", "linker_identity", "put_library", "writing_library"]

MADE = "library.so"  # what the command writes


def link_command(compiler: Compiler, flags: Sequence[str], out_name: str, inputs: Sequence[str]) -> list[str]:
    """The command; it lists the files that the linker takes."""
    # clang leaves the symbols of sanitizers to the program that loads the library.
    defined = () if any(flag.startswith("-fsanitize") for flag in flags) else ("-Wl,-z,defs",)
    return [
        str(compiler.path), "-shared", *inputs, *flags, *defined, f"-Wl,-soname,{out_name}", "-Wl,--trace",
        "-o", MADE,
    ]  # fmt: skip


def linker_identity(compiler: Compiler, flags: Sequence[str]) -> str:
    """A text that differs wherever another linker would be at work, or a file that a flag names has changed."""
    chosen = next((flag.partition("=")[2] for flag in reversed(flags) if flag.startswith("-fuse-ld=")), "")
    path = shutil.which(chosen if os.path.isabs(chosen) else f"ld.{chosen}") if chosen else None
    if path is None:
        path = str(_default_linker(compiler.path, file_identity(compiler.path)))
    named = (FILES.digest(part) for flag in flags for part in re.split("[=,]", flag) if os.path.isabs(part))
    return " ".join((file_identity(Path(path)), *named))


@lru_cache
def _default_linker(driver: Path, identity: str) -> Path:
    found = run([driver, "-print-prog-name=ld"]).out.strip()
    return Path(shutil.which(found) or found)


def files_taken(trace: str, folder: Path) -> list[str]:
    """Start files, archives and libraries in what the linker listed; `folder` is where it ran."""
    taken = set()
    for line in trace.splitlines():
        # An archive's member is `archive.a(member.o)`, of older binutils `(archive.a)member.o`.
        path = re.sub(r"^\((.*)\)[^()/]*$", r"\1", line.strip())
        path = path if os.path.isfile(path) else re.sub(r"\([^()]*\)$", "", path)
        if os.path.isabs(path) and os.path.isfile(path) and not path.startswith(f"{folder}/"):
            taken.add(os.path.normpath(os.path.realpath(path)))
    return sorted(taken)


@contextlib.contextmanager
def writing_library(folder: Path) -> Iterator[None]:
    """In the block, no other process writes a library and its manifest into `folder`, which is made.

    Else two builds at once could leave the library of the one and the manifest of the other.

    Raises UsageError where the folder cannot be made, or another process does not let go of it.
    """
    _make(folder)
    with locked_folder(folder):
        yield


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"{folder} cannot be made: {e.strerror}") from None


def put_library(built: Path, folder: Path, name: str) -> Path:
    """Copy a library from the cache to `folder/name`; the folder is made. Raises UsageError where that is not possible.

    A library that a process has loaded is replaced, never overwritten; one that is right already is left alone.
    """
    _make(folder)
    path = folder / name
    if FILES.digest(str(path)) != FILES.digest(str(built)):
        replace_file(path, lambda temporary: shutil.copyfile(built, temporary), executable=True)
    return path
