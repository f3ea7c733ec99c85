"""Tell what a model file is, by its content and never by its extension, without running anything of it.

Nothing here imports torch, numpy or onnx. Integrity comes first: every member of a zip archive is read
against its checksum, and formats with lengths are checked against the size of the file.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from ...errors import ModelFileError
from ...symbolic.graph_inspection.file_kind import HEAD, FileKind, archive_kind, by_first_bytes
from ...symbolic.shown_text import printable, shown
from .archive import Archive, DamagedFileError, open_archive
from .pickle_scan import scan_pickle, unsafe_globals
from .program_scan import scan_program
from .script_scan import scan_script
from .wire_formats import check_onnx, check_safetensors

__all__ = [
    "NO_CHECKSUMS",
    "Kind",
    "ModelFile",
    "identify",
    "identify_stream",
    "open_model_file",
]


NO_CHECKSUMS = "no checksums"


class Kind(str, Enum):
    """What a file is. The first five are models that deployops works with."""

    EXPORTED_PROGRAM = "exported-program"
    TORCHSCRIPT = "torchscript"
    MODULE = "module"
    CHECKPOINT = "checkpoint"
    ONNX = "onnx"
    OLD_EXPORTED_PROGRAM = "old-exported-program"
    AOTI = "aoti"
    TORCH_PACKAGE = "torch-package"
    SAFETENSORS = "safetensors"
    PICKLE = "pickle"
    ZIP = "zip"
    LFS_POINTER = "lfs-pointer"
    HTML = "html"
    TEXT = "text"
    ENGINE = "engine"
    EMPTY = "empty"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What is known of a file without loading it.

    `description`: one phrase for people. `globals`: what its pickles would import, such as
    "torch._utils._rebuild_tensor_v2". `unsafe_globals`: those beyond tensors and plain containers, and
    whatever else of the file would run code when it is loaded.
    """

    path: Path
    kind: Kind
    size: int
    description: str
    globals: tuple[str, ...] = ()
    unsafe_globals: tuple[str, ...] = ()


def identify(path: str | os.PathLike[str]) -> ModelFile:
    """Read a file and say what it is.

    Raises ModelFileError for a missing or unreadable file, a directory, and a damaged file (a truncated
    archive, a checksum that does not match).
    """
    with open_model_file(path) as stream:
        return identify_stream(stream, Path(path))


