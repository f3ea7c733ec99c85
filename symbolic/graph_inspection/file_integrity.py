"""Is a model file what was written? Digest, structure, and the side files that belong to it.

The digest is the sha256 of the file with the digest's own 64 characters set to zeros. It covers the graph,
inline weights and metadata; the metadata name each side file with its size and sha256. Files are hashed
in chunks, and those with a digest are not parsed: no weight is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...errors import ModelFileError
from ..nested_graphs import graphs_within
from ..shown_text import printable, shown
from .file_kind import no_onnx_model

if TYPE_CHECKING:
    import onnx

__all__ = [
    "DATA_KEY",
    "DIGEST_KEY",
    "DIGEST_MARK",
    "FITTED_KEY",
    "MANIFEST_KEY",
    "NO_DIGEST",
    "PRODUCER",
    "EditedFileError",
    "read_manifest",
    "read_model",
    "side_file",
    "verify_digest",
    "verify_exported",
    "verify_structure",
]

# The producer, near the file's start, tells that a digest near its end is missing.
PRODUCER = "deployops"
DIGEST_KEY = "deployops.digest"
DATA_KEY = "deployops.data"
MANIFEST_KEY = "deployops.manifest"
# Of a model that `fit_plugin_nodes` changed for TensorRT: it is no file of an export any more, and has no digest.
FITTED_KEY = "deployops.fitted"
NO_DIGEST = "0" * 64
# How protobuf writes the metadata entry up to the digest: key is field 1, value field 2 with 64 bytes.
DIGEST_MARK = b"\x0a" + bytes([len(DIGEST_KEY)]) + DIGEST_KEY.encode() + b"\x12\x40"

_PRODUCER, _GRAPH, _METADATA = 2, 7, 14  # fields of onnx.ModelProto
_WIRE_SIZE = {1: 8, 5: 4}
_CHUNK = 1 << 20
_MOST_BYTES = (1 << 31) - 1  # of a protobuf message


class EditedFileError(ModelFileError):
    """The file, or a side file of it, is not what was exported: another tool wrote it again, or it is damaged."""


def verify_digest(path: str | os.PathLike[str]) -> None:
    """Check that the model at `path`, with its side files, is as `write_model` left it.

    A model of another tool, without a digest, is checked for structure and complete side files only.

    Raises:
        EditedFileError: damaged, or edited after export.
        ModelFileError: cut short, no ONNX model, or separated from its side file.
    """
    path = Path(path)
    with _opened(path) as stream:
        header = _read_header(stream, path)
        if header.producer != PRODUCER and not any(key.startswith(f"{PRODUCER}.") for key in header.metadata):
            return verify_structure(path)
        stored = header.metadata.get(DIGEST_KEY)
        if stored is None and FITTED_KEY in header.metadata:
            _check_own_side_files(path, header.metadata)
            return verify_structure(path)
        if stored is None:
            raise EditedFileError(
                f"{shown(path)}: exported by deployops, and its digest is gone: another tool wrote it again (an optimiser, "
                "a quantiser), or it is damaged. Take the file as it was exported, or export the model anew."
            )
        if _digest(stream, header.digest_at, len(stored)) != stored:
            raise EditedFileError(
                f"{shown(path)}: content does not match its digest: damaged or edited after export. "
                "Copy it again, or export the model anew."
            )
    return _check_own_side_files(path, header.metadata)


def verify_exported(path: str | os.PathLike[str]) -> bool:
    """`verify_digest` for a file that has a digest; whether it has one. Nothing is said of other files, not even what they are.

    Raises:
        EditedFileError: damaged, or edited after export.
        ModelFileError: separated from its side file.
    """
    path = Path(path)
    try:
        with _opened(path) as stream:
            header = _read_header(stream, path)
    except ModelFileError:
        return False
    if DIGEST_KEY not in header.metadata:
        return False
    verify_digest(path)
    return True


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Parse an ONNX file; external data stay on disk.

    Raises:
        ModelFileError: missing, empty, damaged, or not an ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    path = Path(path)
    model = onnx.ModelProto()
    with _opened(path) as stream:
        if os.fstat(stream.fileno()).st_size > _MOST_BYTES:
            raise no_onnx_model(
                path,
                f"{shown(path)}: more than 2 GiB, which no ONNX file can be: protobuf reads none. Export the model anew, with "
                "its weights in a side file.",
            )
        try:
            model.ParseFromString(stream.read())
        except DecodeError as error:
            raise no_onnx_model(path) from error
    if not model.HasField("graph"):
        raise no_onnx_model(path)
    if not model.opset_import:
        raise ModelFileError(
            f"{shown(path)}: it names no opset (its opset_import is empty), so that nobody can tell what its operators mean. "
            "Export the model anew."
        )
    read_manifest(model, path)
    return model


def read_manifest(model: onnx.ModelProto, path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `export_model` recorded in the model; {} for a model of another tool. Raises ModelFileError."""
    text = next((p.value for p in model.metadata_props if p.key == MANIFEST_KEY), "{}")
    try:
        manifest = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict):
        raise ModelFileError(
            f"{shown(path)}: its manifest cannot be read: damaged or edited. Export the model anew."
        )
    return manifest


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                raise no_onnx_model(path)
            yield stream
    except OSError as error:
        raise ModelFileError(f"{shown(path)}: cannot be read: {error.strerror or error}") from error


@dataclass(slots=True)
class _Header:
    """What is read of a model without parsing its graph."""

    producer: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    digest_at: int = 0  # offset of the digest's characters in the file


