"""Is a model file what was written? Digest, structure, and the side files that belong to it.

The digest is the sha256 of the file with the digest's own 64 characters set to zeros. It covers the graph,
inline weights and metadata; the metadata name each side file with its size and sha256. Files are hashed
in chunks, and those with a digest are not parsed: no weight is loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ...errors import ModelFileError

if TYPE_CHECKING:
    import onnx

__all__ = ["DATA_KEY", "DIGEST_KEY", "DIGEST_MARK", "NO_DIGEST", "PRODUCER", "read_model", "verify_digest"]

# The producer, near the file's start, tells that a digest near its end is missing.
PRODUCER = "deployops"
DIGEST_KEY = "deployops.digest"
DATA_KEY = "deployops.data"
NO_DIGEST = "0" * 64
# How protobuf writes the metadata entry up to the digest: key is field 1, value field 2 with 64 bytes.
DIGEST_MARK = b"\x0a" + bytes([len(DIGEST_KEY)]) + DIGEST_KEY.encode() + b"\x12\x40"

_PRODUCER, _GRAPH, _METADATA = 2, 7, 14  # fields of onnx.ModelProto
_WIRE_SIZE = {1: 8, 5: 4}
_CHUNK = 1 << 20


def verify_digest(path: str | os.PathLike[str]) -> None:
    """Check that the model at `path`, with its side files, is as `write_model` left it.

    A model of another tool, without a digest, is checked for structure and complete side files only.

    Raises:
        ModelFileError: damaged, edited after export, or separated from its side file.
    """
    path = Path(path)
    with _opened(path) as stream:
        header = _read_header(stream, path)
        if header.producer != PRODUCER and not any(key.startswith(f"{PRODUCER}.") for key in header.metadata):
            return _check_foreign(path)
        stored = header.metadata.get(DIGEST_KEY)
        if stored is None or _digest(stream, header.digest_at, len(stored)) != stored:
            raise ModelFileError(
                f"{path}: content does not match its digest: damaged or edited after export. "
                "Copy it again, or export the model anew."
            )
    return _check_own_side_files(path, header.metadata)


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
        try:
            model.ParseFromString(stream.read())
        except DecodeError as error:
            raise _damaged(path) from error
    if not model.HasField("graph") or not model.opset_import:
        raise _damaged(path)
    return model


def _damaged(path: Path) -> ModelFileError:
    return ModelFileError(f"{path}: damaged, or not an ONNX model. Copy it again, or export the model anew.")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                raise ModelFileError(f"{path}: damaged: the file is empty")
            yield stream
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error


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
        raise _damaged(path) from error
    if not has_graph:
        raise _damaged(path)
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
    for entry in json.loads(metadata.get(DATA_KEY, "[]")):
        file = _locate(path, entry["file"])
        _require_size(path, file, entry["bytes"])
        if file.stat().st_size != entry["bytes"] or _file_digest(file) != entry["sha256"]:
            raise ModelFileError(
                f"{file}: content does not match the digest in {path.name}: damaged or edited after export. "
                "Copy both files again, or export the model anew."
            )


def _check_foreign(path: Path) -> None:
    import onnx
    from onnx.external_data_helper import ExternalDataInfo

    for tensor in _tensors(read_model(path).graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            reference = ExternalDataInfo(tensor)
            needed = (reference.offset or 0) + (reference.length or 0)
            _require_size(path, _locate(path, reference.location), needed)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
            inner: Iterable[onnx.GraphProto] = [attribute.g] if attribute.HasField("g") else attribute.graphs
            for body in inner:
                yield from _tensors(body)


def _locate(path: Path, location: str) -> Path:
    """The side file of that name, which must lie in the model's folder, links resolved."""
    folder = path.parent.resolve()
    file = path.parent / location
    if Path(location).is_absolute() or not file.resolve().is_relative_to(folder):
        raise ModelFileError(
            f"{path}: refers to weights outside its folder: {location!r}. A model and its side file are one "
            "unit: keep them in the same folder, and do not load this one."
        )
    return file


def _require_size(path: Path, file: Path, needed: int) -> None:
    if not file.is_file():
        raise ModelFileError(
            f"{path}: its weights are missing: it needs the side file {file.name} next to it. "
            "Copy both files together."
        )
    size = file.stat().st_size
    if size < needed:
        raise ModelFileError(
            f"{file}: damaged: {size:,} bytes, but {path.name} needs {needed:,}. Copy both files again."
        )


def _file_digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for chunk in _chunks(stream):
            digest.update(chunk)
    return digest.hexdigest()
