"""What a compiler says of a kernel, in the terms of whoever wrote the kernel.

Errors are told at the lines of the user's own files, also where the compiler found them deep inside a header: then the
user's line is the one that asked for it. A chain of template instantiations is cut down to its start, `while compiling
swish for float16`. For this, the generated source marks what it asks for with a comment line

    // dtype: float16

which holds for the lines up to the next such comment; the text after the colon is free.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import DeployOpsError
from .argument_messages import (
    is_about_attributes,
    is_about_streams,
    of_any_types,
    plain_arguments,
    workspace_signature,
)
from .compiler_output import Diagnostic, Place, read_output
from .processes import Finished

__all__ = ["CompileError", "crash_of", "explain", "explained", "warnings_in"]

_LONGEST = 400  # characters of one message
_SYSTEM = re.compile(r"/include/c\+\+/|/lib/gcc/|/lib/clang/|^/usr/include/|^/usr/lib/")
_MARK = re.compile(r"^\s*// dtype: (.+?)\s*$")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`'‘\"]?(.+?)['’\"]?$")
_INCLUDED = re.compile(r'^#include "((?!deployops/)[^"]+)"', re.MULTILINE)
_OBJECT = re.compile(r"(?:^|[\s/])(?:\d+-)?([\w.+-]+?)\.o\b")


class CompileError(DeployOpsError):
    """A kernel that does not compile or link.

    Attributes:
        output: everything that the compiler said.
        log: the file that holds it, with the command.
    """

    exit_code = 2

    def __init__(self, message: str, *, output: str = "", log: Path | None = None) -> None:
        super().__init__(message)
        self.output = output
        self.log = log


def explain(
    stderr: str,
    user_files: Sequence[Path],
    *,
    generated: str = "",
    kernel: str = "",
    signature: str = "",
    limit: int = 5,
) -> str:
    """The errors in a compiler's or linker's output, as text for the user; several outputs may be strung together.

    Each comes once, with the source line and a caret, the dtypes it occurs for, and up to two notes. The same mistake
    at another dtype or instruction-set level is the same error.

    Args:
        stderr: with full paths for what lies in the include folders. What has no folder is the generated source.
        user_files: files, or folders of files, that the user wrote. None given: all but those of the system.
        generated: the generated source, for its `// dtype:` marks.
        kernel: the operator, as users know it.
        signature: how the kernel has to be declared. An error in the generated call itself says that it is not, and
            is told so.
        limit: of errors; then comes how many more there are.
    """
    reader = _Reader(user_files, generated, kernel)
    told = _merged(d for d in read_output(stderr) if d.severity in ("error", "fatal error"))
    grouped = reader.group(told)
    parts = [reader.mismatch(g, signature) if g.call and signature else reader.text(g) for g in grouped]
    parts = list(dict.fromkeys(parts))
    parts += _link_errors(stderr)
    if not parts:
        return "the compiler failed and said:\n" + "\n".join(
            stderr.strip().splitlines()[-20:] or ["(nothing)"]
        )
    more = len(parts) - limit
    if more > 0:
        parts[limit:] = [f"… and {more} more error{'s' if more > 1 else ''}"]
    return "\n".join(parts)


def explained(
    error: CompileError, user_files: Sequence[Path], *, generated: str, kernel: str, signature: str
) -> CompileError:
    """The same failure, told for a kernel. Arguments as for `explain`."""
    text = explain(error.output, user_files, generated=generated, kernel=kernel, signature=signature)
    return CompileError(text, output=error.output, log=error.log)


def warnings_in(
    stderr: str, user_files: Sequence[Path], *, generated: str = "", kernel: str = ""
) -> list[str]:
    """The warnings at the user's own lines, each once, as texts to show; arguments as for `explain`."""
    reader = _Reader(user_files, generated, kernel)
    found = reader.group(d for d in read_output(stderr) if d.severity == "warning")
    return [reader.text(g) for g in found if reader.is_user(g.place)]