def _read_header(stream: BinaryIO, path: Path) -> _Header:
    header, has_graph = _Header(), False
    try:
        for number, start, end in _fields(stream, 0, os.fstat(stream.fileno()).st_size):
            has_graph |= number == _GRAPH
            if number == _PRODUCER and not header.producer:
                header.producer = _text(stream, start, end)
            elif number == _METADATA:
                spans = {part: span for part, *span in _fields(stream, start, end)}
                key, value = (_text(stream, *spans.get(part, (0, 0))) for part in (1, 2))
                header.metadata[key] = value
                if key == DIGEST_KEY and 2 in spans:
                    header.digest_at = spans[2][0]
    except (ValueError, IndexError) as error:  # UnicodeDecodeError is a ValueError
        raise no_onnx_model(path) from error
    if not has_graph:
        raise no_onnx_model(path)
    return header


def _fields(stream: BinaryIO, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each field of the protobuf message between two offsets."""
    while at < end:
        stream.seek(at)
        tag = _varint(stream)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            _varint(stream)
            length = 0
        elif wire == 2:
            length = _varint(stream)
        elif wire in _WIRE_SIZE:
            length = _WIRE_SIZE[wire]
        else:
            raise ValueError("no such wire type")
        start = stream.tell()
        at = start + length
        if number == 0 or at > end:
            raise ValueError("not a protobuf message, or cut short")
        yield number, start, at


def _varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = stream.read(1)[0]  # IndexError at the end of the file
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("not a varint")


def _text(stream: BinaryIO, start: int, end: int) -> str:
    stream.seek(start)
    return stream.read(end - start).decode()


def _digest(stream: BinaryIO, at: int, length: int) -> str:
    """sha256 of the file, with zeros for the digest at `at`."""
    digest = hashlib.sha256()
    stream.seek(0)
    for chunk in _chunks(stream, at):
        digest.update(chunk)
    digest.update(b"0" * length)
    stream.seek(at + length)
    for chunk in _chunks(stream):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(stream: BinaryIO, count: int | None = None) -> Iterator[bytes]:
    left = count if count is not None else sys.maxsize
    while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield chunk


def _check_own_side_files(path: Path, metadata: dict[str, str]) -> None:
    for name, size, digest in _own_side_files(path, metadata):
        file = side_file(path, name)
        _require_size(path, file, size)
        if file.stat().st_size != size or _file_digest(file) != digest:
            raise EditedFileError(
                f"{shown(file)}: content does not match the digest in {printable(path.name)}: damaged or edited "
                "after export. Copy both files again, or export the model anew."
            )


def _own_side_files(path: Path, metadata: dict[str, str]) -> list[tuple[str, int, str]]:
    """(name, bytes, sha256) of each side file that the metadata name."""
    try:
        entries = json.loads(metadata.get(DATA_KEY, "[]"))
        files = [(entry["file"], entry["bytes"], entry["sha256"]) for entry in entries]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise no_onnx_model(path) from None
    if any(tuple(map(type, file)) != (str, int, str) for file in files):
        raise no_onnx_model(path)
    return files


def verify_structure(path: str | os.PathLike[str]) -> None:
    """Check that a model, of whatever tool, parses and has its side files, each as long as it must be.

    Raises:
        ModelFileError: it does not.
    """
    import onnx

    path = Path(path)
    model = read_model(path)
    for tensor in _all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            reference = {entry.key: entry.value for entry in tensor.external_data}
            numbers = [reference.get(key) or "0" for key in ("offset", "length")]
            if not all(re.fullmatch("[0-9]{1,19}", number) for number in numbers):
                raise ModelFileError(
                    f"{shown(path)}: damaged: the weight {shown(tensor.name)} lies at offset {numbers[0]!r} with "
                    f"length {numbers[1]!r} of its side file, which are no sizes. Copy it again."
                )
            _require_size(path, side_file(path, reference.get("location", "")), sum(map(int, numbers)))


def _all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _tensors(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
        for body in graphs_within(node):
            yield from _tensors(body)


def side_file(path: Path, location: str) -> Path:
    """The side file of that name, which must lie in the model's folder, links resolved."""
    file = path.parent / location
    try:
        inside = not Path(location).is_absolute() and file.resolve().is_relative_to(path.parent.resolve())
    except (OSError, ValueError, RuntimeError):  # a zero byte, a loop of links
        inside = False
    if not inside:
        raise ModelFileError(
            f"{shown(path)}: refers to weights outside its folder: {location[:200]!r}. A model and its side file are one "
            "unit: keep them in the same folder, and do not load this one."
        )
    return file


def _require_size(path: Path, file: Path, needed: int) -> None:
    try:
        exists = file.is_file()
    except OSError:  # a name that no file system takes
        exists = False
    if not exists:
        raise ModelFileError(
            f"{shown(path)}: its weights are missing: it needs the side file {_short(file.name)} next to it. "
            "Copy both files together."
        )
    size = file.stat().st_size
    if size < needed:
        raise ModelFileError(
            f"{shown(file)}: damaged: {size:,} bytes, but {printable(path.name)} needs {needed:,}. Copy both files again."
        )


def _short(name: str) -> str:
    """A name that a file gives, for a message."""
    return shown(name if len(name) <= 200 else name[:197] + "...")


def _file_digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for chunk in _chunks(stream):
            digest.update(chunk)
    return digest.hexdigest()
