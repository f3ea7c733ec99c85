"""What a compiled object depends on: the headers it was made from, and the places where other ones could turn up.

A record of dependencies holds two things. `files`: every file that the compiler read, by its content; the headers of
the system are among them, as a compiler's version does not tell the version of the C library, or of what else lies in
/usr/include. The lookups: every name that an `#include` or `__has_include` in these files spells, and every folder
where the compiler would look for it. A name that appears in one of these folders, or vanishes, makes the record void:
a new header cannot shadow a recorded one unnoticed.

The names are found by reading the directives as text, those in branches not taken included: more names are watched
than needed. Where a directive spells no name (`#include MACRO`), the names of all files that were read and all names
that a macro spells stand in for it. What cannot be seen so: `__has_include` of a name that macros put together from
pieces, where no such file exists. Objects whose assembler code reads a file (`.incbin`) are not recorded.

They are kept in two parts. Within a process, the part of the system's headers is taken as it was found up to a second
ago (see `object_cache`); the user's files are looked at each time.

A path is kept by its role, `include-1/deployops/simd.h` under the second include folder, or else absolute, so that
records hold in another checkout.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from .file_contents import FILES

__all__ = ["Dependencies", "Part", "actual_path", "dependencies_of", "read_depfile", "role_folder"]


def role_folder(index: int) -> str:
    """What the include folder of that index is called, in records and in the eyes of the compiler."""
    return f"include-{index}"


def actual_path(role: str, include_dirs: Sequence[Path]) -> str:
    """The path behind a role."""
    if role.startswith("/"):
        return role
    folder, _, rest = role.partition("/")
    base = str(include_dirs[int(folder.removeprefix("include-"))])
    return f"{base}/{rest}" if rest else base


def read_depfile(text: bytes) -> list[str]:
    """The prerequisites in a Make rule as gcc and clang write it (`-MD`): the first is the source itself."""
    _, _, listed = text.replace(b"\\\n", b" ").partition(b":")
    paths = []
    for word in re.findall(rb"(?:\\.|[^\\\s])+", listed):
        # `\ ` and `\#` stand for themselves, `$$` for one, and only backslashes before a blank are doubled.
        plain = re.sub(rb"(\\*)\\([ \t#])", lambda m: b"\\" * (len(m[1]) // 2) + m[2], word)
        paths.append(os.fsdecode(plain.replace(b"$$", b"$")))
    return paths


# A directive may be written `%:include`, and hold comments and continued lines.
_BLANK = rb"(?:[ \t]|\\\r?\n|/\*.*?\*/)*"
_NAME = _BLANK + rb'(<[^>\n]+>|"[^"\n]+"|[^\s<"])'
_ASKS = re.compile(
    rb"(?:#|%:)" + _BLANK + rb"(?:include_next|include|import|embed)\b" + _NAME
    + rb"|__has_(?:include_next|include|embed)\b" + _BLANK + rb"\(?" + _NAME,
    re.DOTALL,
)  # fmt: skip
_MACRO = re.compile(rb'#[ \t]*define[ \t]+\w+[ \t]+(<[^>\n]+>|"[^"\n]+")')


@dataclass(frozen=True, slots=True)
class _Scan:
    """What a file asks for: names in angle brackets, names in quotes, and whether it asks in other ways."""

    angled: frozenset[str]
    quoted: frozenset[str]
    computed: bool
    in_macros: frozenset[str]
    reads_binary: bool


def _scan(text: bytes) -> _Scan:
    tokens = {os.fsdecode(a or b) for a, b in _ASKS.findall(text)}
    return _Scan(
        frozenset(t[1:-1] for t in tokens if t[0] == "<"),
        frozenset(t[1:-1] for t in tokens if t[0] == '"'),
        any(t[0] not in '<"' for t in tokens),
        frozenset(os.fsdecode(t)[1:-1] for t in _MACRO.findall(text)),
        b".incbin" in text,
    )


Grouped = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the files that an object was made from, and what these files ask for.

    Attributes:
        files: role and sha256 of each file that was read.
        search: roles of the folders where the compiler looks for headers.
        names: what it looks for there: folder part of the names -> last parts.
        beside: what it looks for in other places, as beside the file that asks: role of the folder -> names.
        present: a hash of which of all these names exist.
    """

    files: tuple[tuple[str, str], ...]
    search: tuple[str, ...]
    names: Grouped
    beside: Grouped
    present: str

    def hold(self, include_dirs: Sequence[Path]) -> bool:
        """Whether the compiler would read the same again."""
        return (
            all(FILES.digest(actual_path(role, include_dirs)) == digest for role, digest in self.files)
            and _present(self.search, self.names, self.beside, include_dirs) == self.present
        )

    def changed_since(self, moment: float, include_dirs: Sequence[Path]) -> bool:
        """Whether one of the files or folders shows a change since that time (in s since the epoch)."""
        looked_in = (posixpath.join(folder, inner) for folder in self.search for inner in self.names)
        roles = {role.rstrip("/") or "/" for role in (*(r for r, _ in self.files), *self.beside, *looked_in)}
        return any(FILES.changed(actual_path(role, include_dirs)) >= moment for role in roles)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Part:
        """Raises KeyError, TypeError, AttributeError or ValueError for anything else than what `to_json` made."""
        value = json.loads(text)
        return cls(
            tuple((role, digest) for role, digest in value["files"]),
            tuple(value["search"]),
            {folder: tuple(names) for folder, names in value["names"].items()},
            {folder: tuple(names) for folder, names in value["beside"].items()},
            value["present"],
        )


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What an object was made from: headers of the system, hundreds, the same for many objects; and all others."""

    own: Part
    system: Part

    def changed_since(self, moment: float, include_dirs: Sequence[Path]) -> bool:
        return any(part.changed_since(moment, include_dirs) for part in (self.own, self.system))


def dependencies_of(
    source: str, roles: Sequence[str], include_dirs: Sequence[Path], folders: Sequence[str]
) -> Dependencies | None:
    """The dependencies of a source text that made the compiler read the files of these roles.

    Args:
        folders: where the compiler looks for headers besides `include_dirs`.

    Returns None where they cannot be followed.
    """
    files = {}
    scans = {"": _scan(source.encode())}
    for role in roles:
        content = FILES.scanned(actual_path(role, include_dirs), _scan) if _ROLE.match(role) else None
        if content is None:
            return None
        files[role], scans[role] = content
    # What the user put on the search path through the environment is no more settled than the include folders.
    named = {f for v in ("CPATH", "CPLUS_INCLUDE_PATH") for f in os.environ.get(v, "").split(os.pathsep)}
    system = {role for role in files if any(role.startswith(f"{f}/") for f in folders if f not in named)}
    if any(scan.reads_binary for role, scan in scans.items() if role not in system):
        return None
    search = (*(role_folder(k) for k in range(len(include_dirs))), *folders)
    computed = {posixpath.dirname(role) for role, scan in scans.items() if scan.computed}

    def part(chosen: Iterable[str]) -> Part:
        asking = {role: scans[role] for role in chosen}
        names, beside = _lookups(asking, computed, search)
        found = tuple((role, files[role]) for role in sorted(asking) if role)
        return Part(found, search, names, beside, _present(search, names, beside, include_dirs))

    return Dependencies(part(scans.keys() - system), part(system))


_ROLE = re.compile(r"/|include-\d+/")


def _lookups(
    asking: Mapping[str, _Scan], computed: set[str], search: Sequence[str]
) -> tuple[Grouped, Grouped]:
    """The names that some files give to look for: in all folders of the search path, and in particular ones.

    `computed`: the folders of files that ask without spelling a name.
    """
    everywhere: set[str] = set()
    beside: dict[str, set[str]] = {}
    if computed:
        for scan in asking.values():
            everywhere |= scan.in_macros
        for folder in (*search, *computed):
            everywhere.update(r.removeprefix(f"{folder}/") for r in asking if r.startswith(f"{folder}/"))
        for folder in computed:
            beside.setdefault(folder, set()).update(everywhere)
    if "" in asking:  # gcc takes a precompiled header in place of one that the source itself includes
        everywhere |= {f"{name}.gch" for name in asking[""].angled | asking[""].quoted}
    for role, scan in asking.items():
        everywhere |= scan.angled | scan.quoted
        if scan.quoted:
            beside.setdefault(posixpath.dirname(role), set()).update(scan.quoted)
    # The source itself lies in a folder of its own, with nothing beside it.
    beside.pop("", None)
    near: dict[str, set[str]] = {}
    for folder, wanted in (("/", {n for n in everywhere if n.startswith("/")}), *beside.items()):
        for inner, last in _grouped(wanted).items():
            near.setdefault(posixpath.join(folder, inner), set()).update(last)
    return (
        _grouped(n for n in everywhere if not n.startswith("/")),
        {folder: tuple(sorted(last)) for folder, last in sorted(near.items())},
    )


def _grouped(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, set[str]] = {}
    for name in names:
        inner, last = posixpath.split(name)
        grouped.setdefault(inner, set()).add(last)
    return {inner: tuple(sorted(last)) for inner, last in sorted(grouped.items())}


def _present(search: Sequence[str], names: Grouped, beside: Grouped, include_dirs: Sequence[Path]) -> str:
    digest = sha256()

    def add(role: str, wanted: Sequence[str]) -> None:
        there = FILES.listing(actual_path(role, include_dirs)).intersection(wanted)
        if there:
            digest.update("\0".join((role, *sorted(there), "\1")).encode(errors="surrogateescape"))

    for folder, wanted in beside.items():
        add(folder, wanted)
    for inner, wanted in names.items():
        for folder in search:
            add(f"{folder}/{inner}" if inner else folder, wanted)
    return digest.hexdigest()