@contextmanager
def open_model_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading; what cannot be opened is a ModelFileError."""
    try:
        # Before opening: a pipe would block.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise ModelFileError(f"{shown(path)} is a directory; give the model file in it")
        if not stat.S_ISREG(mode):
            raise ModelFileError(f"{shown(path)} is not a regular file")
        stream = open(path, "rb")  # noqa: SIM115  # closed below, where errors of the body are not ours
    except FileNotFoundError:
        raise ModelFileError(f"{shown(path)} does not exist") from None
    except (OSError, ValueError) as reason:
        raise ModelFileError(
            f"{shown(path)} cannot be read: {getattr(reason, 'strerror', None) or reason}"
        ) from None
    with stream:
        yield stream


def identify_stream(stream: BinaryIO, path: Path) -> ModelFile:
    """`identify` for a file that is open already, so that the same bytes are looked at and loaded."""
    try:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        head = stream.read(HEAD)
        stream.seek(0)
        return _identified(stream, path, size, head)
    except DamagedFileError as reason:
        raise ModelFileError(
            f"{shown(path)}: the file is damaged: {printable(str(reason))}; get it again from its source"
        ) from None
    except (OSError, MemoryError) as reason:
        raise ModelFileError(f"{shown(path)} cannot be read: {printable(str(reason))}") from None


def _identified(stream: BinaryIO, path: Path, size: int, head: bytes) -> ModelFile:
    seen = by_first_bytes(head, size)
    if seen.kind == "zip":
        return _archive(open_archive(stream, size), path, size)
    if seen.kind == "pickle":
        return _pickle(stream, path, size, legacy=head[2:].startswith(_LEGACY_MAGIC))
    if seen.kind == "safetensors":
        check_safetensors(stream, size)
    if seen.kind == "onnx":
        check_onnx(stream, size)
    if seen.kind in ("text", "unknown"):
        scan = scan_pickle(_Bounded(stream, size))  # type: ignore[arg-type]
        if not scan.error and scan.end == size:
            # Protocols 0 and 1 carry no mark; a file that is one from its first byte to its last is taken for a
            # pickle.
            suffix = f" (a plain pickle, not by torch.save; {NO_CHECKSUMS})"
            return _unpickled(path, size, scan.globals, scan.holds_module, suffix, bare=True)
    return _known(path, size, seen)


def _known(path: Path, size: int, seen: FileKind) -> ModelFile:
    return ModelFile(path, Kind(seen.kind), size, seen.description)


_LEGACY_MAGIC = (
    b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # a LONG1 of 10 bytes: torch's magic number
)


def _archive(archive: Archive, path: Path, size: int) -> ModelFile:
    file = _archive_kind(archive, path, size)
    if archive.has_checksums:
        return file
    return dataclasses.replace(file, description=f"{file.description} ({NO_CHECKSUMS})")


def _archive_kind(archive: Archive, path: Path, size: int) -> ModelFile:
    # torch's reader finds members without regard to case, and so does this; the scans refuse other spellings.
    seen = archive_kind(archive.root + name for name in archive.names)
    if seen.kind == "exported-program":
        program = scan_program(archive.names, archive.read)
        return dataclasses.replace(
            _known(path, size, seen), globals=program.globals, unsafe_globals=program.unsafe
        )
    if seen.kind == "torchscript":
        script = scan_script(archive.names, archive.read)
        return dataclasses.replace(
            _known(path, size, seen), globals=script.globals, unsafe_globals=script.unsafe
        )
    if seen.kind == "torch-save":
        return _saved(archive, path, size)
    return _known(path, size, seen)


def _saved(archive: Archive, path: Path, size: int) -> ModelFile:
    if any(
        name.casefold().startswith("code/") for name in archive.names
    ):  # torch.jit.save raised before its constants
        raise DamagedFileError("it is a TorchScript archive that was not written to its end")
    data = next(name for name in archive.names if name.casefold() == "data.pkl")
    pickled = scan_pickle(archive.read(data))
    if pickled.error:
        raise DamagedFileError(f"its pickle cannot be read ({pickled.error})")
    if any(name.startswith("__torch__.") for name in pickled.globals):
        raise DamagedFileError(
            "it is a TorchScript archive that was not written to its end: its code is missing"
        )
    return _unpickled(path, size, pickled.globals, pickled.holds_module, "")


def _pickle(stream: BinaryIO, path: Path, size: int, *, legacy: bool) -> ModelFile:
    source = _Bounded(stream, size)
    found: dict[str, None] = {}
    holds_module = False
    # torch's old format is five pickles in a row (magic, protocol, system, object, storage keys), then raw
    # storages.
    for _ in range(5 if legacy else 1):
        scan = scan_pickle(source)  # type: ignore[arg-type]  # genops needs read, readline and tell
        found.update(dict.fromkeys(scan.globals))
        holds_module = holds_module or scan.holds_module
        if scan.error:
            raise DamagedFileError(f"it starts as a pickle that cannot be read to its end ({scan.error})")
    if not legacy and scan.end != size:
        found["(more data after the pickle)"] = None
    how = "in torch.save's format before 1.6" if legacy else "a plain pickle, not by torch.save"
    return _unpickled(path, size, tuple(found), holds_module, f" ({how}; {NO_CHECKSUMS})", bare=not legacy)


def _unpickled(
    path: Path, size: int, found: tuple[str, ...], holds_module: bool, suffix: str, *, bare: bool = False
) -> ModelFile:
    unsafe = unsafe_globals(found)
    tensors = any(name.startswith("torch._utils._rebuild") for name in found)
    if unsafe and (
        holds_module or any(name.startswith(("torch.nn.modules.", "torch.fx.")) for name in unsafe)
    ):
        kind, text = Kind.MODULE, "a pickled module"
    elif tensors or (not unsafe and not bare):
        kind, text = Kind.CHECKPOINT, "a state dict or checkpoint"
        if unsafe:
            text = "a checkpoint with Python objects beyond tensors"
    else:
        kind, text = Kind.PICKLE, "a pickle without tensors"
    return ModelFile(path, kind, size, text + suffix, tuple(sorted(found)), unsafe)


class _Bounded:
    """A stream that never asks for more than the file holds, whatever length a pickle claims."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._size = stream, size

    def read(self, count: int) -> bytes:
        return self._stream.read(max(0, min(count, self._size - self._stream.tell())))

    def readline(self) -> bytes:
        return self._stream.readline()

    def tell(self) -> int:
        return self._stream.tell()
