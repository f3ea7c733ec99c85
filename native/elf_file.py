"""A native library read as a file: for which machine it is, what it needs, what it shows. Nothing of it is loaded.

Of ELF files with 64 bits, as Linux has them. A file may be anybody's: every offset in it is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..errors import UsageError

__all__ = ["NativeLibrary", "NotElfError", "machine_of", "read_elf"]

_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64"}
_LARGEST = 2 << 30  # bytes of a file that is read; the largest libraries of CUDA have some hundred MB
_MOST = 1_000_000  # symbols, and entries of any list
_SHARED_OBJECT = 3
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_HASH, _GNU_HASH = 4, 0x6FFFFEF5
_VERSYM, _VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = (
    0x6FFFFFF0,
    0x6FFFFFFC,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_WEAK = 2

_T = TypeVar("_T")


class NotElfError(UsageError):
    """The file is no library for Linux; the text says what it is."""


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """What a library says of itself.

    Attributes:
        machine: `x86_64`, `aarch64`, ..., or its number.
        needed: names of libraries that the loader looks for.
        run_paths: where it looks first; `$ORIGIN` stands for the library's folder.
        needed_versions: by library, versions of symbols that it must have: {"libc.so.6": ("GLIBC_2.34",)}.
        versions: versions of symbols that this library has.
        defined: symbols that it shows.
        undefined: symbols that must come from elsewhere; weak ones are not among them.
    """

    path: Path
    machine: str
    needed: tuple[str, ...] = ()
    run_paths: tuple[str, ...] = ()
    needed_versions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    versions: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()


def read_elf(path: Path) -> NativeLibrary:
    """Read a shared library.

    Raises NotElfError for a file that is none, or a damaged one; UsageError where it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _interpreted(data, path, _Reader.library)


def machine_of(content: bytes) -> str:
    """For which machine a shared library is: `x86_64`, `aarch64`, ..., or its number. Raises NotElfError as `read_elf` does."""
    return _interpreted(content, Path(), lambda reader: reader.segments()[0])


def _interpreted(data: bytes, path: Path, read: Callable[[_Reader], _T]) -> _T:
    if data[:4] != b"\x7fELF":
        raise NotElfError(_what_it_is(data))
    try:
        return read(_Reader(data, path))
    except (struct.error, IndexError, ValueError, OverflowError):
        raise NotElfError("a damaged ELF file") from None


