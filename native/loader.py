"""What keeps a native library from loading on this machine, found as the loader would, without loading it."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..errors import UsageError
from .elf_file import NativeLibrary, NotElfError, read_elf

__all__ = ["LoadFault", "load_faults"]

_CACHE = Path("/etc/ld.so.cache")
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MOST_LIBRARIES = 500


@dataclass(frozen=True, slots=True)
class LoadFault:
    """`kind`: missing-library, missing-version or missing-symbol. `name`: of what is missing. `by`: who needs it."""

    kind: str
    name: str
    by: str


def load_faults(library: NativeLibrary, given: Sequence[str] = ()) -> list[LoadFault]:
    """What the loader would not find for a library of this machine's kind.

    Args:
        given: beginnings of names of libraries that the process has already, as the runtime that loads this one. Where
            such a one is needed and not found here, missing symbols are not looked for: it may have them.
    """
    found: dict[str, NativeLibrary] = {}
    faults, absent = [], False
    waiting = [(library, name) for name in library.needed]
    while waiting and len(found) < _MOST_LIBRARIES:
        by, name = waiting.pop()
        if name in found:
            continue
        there = _find(name, by)
        if there is not None:
            found[name] = there
            waiting += [(there, n) for n in there.needed]
        elif any(name.startswith(start) for start in given):
            absent = True
        else:
            faults.append(LoadFault("missing-library", name, by.path.name))
            absent = True
    for file, names in library.needed_versions.items():
        has = found[file].versions if file in found else None
        faults += [
            LoadFault("missing-version", f"{n} of {file}", library.path.name)
            for n in names
            if has is not None and n not in has
        ]
    if not absent:
        known = frozenset().union(*(other.defined for other in found.values()))
        missing = sorted(library.undefined - known)
        faults += [LoadFault("missing-symbol", name, library.path.name) for name in missing]
    return faults


def _find(name: str, by: NativeLibrary) -> NativeLibrary | None:
    for path in _places(name, by):
        try:
            there = read_elf(path) if path.is_file() else None
        except (NotElfError, UsageError, OSError, ValueError):
            continue
        if there is not None and there.machine == by.machine:
            return there
    return None


def _places(name: str, by: NativeLibrary) -> Iterator[Path]:
    if "/" in name:
        yield Path(name)
        return
    origin = str(by.path.resolve().parent)
    for folder in by.run_paths:
        yield Path(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) / name
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield Path(folder) / name
    for known in _cached().get(name, ()):
        yield Path(known)
    machine = platform.machine()
    for folder in (f"/lib/{machine}-linux-gnu", f"/usr/lib/{machine}-linux-gnu", *_FOLDERS):
        yield Path(folder) / name


@lru_cache(maxsize=1)
def _cached() -> dict[str, list[str]]:
    """What `ldconfig` knows: name -> paths. Nothing where the cache is none of glibc's."""
    try:
        data = _CACHE.read_bytes()
        start = data.find(b"glibc-ld.so.cache1.1")
        if start < 0:
            return {}
        [count] = struct.unpack_from("<I", data, start + 20)
        found: dict[str, list[str]] = {}
        for k in range(min(count, 1_000_000)):
            _, key, value, _, _ = struct.unpack_from("<iIIIQ", data, start + 48 + 24 * k)
            name, path = (data[at : data.index(b"\0", at)].decode() for at in (start + key, start + value))
            found.setdefault(name, []).append(path)
        return found
    except (OSError, struct.error, ValueError):
        return {}
