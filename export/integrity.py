"""Is a model file what was written? Digest, structure, and the side files that belong to it.

The digest is the sha256 of the file with the digest's own 64 characters set to zeros. It covers the graph,
inline weights and metadata; the metadata name each side file with its size and sha256. Files are hashed
through a memory map, and those with a digest are not parsed: no weight is loaded.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelFileError

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
_CHUNK = 1 << 24


def verify_digest(path: str | os.PathLike[str]) -> None:
    """Check that the model at `path`, with its side files, is as `write_model` left it.

    A model of another tool, without a digest, is checked for structure and complete side files only.

    Raises:
        ModelFileError: damaged, edited after export, or separated from its side file.
    """
    path = Path(path)
    with _mapped(path) as data:
        producer, metadata = _read_metadata(data, path)
        if producer != PRODUCER and not any(key.startswith(f"{PRODUCER}.") for key in metadata):
            return _check_foreign(path)
        at = data.rfind(DIGEST_MARK) + len(DIGEST_MARK)
        stored = bytes(data[at : at + 64])
        if metadata.get(DIGEST_KEY, "").encode() != stored or _digest(data, at).encode() != stored:
            raise ModelFileError(
                f"{path}: content does not match its digest: damaged or edited after export. "
                "Copy it again, or export the model anew."
            )
        return _check_own_side_files(path, metadata)


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Parse an ONNX file; external data stay on disk.

    Raises:
        ModelFileError: missing, empty, damaged, or not an ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    path = Path(path)
    model = onnx.ModelProto()
    with _mapped(path) as data:
        try:
            model.ParseFromString(memoryview(data))
        except DecodeError as error:
            raise _damaged(path) from error
    if not model.HasField("graph") or not model.opset_import:
        raise _damaged(path)
    return model


def _damaged(path: Path) -> ModelFileError:
    return ModelFileError(f"{path}: damaged, or not an ONNX model. Copy it again, or export the model anew.")


class _mapped:
    """A read-only memory map of a file that has content."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> mmap.mmap:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise ModelFileError(f"{self._path}: damaged: the file is empty")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelFileError(f"{self._path}: cannot be read: {error.strerror or error}") from error
        return self._map

    def __exit__(self, *_: object) -> None:
        import contextlib

        with contextlib.suppress(BufferError):  # a traceback may still hold a view; the map goes with it
            self._map.close()


def _read_metadata(data: mmap.mmap, path: Path) -> tuple[str, dict[str, str]]:
    """The producer and the entries of `metadata_props`, read without parsing the graph."""
    producer, found, has_graph = "", {}, False
    try:
        for field, start, end in _fields(data, 0, len(data)):
            has_graph |= field == _GRAPH
            if field == _PRODUCER:
                producer = bytes(data[start:end]).decode()
            elif field == _METADATA:
                entry = {number: bytes(data[a:b]).decode() for number, a, b in _fields(data, start, end)}
                found[entry.get(1, "")] = entry.get(2, "")
    except (ValueError, IndexError) as error:  # UnicodeDecodeError is a ValueError
        raise _damaged(path) from error
    if not has_graph:
        raise _damaged(path)
    return producer, found


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each field of the protobuf message in data[at:end]."""
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            _, after = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            after = at + length
        elif wire in _WIRE_SIZE:
            after = at + _WIRE_SIZE[wire]
        else:
            raise ValueError("no such wire type")
        if number == 0 or after > end:
            raise ValueError("not a protobuf message, or cut short")
        yield number, at, after
        at = after


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("not a varint")


def _digest(data: mmap.mmap, at: int) -> str:
    """sha256 with the 64 bytes at `at` taken as zeros."""
    digest = hashlib.sha256()
    with memoryview(data) as view:
        for start in range(0, at, _CHUNK):
            digest.update(view[start : min(start + _CHUNK, at)])
        digest.update(NO_DIGEST.encode())
        for start in range(at + 64, len(view), _CHUNK):
            digest.update(view[start : start + _CHUNK])
    return digest.hexdigest()


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
    with file.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