def crash_of(done: Finished, compiler: str, what: str) -> str:
    """What to say where the compiler itself broke down; empty where it refused the source in order."""
    err = done.err
    if re.search(
        r"\bKilled\b|Killed signal terminated|out of memory|std::bad_alloc|virtual memory exhausted", err
    ) or (done.code == -signal.SIGKILL):
        return (
            f"{what}: {compiler} was ended from outside, most likely as memory ran out. "
            "Compile with fewer jobs at once, or on a machine with more memory"
        )
    ended = f"by signal {signal.Signals(-done.code).name}" if done.code < 0 else f"with status {done.code}"
    if done.code < 0 or re.search(
        r"internal compiler error|PLEASE (submit|ATTACH)|failed due to signal", err
    ):
        lines = [line for line in err.splitlines() if "internal compiler error" in line or "error:" in line]
        said = f": {lines[0][:_LONGEST]}" if lines else ""
        return (
            f"{what}: {compiler} crashed ({ended}){said}. That is a fault of the compiler: "
            "try another version or another compiler"
        )
    return ""


@dataclass(slots=True)
class _Group:
    """One mistake: the same message at the same line, for however many dtypes."""

    first: Diagnostic
    place: Place  # where it is told
    call: bool  # it is about the generated call of the kernel
    dtypes: list[str] = field(default_factory=list)


