"""What a file is by its first bytes, and how each reader of ONNX models refuses one that is none.

Nothing is verified here and nothing is run: an archive is told by the names in it. Whether a model file is whole and safe to
load is for `export.model_files`, which asks this too. Nothing heavy is imported.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...errors import ModelFileError
from ..shown_text import shown

__all__ = [
    "ENGINE_TAGS",
    "HEAD",
    "MODEL_FIELDS",
    "UNVERIFIED",
    "FileKind",
    "archive_kind",
    "by_first_bytes",
    "kind_of_file",
    "no_onnx_model",
    "not_onnx",
]

HEAD = 4096  # bytes that are looked at

# Of an ONNX model of another tool.
UNVERIFIED = (
    "the model has no digest, which `deployops export` writes: whether it is what was exported cannot be told"
)

# How serialised engines of TensorRT begin, and of which TensorRT they are.
ENGINE_TAGS = {b"ftrt": "TensorRT", b"ptrt": "TensorRT", b"vtrt": "TensorRT-RTX"}
_ENGINE = "a serialized engine of {}; give the ONNX model that it was built from (`deployops engine show` says which)"

# (offset, bytes, what it is and what to do)
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras, perhaps); it holds no PyTorch model"),
    (0, b"GGUF", "a GGUF file (llama.cpp); it holds no PyTorch model"),
    (4, b"TFL3", "a TensorFlow Lite model; use the model that it was made from"),
    (4, b"PTMF", "a TorchScript model for mobile (flatbuffer); export the original instead"),
    (4, b"ORTM", "an ONNX Runtime model in ORT format; use the ONNX file it was made from"),
    (0, b"\x93NUMPY", "a NumPy array (.npy); give the model"),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"BZh", "a bzip2 archive; unpack it first"),
    (0, b"\xfd7zXZ\x00", "an xz archive; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a zstandard archive; unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    (0, b"Rar!\x1a\x07", "a RAR archive; unpack it first"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"\x7fELF", "a native library or program (ELF); a library of operators goes to --load-library"),
    (0, b"MZ", "a Windows program or library; give the model"),
    (0, b"\x89PNG", "a PNG image; give the model"),
    (0, b"\xff\xd8\xff", "a JPEG image; give the model"),
    (0, b"GIF8", "a GIF image; give the model"),
    (0, b"%PDF", "a PDF document; give the model"),
)

# onnx.ModelProto: field number -> wire type (0 varint, 2 length-delimited)
MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_LARGEST_HEADER = 100_000_000  # of safetensors

_EXPORT = "`deployops export` makes an ONNX model of it"
# What `export` takes: of the kinds below those that are models of PyTorch.
_EXPORTED = ("exported-program", "torchscript", "torch-save", "pickle", "module", "checkpoint")


@dataclass(frozen=True, slots=True)
class FileKind:
    """`kind`: one word, as `export.model_files.Kind` has them. `description`: what it is and what to do, one phrase."""

    kind: str
    description: str


def by_first_bytes(head: bytes, size: int) -> FileKind:
    """What a file of `size` bytes is that begins with `head` (up to `HEAD` bytes); "unknown" where nothing tells."""
    if size == 0:
        return FileKind("empty", "an empty file (0 bytes): the copy or download did not finish; get it again")
    if head.startswith(b"PK\x03\x04"):
        return FileKind("zip", "a zip archive; unpack it first")
    if len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5:  # a pickle's protocol
        return FileKind("pickle", "a pickle, as torch.save wrote before 1.6")
    if len(head) > 8 and int.from_bytes(head[:8], "little") <= _LARGEST_HEADER and head[8:9] == b"{":
        return FileKind("safetensors", "a safetensors file: named tensors without a model")
    if head.startswith(b"version https://git-lfs.github.com/"):
        return FileKind("lfs-pointer", _lfs_pointer(head))
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:32].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        text = "a web page (a login or error page, perhaps), not the file itself; download it again"
        return FileKind("html", text)
    if head[:4] in ENGINE_TAGS:
        return FileKind("engine", _ENGINE.format(ENGINE_TAGS[head[:4]]))
    for offset, magic, description in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return FileKind("other", description)
    # an `ir_version` from 1 to 30 first, as every writer puts it, then another field of the model
    if len(head) >= 3 and head[0] == 0x08 and 1 <= head[1] <= 30 and _is_field(head[2]):
        return FileKind("onnx", "an ONNX model")
    if b"\x00" not in head and _is_text(head):
        first = head.decode("utf-8", "replace").split("\n", 1)[0].strip()
        return FileKind("text", f"a text file that begins {first[:60]!r}; give the model")
    if not any(head):
        return FileKind("unknown", "a file that begins with zeros: a copy that did not finish, perhaps")
    return FileKind("unknown", f"no model format known here (first bytes {head[:8].hex(' ')})")


def kind_of_file(path: str | os.PathLike[str]) -> FileKind | None:
    """What a file is by its first bytes, and an archive by its names; None where it cannot be read."""
    try:
        if not Path(path).is_file():  # a pipe would block
            return None
        with open(path, "rb") as stream:
            return _kind(stream, os.fstat(stream.fileno()).st_size)
    except (OSError, ValueError):
        return None


def archive_kind(names: Iterable[str]) -> FileKind:
    """What a zip archive is by the names of its members; torch puts one folder around them all, and minds no case."""
    members = [name for name in names if not name.endswith("/")]
    roots = {name.split("/", 1)[0] if "/" in name else "" for name in members}
    root = roots.pop() if len(roots) == 1 else ""
    inside = {name[len(root) + 1 if root else 0 :].casefold() for name in members}
    if "serialized_exported_program.json" in inside:
        text = "a torch.export archive in the format of PyTorch 2.7 and before"
        return FileKind("old-exported-program", text)
    if root and "archive_format" in inside:
        if any(name.startswith("data/aotinductor/") for name in inside):
            return FileKind("aoti", "an AOTInductor package: compiled native code")
        if any(name.startswith("models/") for name in inside):
            return FileKind("exported-program", "a torch.export archive (.pt2)")
    if root and "constants.pkl" in inside and any(name.startswith("code/") for name in inside):
        return FileKind("torchscript", "a TorchScript archive")
    if root and "data.pkl" in inside:
        return FileKind("torch-save", "what torch.save wrote (.pt)")
    if root and ".data/extern_modules" in inside:
        return FileKind("torch-package", "a torch.package archive: Python source and pickles")
    first = f" (it holds {members[0]!r:.80})" if members else ""
    return FileKind("zip", f"a zip archive that torch did not write{first}; unpack it first")


def not_onnx(path: str | os.PathLike[str], kind: FileKind) -> ModelFileError:
    """That a file is something else, what, and what to do."""
    advice = f"; {_EXPORT}" if kind.kind in _EXPORTED else ""
    return ModelFileError(f"{shown(path)} is not an ONNX model but {kind.description}{advice}")


def no_onnx_model(path: str | os.PathLike[str], otherwise: str = "") -> ModelFileError:
    """The error for a file that could not be read as an ONNX model: what it is instead.

    `otherwise`: the whole message where it may have been one (it begins as ONNX models do, or as nothing known here).
    """
    kind = kind_of_file(path)
    if kind is None or kind.kind in ("onnx", "unknown"):
        again = "Copy it again, or export the model anew"
        return ModelFileError(otherwise or f"{shown(path)}: damaged, or not an ONNX model. {again}")
    return not_onnx(path, kind)


def _kind(stream: BinaryIO, size: int) -> FileKind:
    kind = by_first_bytes(stream.read(HEAD), size)
    if kind.kind != "zip":
        return kind
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive_kind(archive.namelist())
    except Exception:  # zipfile raises a dozen kinds on hostile input
        text = "a zip archive that is damaged (a PyTorch file, perhaps); get it again from its source"
        return FileKind("zip", text)


def _lfs_pointer(head: bytes) -> str:
    real = next((line[5:] for line in head.split(b"\n") if line.startswith(b"size ")), b"")
    size = f" ({int(real):,} bytes)" if real.isdigit() and len(real) < 16 else ""
    return f"a Git LFS pointer, not the file itself{size}; run `git lfs pull`"


def _is_field(tag: int) -> bool:
    return MODEL_FIELDS.get(tag >> 3) == (tag & 7)


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8", "replace")
    odd = sum(letter == "\ufffd" or not (letter.isprintable() or letter.isspace()) for letter in text)
    return odd <= min(2, len(text) // 8)  # as a character cut at the end of the head
