"""The C++ compiler and the binutils: found, asked once what they are, and refused where they will not do."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ..errors import NotCheckedError, UsageError
from .processes import Finished, ProcessError, run

__all__ = ["Compiler", "file_identity", "find_binutils", "find_cxx", "search_folders", "variables"]

# C++17 and -march=x86-64-v3.
_OLDEST = {"gcc": 11, "clang": 12}
_WANTED = "g++ 11 or newer, or clang++ 12 or newer"
_INSTALL = "Debian and Ubuntu: `apt install g++`; Fedora: `dnf install gcc-c++`"
_INSTALL_BINUTILS = "Debian and Ubuntu: `apt install binutils`; Fedora: `dnf install binutils`"
_LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")
_OLDEST_BINUTILS = (2, 29)  # `ld --force-group-allocation`
# What compilers read besides their command line, and what changes their output.
_VARIABLES = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    "NIX_CFLAGS_COMPILE",
    "NIX_LDFLAGS",
    "SDKROOT",
)
_PROBE_LIMIT = 60.0  # seconds; a compiler on a network drive may take several

_PROBE = """\
#if __has_include(<vector>)
#define DEPLOYOPS_STANDARD_LIBRARY
#endif
"""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that can build our libraries.

    Attributes:
        path: the program, absolute, as it was found: links are not followed, a compiler knows itself by its name.
        kind: what it is, whatever its name says.
        version: its full version line, `gcc version 12.2.0 (Debian 12.2.0-14)`.
        target: what it compiles for, `x86_64-linux-gnu`.
    """

    path: Path
    kind: Literal["gcc", "clang"]
    version: str
    target: str

    @property
    def identity(self) -> str:
        """A text that differs wherever another compiler would be at work, an upgraded one included.

        It holds kind, version, target, and the sizes and times of the program files: the file behind the name
        and, as that of gcc is only a driver, the compiler proper behind it. It holds no path.
        """
        files = [file_identity(self.path)]
        if self.kind == "gcc":
            files.append(file_identity(_program_behind(self.path, "cc1plus", file_identity(self.path))))
        return "\n".join((self.kind, self.version, self.target, *files))


def file_identity(path: Path) -> str:
    """Size and time of the file behind a name; empty where there is none."""
    try:
        found = path.resolve().stat()
    except OSError:
        return ""
    return f"{found.st_size} {found.st_mtime_ns}"


def variables() -> tuple[tuple[str, str], ...]:
    """The environment variables that change what a compiler does, where set."""
    return tuple((name, os.environ[name]) for name in _VARIABLES if os.environ.get(name))


def find_cxx(choice: str | None = None) -> Compiler:
    """The compiler to use: `choice`, else $CXX, else g++, else clang++.

    Args:
        choice: a name on PATH, or a path. Also `ccache g++`: a compiler launcher in front is left out, as objects
            are cached here anyway. Options are refused. The same holds for $CXX.

    Raises:
        UsageError: the compiler asked for is not there, is no C++ compiler, or will not do.
        NotCheckedError: none was asked for, and the machine has none that will do.
    """
    if choice:
        return _asked_for(choice, f"the compiler `{choice}`")
    asked = os.environ.get("CXX", "").strip()
    if asked:
        return _asked_for(asked, f"the compiler `{asked}` (from $CXX)")
    reasons = []
    for name in ("g++", "clang++"):
        path = shutil.which(name)
        if path is None:
            reasons.append(f"{name} is not on PATH")
            continue
        try:
            return _probe(Path(path).absolute(), f"the compiler `{name}`")
        except UsageError as error:
            reasons.append(str(error))
    raise NotCheckedError(
        f"no C++ compiler on this machine will do: {'; '.join(reasons)}. "
        f"Install {_WANTED} ({_INSTALL}), or name one in $CXX"
    )


def _asked_for(text: str, what: str) -> Compiler:
    # Asked first as a whole: a path may hold spaces.
    path = shutil.which(os.path.expanduser(text))
    if path is not None:
        return _probe(Path(path).absolute(), what)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{what}: not a command: {error}") from None
    if len(words) > 1 and Path(words[0]).name in _LAUNCHERS:
        words = words[1:]
    if len(words) > 1:
        raise UsageError(
            f"{what}: only the name or path of the compiler is taken, without options: {words[0]}"
        )
    path = shutil.which(os.path.expanduser(words[0])) if words else None
    if path is None:
        there = bool(words) and Path(words[0]).expanduser().exists()
        reason = "is not a program that may be run" if there else "there is no such program"
        raise UsageError(f"{what}: {reason}. Give {_WANTED}: a name on PATH, or a path ({_INSTALL})")
    return _probe(Path(path).absolute(), what)


def _probe(path: Path, what: str) -> Compiler:
    if re.fullmatch(r"(.*-)?(gcc|clang|cc)(-[\d.]+)?", path.name):
        plus = re.sub(
            r"gcc|cc", lambda m: "g++" if m[0] == "gcc" else "c++", path.name.replace("clang", "clang++")
        )
        raise UsageError(f"{what}: compiles C, and links no C++ library. Give `{plus}`")
    return _judged(_answer(path, file_identity(path), (), variables(), what), path, what)