def _merged(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Without the errors that only say that there were errors."""
    empty = re.compile(
        r"too many errors|linker command failed|ld returned \d+|all warnings being treated|.*-Werror\]$"
    )
    return [d for d in found if d.place.path or not empty.match(d.message)]


class _Reader:
    def __init__(self, user_files: Sequence[Path], generated: str, kernel: str) -> None:
        self._users = [os.path.realpath(path) for path in user_files]
        self._kernel = kernel
        included = _INCLUDED.findall(generated)
        self._file = included[-1] if included else ""  # of the kernel, as the generated source names it
        self._marks: list[str] = [""]  # by line number of the generated source
        for line in generated.splitlines():
            mark = _MARK.match(line)
            self._marks.append(mark[1] if mark is not None else self._marks[-1])

    def is_user(self, place: Place) -> bool:
        if "/" not in place.path:
            return False
        if not self._users:
            return not _SYSTEM.search(place.path)
        path = os.path.realpath(place.path)
        return any(path == user or path.startswith(f"{user}{os.sep}") for user in self._users)

    @staticmethod
    def is_generated(place: Place) -> bool:
        return bool(place.path) and "/" not in place.path

    def group(self, found: Iterable[Diagnostic]) -> list[_Group]:
        groups: dict[tuple[Place, str], _Group] = {}
        for d in found:
            place = next((p for p in (d.place, *d.calls) if self.is_user(p)), d.place)
            call = self.is_generated(place) and d.severity == "error"
            # Messages differ in the types that they name, and each dtype has a call of its own.
            key = Place(place.path, 0) if call else place, of_any_types(d.message)
            group = groups.setdefault(key, _Group(d, place, call))
            dtype = next((n for p in (d.place, *d.calls) if (n := self._mark(p))), "")
            if dtype and dtype not in group.dtypes:
                group.dtypes.append(dtype)
        return list(groups.values())

    def _mark(self, place: Place) -> str:
        known = self.is_generated(place) and place.line < len(self._marks)
        return self._marks[place.line] if known else ""

    def text(self, group: _Group) -> str:
        d = group.first
        severity = "error" if d.severity == "fatal error" else d.severity
        at = f"{_shown(group.place)}: " if group.place.path else ""
        lines = [f"{at}{severity}: {_short(d.message)}", *self._excerpt(d, group.place)]
        if group.place != d.place:
            lines.append(f"  found in {_shown(d.place)}, which this line asks for")
        lines += [f"  {_shown(n.place)}: {_short(n.message)}" for n in d.notes if self.is_user(n.place)][:2]
        return "\n".join([*lines, *self._for_dtypes(group)])

    def mismatch(self, group: _Group, signature: str) -> str:
        """The generated call does not fit what the user wrote."""
        d = group.first
        name = f" `{self._kernel}`" if self._kernel else ""
        what = f"there is no kernel{name} with"
        said = [d.message, *(n.message for n in d.notes)]
        if of_workspace := workspace_signature(signature, said):
            what, signature = f"the workspace function of{name or ' the kernel'} does not have", of_workspace
        lines = [
            f"{what} the signature that the declaration calls for. In namespace deployops, expected:",
            *(f"    {line}" for line in signature.strip().splitlines()),
        ]
        if any(map(is_about_attributes, said)):
            lines.append("  (an attribute goes to a parameter of exactly its type: nothing is converted)")
        if any(map(is_about_streams, said)):
            lines.append(
                "  (its file says that there are several tactics, or that it needs workspace: a cudaStream_t has neither, `Stream` "
                "has both, `stream.tactic` and `stream.workspace`)"
            )
        lines.append(f"  the compiler says: {_short(plain_arguments(d.message))}")
        for note in d.notes:
            if note.message.endswith("substitution failed:"):  # the reason follows
                continue
            if self.is_user(note.place):
                lines.append(f"  {_shown(note.place)}: {_short(plain_arguments(note.message))}")
            elif self.is_generated(note.place):
                lines.append(f"    {_short(plain_arguments(note.message))}")
        if self._file and not any(self.is_user(n.place) for n in d.notes):
            lines.append(f"  the kernel's file is {self._file}")
        return "\n".join([*lines[:9], *self._for_dtypes(group)])

    def _for_dtypes(self, group: _Group) -> list[str]:
        if not group.dtypes:
            return []
        kernel = f"{self._kernel} for " if self._kernel else ""
        return [f"  while compiling {kernel}{', '.join(group.dtypes)}"]

    @staticmethod
    def _excerpt(d: Diagnostic, place: Place) -> list[str]:
        excerpt = d.excerpt if place == d.place else []
        if not excerpt and place.line:
            try:
                with open(place.path, encoding="utf-8", errors="replace") as stream:
                    line = stream.read().split("\n")[place.line - 1]
            except (OSError, IndexError):
                return []
            # The column counts bytes.
            before = line.encode()[: max(place.column - 1, 0)].decode(errors="ignore")
            excerpt = [line, re.sub(r"[^\t]", " ", before) + "^"] if place.column else [line]
        margins = (f"{place.line:5} | ", "      | ")
        return [margin + line.rstrip() for margin, line in zip(margins, excerpt, strict=False)]


def _link_errors(stderr: str) -> list[str]:
    """Undefined symbols, each once, with the objects that use them."""
    users: dict[str, list[str]] = {}
    source = ""
    for line in stderr.splitlines():
        inside = _OBJECT.search(line)
        source = inside[1] if inside is not None else source
        missing = _UNDEFINED.search(line)
        if missing is not None and source not in (who := users.setdefault(missing[1], [])):
            who.append(source)
    texts = []
    for symbol, who in users.items():
        used = f", used in {', '.join(w for w in who if w)}" if any(who) else ""
        texts.append(
            f"undefined: {symbol}{used}. Define it in a header of the kernel, as a template or `inline`, or link its library"
        )
    duplicate = re.search(r"multiple definition of [`'‘\"](.+?)['’\"]", stderr)
    if duplicate is not None:
        texts.append(
            f"defined more than once: {duplicate[1]}. What a kernel's header defines has to be a template or `inline`"
        )
    return texts


def _shown(place: Place) -> str:
    path = os.path.normpath(place.path)
    near = os.path.relpath(path) if os.path.isabs(path) else path
    path = near if not near.startswith("..") else path
    return ":".join((path, str(place.line), *([str(place.column)] if place.column else [])))


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
