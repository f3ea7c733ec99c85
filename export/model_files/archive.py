"""Open a zip archive of a model and check every byte of it, in memory and without trusting what it says.

torch reads such archives without looking at their checksums, so that a flipped bit in a weight passes
silently; here each member is read once, in chunks, against its CRC-32.
"""

from __future__ import annotations

import posixpath
import zipfile
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["Archive", "DamagedFileError", "open_archive"]

_CHUNK = 1 << 20
_END = b"PK\x05\x06"  # the end-of-central-directory record: 22 bytes and a comment of at most 65,535
_MAX_EXPANSION = 20  # torch stores members uncompressed; anything that grows more is no model


class DamagedFileError(Exception):
    """Bytes that contradict themselves; the message says where."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A verified archive. `names` are the members below `root`, the folder that torch puts around them."""

    zip: zipfile.ZipFile
    root: str
    names: tuple[str, ...]
    has_checksums: bool

    def read(self, name: str) -> bytes:
        """The bytes of a member, by its name below the root."""
        return self.zip.read(self.root + name)


def open_archive(stream: BinaryIO, size: int) -> Archive:
    """Open and verify. Raises DamagedFileError; closes nothing."""
    _check_end(stream, size)
    try:
        archive = zipfile.ZipFile(stream)
        members = archive.infolist()
        _check_members(members, size)
        # torch.serialization.set_crc32_options(False) writes zeros for all of them.
        has_checksums = any(member.CRC for member in members) or not any(m.file_size for m in members)
        if not has_checksums:
            for member in members:
                member.CRC = None  # type: ignore[assignment]  # zipfile then reads without checking
        for member in members:
            _check_member(archive, member)
    except DamagedFileError:
        raise
    except Exception as reason:
        # zipfile raises a dozen kinds on hostile input; each means that the archive cannot be read.
        raise DamagedFileError(f"its zip directory cannot be read ({_first_line(reason)})") from None
    names = [member.filename for member in members if not member.is_dir()]
    root = _common_root(names)
    return Archive(archive, root, tuple(name[len(root) :] for name in names), has_checksums)


def _check_end(stream: BinaryIO, size: int) -> None:
    start = max(0, size - 22 - 0xFFFF)
    stream.seek(start)
    tail = stream.read(size - start)
    at = tail.rfind(_END)
    if at < 0:
        raise DamagedFileError(f"it starts as a zip archive and its end is missing ({size:,} bytes)")
    comment_size = int.from_bytes(tail[at + 20 : at + 22], "little")
    if len(tail) != at + 22 + comment_size:
        raise DamagedFileError("it does not end where its zip directory says")


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    if not members:
        raise DamagedFileError("it is an empty zip archive")
    if min(member.header_offset for member in members) != 0:
        raise DamagedFileError("its zip directory does not begin with the first member")
    if sum(member.file_size for member in members) > _MAX_EXPANSION * size:
        raise DamagedFileError(f"it claims to expand to more than {_MAX_EXPANSION} times its size")
    seen: set[str] = set()
    for member in members:
        name = member.filename
        # torch finds members without regard to case: two such names could be read as each other.
        if name.casefold() in seen:
            raise DamagedFileError(f"it has two members named {name!r}")
        seen.add(name.casefold())
        if name != member.orig_filename or (name.endswith("/") and member.file_size):
            raise DamagedFileError(f"it has a member with a name that readers take differently: {name!r}")
        if name.startswith(("/", "\\")) or ".." in posixpath.normpath(name).split("/") or "\\" in name:
            raise DamagedFileError(f"it has a member with a path outside of it: {name!r}")
        if posixpath.normpath(name) != name.removesuffix("/"):
            raise DamagedFileError(f"it has a member whose path can be written shorter: {name!r}")


def _check_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    count = 0
    try:
        with archive.open(member) as content:
            while chunk := content.read(_CHUNK):
                count += len(chunk)
                if count > member.file_size:
                    break
    except Exception as reason:
        if "CRC" in str(reason):
            raise DamagedFileError(f"the checksum of {member.filename!r} does not match its bytes") from None
        raise DamagedFileError(f"{member.filename!r} cannot be read ({_first_line(reason)})") from None
    if count != member.file_size:
        raise DamagedFileError(f"{member.filename!r} has {count:,} bytes instead of {member.file_size:,}")


def _common_root(names: list[str]) -> str:
    roots = {name.split("/", 1)[0] if "/" in name else "" for name in names}
    root = roots.pop() if len(roots) == 1 else ""
    return root + "/" if root else ""


def _first_line(reason: BaseException) -> str:
    return (str(reason) or type(reason).__name__).splitlines()[0]