def _judged(answer: Finished, path: Path, what: str) -> Compiler:
    macros = dict(re.findall(r"^#define (\w+) ?(.*)$", answer.out, re.MULTILINE))
    version = re.search(r"^(gcc version .*|.*\bclang version .*)$", answer.err, re.MULTILINE)
    target = re.search(r"^Target: (\S+)$", answer.err, re.MULTILINE)
    foreign = {"__EDG__", "__INTEL_COMPILER", "__NVCOMPILER", "__CUDACC__"} & macros.keys()
    if answer.code != 0 or version is None or target is None or foreign or "__GNUC__" not in macros:
        said = next((line for line in (answer.err + answer.out).splitlines() if line.strip()), "nothing")
        raise UsageError(
            f"{what}: not a C++ compiler that we know. Asked for its version, {path} ended with status "
            f"{answer.code} and said: {said[:200]}. Give {_WANTED} ({_INSTALL})"
        )
    kind: Literal["gcc", "clang"] = "clang" if "__clang__" in macros else "gcc"
    major = int(macros["__clang_major__" if kind == "clang" else "__GNUC__"])
    if major < _OLDEST[kind]:
        raise UsageError(
            f"{what}: too old: {version[0].strip()}. {_WANTED} is needed, for C++17 and the x86-64 levels ({_INSTALL})"
        )
    if "__ELF__" not in macros:
        raise UsageError(
            f"{what}: compiles for {target[1]}, and libraries are built for platforms with ELF files only, as Linux is"
        )
    if "DEPLOYOPS_STANDARD_LIBRARY" not in macros:
        raise UsageError(
            f"{what}: finds no C++ standard library (<vector>). Debian and Ubuntu: `apt install g++` brings one; "
            "or give another compiler"
        )
    return Compiler(path, kind, version[0].strip(), target[1])


# Identity and variables are arguments so that another program under the same path is asked anew.
@lru_cache
def _answer(
    path: Path, identity: str, flags: tuple[str, ...], settings: tuple[tuple[str, str], ...], what: str
) -> Finished:
    """Version and search path (stderr), predefined macros (stdout)."""
    try:
        return run(
            [path, *flags, "-v", "-x", "c++", "-std=c++17", "-E", "-dM", "-"], text=_PROBE, limit=_PROBE_LIMIT
        )
    except ProcessError as error:
        raise UsageError(f"{what}: {error}. Give {_WANTED} ({_INSTALL})") from None


@lru_cache
def _program_behind(driver: Path, name: str, identity: str) -> Path:
    found = run([driver, f"-print-prog-name={name}"], limit=_PROBE_LIMIT).out.strip()
    return Path(shutil.which(found) or found)


def search_folders(compiler: Compiler, flags: Sequence[str]) -> tuple[str, ...]:
    """The folders where the compiler looks for headers by itself, those that do not exist included."""
    what = f"the compiler `{compiler.path}`"
    answer = _answer(compiler.path, file_identity(compiler.path), tuple(flags), variables(), what)
    listed = re.search(
        r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", answer.err, re.S | re.M
    )
    if answer.code != 0 or listed is None:
        said = next((line for line in answer.err.splitlines() if "error:" in line), answer.err[-200:])
        raise UsageError(f"{compiler.path} does not take the flags {shlex.join(flags)}: {said}")
    absent = re.findall(r'^ignoring nonexistent directory "(.*)"$', answer.err, re.MULTILINE)
    return (*(line.strip() for line in listed[1].splitlines()), *absent)


def find_binutils(name: str, target: str = "") -> Path:
    """A program of the GNU binutils: `ld`, `objcopy`, `nm`, `strip`.

    Args:
        target: what the compiler compiles for; for another processor than this one's, its own binutils are taken
            (`aarch64-linux-gnu-objcopy`).

    Raises NotCheckedError where it is not there, is another project's (lld, gold), or is too old.
    """
    names = [f"{name}.bfd", name] if name == "ld" else [name]  # `ld` may be any linker, `ld.bfd` is the one
    if target and target.split("-")[0] != os.uname().machine:
        names = [f"{target}-{n}" for n in names]
    path = next((found for n in names if (found := shutil.which(n))), None)
    if path is None:
        raise NotCheckedError(
            f"`{names[-1]}` is not on PATH, and libraries are put together with it. "
            f"Install the GNU binutils ({_INSTALL_BINUTILS})"
        )
    _expect_gnu(Path(path), file_identity(Path(path)))
    return Path(path).absolute()


@lru_cache
def _expect_gnu(path: Path, identity: str) -> None:
    try:
        line = (run([path, "--version"], limit=_PROBE_LIMIT).out.splitlines() or [""])[0]
    except ProcessError as error:
        line = str(error)
    version = re.match(r"GNU \S+ .*?(\d+)\.(\d+)", line)
    if version is None or tuple(map(int, version.groups())) < _OLDEST_BINUTILS or " gold " in line:
        raise NotCheckedError(
            f"{path} is not of the GNU binutils 2.29 or newer; it calls itself: {line[:200]}. "
            f"Libraries are put together with them ({_INSTALL_BINUTILS})"
        )