def _what_it_is(data: bytes) -> str:
    if not data:
        return "an empty file"
    if data[:2] == b"MZ":
        return "a library or program for Windows"
    if data[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"):
        return "a library or program for macOS"
    if data.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS, not the file itself (`git lfs pull` fetches it)"
    return "no library: it does not begin as an ELF file does"


class _Reader:
    def __init__(self, data: bytes, path: Path) -> None:
        self._data, self._path = data, path
        self._order = "<" if data[5] == 1 else ">"
        self._loads: list[tuple[int, int, int]] = []  # address, size, offset

    def segments(self) -> tuple[str, tuple[int, int]]:
        """The machine, and where the dynamic section is. All that is loaded is in the file: else a process would be killed
        by SIGBUS."""
        if self._data[4] != 2:
            raise NotElfError("a library for 32 bits")
        kind, machine = self._at("HH", 16)
        name = _MACHINES.get(machine, f"machine {machine}")
        if kind != _SHARED_OBJECT:
            raise NotElfError("an ELF file, but no shared library (build it with -shared)")
        [headers] = self._at("Q", 32)
        size, count = self._at("HH", 54)
        dynamic = (0, 0)
        for k in range(min(count, 4096)):
            at = headers + k * size
            [segment] = self._at("I", at)
            offset, address, _, length = self._at("QQQQ", at + 8)
            if offset + length > len(self._data) and len(self._data) < _LARGEST:
                raise NotElfError(
                    f"a damaged ELF file: it ends after {len(self._data):,} bytes, before all of it is there"
                )
            if segment == _LOAD:
                self._loads.append((address, length, offset))
            elif segment == _DYNAMIC:
                dynamic = (offset, length)
        return name, dynamic

    def library(self) -> NativeLibrary:
        name, dynamic = self.segments()
        tags: dict[int, list[int]] = {}
        for at in range(dynamic[0], dynamic[0] + min(dynamic[1], 16 * _MOST), 16):
            tag, value = self._at("qQ", at)
            if tag == 0:
                break
            tags.setdefault(tag, []).append(value)
        return self._described(name, tags)

    def _described(self, machine: str, tags: dict[int, list[int]]) -> NativeLibrary:
        if _STRTAB not in tags:
            return NativeLibrary(self._path, machine)
        start = self._offset(tags[_STRTAB][0])
        texts = self._data[start : start + tags.get(_STRSZ, [0])[0]]
        paths = [_text(texts, v) for v in tags.get(_RUNPATH, tags.get(_RPATH, []))]
        defined, undefined = set(), set()
        if _SYMTAB in tags:
            base = self._offset(tags[_SYMTAB][0])
            for k in range(1, self._symbols(tags)):
                name, info, _, section = self._at("IBBH", base + 24 * k)
                text = _text(texts, name)
                if section:
                    defined.add(text)
                elif info >> 4 != _WEAK:
                    undefined.add(text)
        return NativeLibrary(
            self._path,
            machine,
            tuple(_text(texts, v) for v in tags.get(_NEEDED, [])),
            tuple(part for path in paths for part in path.split(":") if part),
            dict(self._needed_versions(tags, texts)),
            frozenset(self._versions(tags, texts)),
            frozenset(defined),
            frozenset(undefined - defined - {""}),
        )

    def _symbols(self, tags: dict[int, list[int]]) -> int:
        """How many there are, which the hash tables alone tell."""
        if _HASH in tags:
            return min(int(self._at("II", self._offset(tags[_HASH][0]))[1]), _MOST)
        if _GNU_HASH not in tags:
            return 0
        at = self._offset(tags[_GNU_HASH][0])
        buckets, first, bloom, _ = self._at("IIII", at)
        chains = at + 16 + 8 * bloom + 4 * buckets
        last = max(self._at(f"{min(buckets, _MOST)}I", at + 16 + 8 * bloom), default=0)
        if last < first:
            return min(int(first), _MOST)
        while last < _MOST and not self._at("I", chains + 4 * (last - first))[0] & 1:
            last += 1
        return int(last) + 1

    def _needed_versions(
        self, tags: dict[int, list[int]], texts: bytes
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        if _VERNEED not in tags:
            return
        at = self._offset(tags[_VERNEED][0])
        for _ in range(min(tags.get(_VERNEEDNUM, [0])[0], _MOST)):
            _, count, file, auxiliary, following = self._at("HHIII", at)
            names, there = [], at + auxiliary
            for _ in range(count):
                _, flags, _, name, step = self._at("IHHII", there)
                if not flags & _WEAK:
                    names.append(_text(texts, name))
                there += step
            yield _text(texts, file), tuple(names)
            at += following

    def _versions(self, tags: dict[int, list[int]], texts: bytes) -> Iterator[str]:
        if _VERDEF not in tags:
            return
        at = self._offset(tags[_VERDEF][0])
        for _ in range(min(tags.get(_VERDEFNUM, [0])[0], _MOST)):
            _, _, _, _, _, auxiliary, following = self._at("HHHHIII", at)
            yield _text(texts, self._at("II", at + auxiliary)[0])
            at += following

    def _offset(self, address: int) -> int:
        for start, size, offset in self._loads:
            if start <= address < start + size:
                return offset + address - start
        raise ValueError("an address outside of the file")

    def _at(self, layout: str, offset: int) -> tuple[int, ...]:
        if offset < 0:
            raise ValueError("a negative offset")
        return struct.unpack_from(self._order + layout, self._data, offset)


def _text(texts: bytes, start: int) -> str:
    end = texts.find(b"\0", start)
    if start >= len(texts) or end < 0:
        raise ValueError("a name outside of its table")
    return texts[start:end].decode(errors="backslashreplace")
