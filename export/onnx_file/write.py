"""A model goes to disk whole or not at all, with the digest that `integrity.verify_digest` checks.

Weights are streamed: the protobuf message is written around them, field by field in canonical order, so
that no second copy of them exists. Beyond protobuf's 2 GiB they go to a side file, named by its content,
which is in place before the model that refers to it: an interrupted run never pairs wrong files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...errors import ExportError, ModelFileError, UsageError
from .integrity import DATA_KEY, DIGEST_KEY, DIGEST_MARK, NO_DIGEST, PRODUCER, read_model, verify_digest
from .replace_file import HashedFile, remove, remove_stale, replacing

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnx_ir as ir

    Piece = bytes | ir.TensorProtocol  # a tensor stands for its bytes

__all__ = ["WrittenModel", "read_model", "verify_digest", "write_graph", "write_model"]

PROTOBUF_LIMIT = 2**31 - 1  # bytes of one message
_STREAMED_FROM = 1024  # bytes; smaller tensors stay in the message, where shape inference reads them
_PAGE, _LINE = 4096, 64  # alignment of large and small tensors in a side file, for mapping it
_GRAPH, _INITIALIZER, _RAW_DATA = b"\x3a", b"\x2a", b"\x4a"  # tags of the fields 7, 5 and 9


@dataclass(frozen=True, slots=True)
class WrittenModel:
    """What `write_model` put on disk."""

    paths: tuple[Path, ...]
    """The model file; then its side file, if any. They belong together."""
    bytes: int
    """Size of all of them."""
    digest: str
    """sha256 over graph and weights, also stored in the model's metadata."""


@dataclass(frozen=True, slots=True)
class _SideFile:
    path: Path
    bytes: int
    sha256: str
    spans: dict[str, tuple[int, int]]  # initializer -> offset, length


def write_model(
    model: ir.Model | onnx.ModelProto, path: str | os.PathLike[str], *, external_data: bool | None = None
) -> WrittenModel:
    """Write `model` to `path`, replacing what is there in one step. Equal models give equal bytes.

    Args:
        external_data: weights in a side file `<stem>.<digest>.data` next to the model. None: only where
            the model would exceed protobuf's limit of 2 GiB.

    Raises:
        UsageError: the path cannot be written.
        ExportError: the model exceeds the limit, and a side file was not wanted.
    """
    import onnx
    import onnx_ir as ir

    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise UsageError(f"cannot write the model to {path}: it {what}")
    source = ir.from_proto(model) if isinstance(model, onnx.ModelProto) else model
    try:
        skeleton, tensors = _take_apart(source)
        return _write(skeleton, tensors, path, external_data)
    except OSError as error:
        raise UsageError(f"cannot write the model to {path}: {error.strerror or error}") from error


def _write(
    skeleton: onnx.ModelProto, tensors: dict[str, ir.TensorProtocol], path: Path, external_data: bool | None
) -> WrittenModel:
    remove_stale(path)
    previous = _side_file_of(path)
    pieces = list(_pieces(skeleton, tensors))
    size = sum(map(_size, pieces))
    if size <= PROTOBUF_LIMIT and not external_data:
        digest = _write_message(path, pieces)
        remove(previous)
        return WrittenModel((path,), size, digest)
    if external_data is False:
        raise ExportError(
            f"the model has {size:,} bytes, and an ONNX file without external data holds at most "
            f"{PROTOBUF_LIMIT:,}. Leave the choice open, or ask for external data."
        )
    side = _write_side_file(path, tensors)
    try:
        _refer(skeleton, side)
        pieces = list(_pieces(skeleton, {}))
        digest = _write_message(path, pieces)
    except BaseException:
        remove(side.path if side.path != previous else None)
        raise
    remove(previous if previous != side.path else None)
    return WrittenModel((path, side.path), sum(map(_size, pieces)) + side.bytes, digest)


def write_graph(model: ir.Model, path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Write the model with its large weights as inputs, and return what to feed by input name.

    A session that is fed with them needs no second copy of the weights in a file and in memory. A weight that is
    the transpose of one in memory (a Linear layer's) is fed as it lies there, and transposed by a node.
    """
    import onnx.helper

    skeleton, large = _take_apart(model)
    feeds = {}
    transposes = []
    small = [i for i in skeleton.graph.initializer if i.name not in large]
    for i in skeleton.graph.initializer:
        if i.name not in large:
            continue
        array, name, dims = large[i.name].numpy(), i.name, list(i.dims)
        if not array.flags.c_contiguous and array.T.flags.c_contiguous:
            array, name, dims = array.T, f"{name}__transposed", dims[::-1]
            transposes.append(onnx.helper.make_node("Transpose", [name], [i.name]))
        skeleton.graph.input.append(onnx.helper.make_tensor_value_info(name, i.data_type, dims))
        feeds[name] = array
    nodes = [*transposes, *skeleton.graph.node]
    for field, items in ((skeleton.graph.initializer, small), (skeleton.graph.node, nodes)):
        kept = list(items)
        del field[:]
        field.extend(kept)
    path.write_bytes(skeleton.SerializeToString(deterministic=True))
    return feeds


def _take_apart(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """The model as a message without its large weights, and those weights by name. `model` stays as it is."""
    import onnx_ir as ir

    large = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= _STREAMED_FROM and not tensor.dtype.is_string():
            large[name] = tensor
    values = model.graph.initializers
    metadata = dict(model.metadata_props)
    try:
        for name, tensor in large.items():
            # Written as a reference of a few bytes; the reference is taken out again below.
            values[name].const_value = ir.ExternalTensor(
                "-",
                0,
                tensor.nbytes,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=name,
                base_dir="",
            )
        model.metadata_props.pop(DATA_KEY, None)
        model.metadata_props[DIGEST_KEY] = NO_DIGEST
        skeleton = ir.to_proto(model)
    finally:
        for name, tensor in large.items():
            values[name].const_value = tensor
        model.metadata_props.clear()
        model.metadata_props.update(metadata)
    skeleton.producer_name, skeleton.producer_version = PRODUCER, __version__
    for initializer in skeleton.graph.initializer:
        if initializer.name in large:
            initializer.ClearField("external_data")
            initializer.ClearField("data_location")
    return skeleton, large


def _pieces(skeleton: onnx.ModelProto, tensors: dict[str, ir.TensorProtocol]) -> Iterator[Piece]:
    """The serialised model, in the order that protobuf itself writes; tensors in place of their bytes."""
    graph = list(_graph_pieces(skeleton.graph, tensors))
    before, after = _around(skeleton, "graph")
    yield before + _GRAPH + _varint(sum(map(_size, graph)))
    yield from graph
    yield after


def _graph_pieces(graph: onnx.GraphProto, tensors: dict[str, ir.TensorProtocol]) -> Iterator[Piece]:
    before, after = _around(graph, "initializer")
    yield before
    for initializer in graph.initializer:
        tensor = tensors.get(initializer.name)
        if tensor is None:
            message = initializer.SerializeToString(deterministic=True)
            yield _INITIALIZER + _varint(len(message)) + message
        else:
            head, tail = _around(initializer, "raw_data")
            head += _RAW_DATA + _varint(tensor.nbytes)
            yield _INITIALIZER + _varint(len(head) + tensor.nbytes + len(tail)) + head
            yield tensor
            yield tail
    yield after


def _around(message: Any, field: str) -> tuple[bytes, bytes]:
    """What protobuf writes before and after `field`, which it orders by number."""
    at = message.DESCRIPTOR.fields_by_name[field].number
    before, after = type(message)(), type(message)()
    for other, value in message.ListFields():
        if other.number == at:
            continue
        part = before if other.number < at else after
        if hasattr(value, "extend"):
            getattr(part, other.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(part, other.name).CopyFrom(value)
        else:
            setattr(part, other.name, value)
    return before.SerializeToString(deterministic=True), after.SerializeToString(deterministic=True)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _size(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


def _content(piece: Piece) -> bytes | memoryview:
    """Little-endian bytes, without a copy where the tensor is contiguous."""
    import sys

    import numpy as np

    if isinstance(piece, bytes):
        return piece
    if piece.dtype.bitwidth < 8 or sys.byteorder == "big":
        return piece.tobytes()  # packed, or swapped
    return np.ascontiguousarray(piece.numpy()).reshape(-1).view(np.uint8).data


def _write_message(path: Path, pieces: Sequence[Piece]) -> str:
    """Write the model file, its digest filled in; returns the digest."""
    mark = max(
        index for index, piece in enumerate(pieces) if isinstance(piece, bytes) and DIGEST_MARK in piece
    )
    piece = pieces[mark]
    assert isinstance(piece, bytes)
    at = sum(map(_size, pieces[:mark])) + piece.rindex(DIGEST_MARK) + len(DIGEST_MARK)
    with replacing(path) as file:
        for piece in pieces:
            file.write(_content(piece))
        file.overwrite(at, file.sha256.encode())
        return file.sha256


def _write_side_file(path: Path, tensors: dict[str, ir.TensorProtocol]) -> _SideFile:
    """The weights one after the other, in a file named by its content."""
    spans = {}

    def name(file: HashedFile) -> Path:
        return path.with_name(f"{path.stem}.{file.sha256[:12]}.data")

    with replacing(path, name) as file:
        for tensor_name, tensor in tensors.items():
            alignment = _PAGE if tensor.nbytes >= 2**20 else _LINE
            file.write(bytes(-file.bytes % alignment))
            spans[tensor_name] = (file.bytes, tensor.nbytes)
            file.write(_content(tensor))
    return _SideFile(name(file), file.bytes, file.sha256, spans)


def _refer(skeleton: onnx.ModelProto, side: _SideFile) -> None:
    """Let the model's large weights refer to the side file."""
    import onnx

    for initializer in skeleton.graph.initializer:
        if initializer.name in side.spans:
            offset, length = side.spans[initializer.name]
            initializer.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", side.path.name), ("offset", offset), ("length", length)):
                initializer.external_data.add(key=key, value=str(value))
    content = [{"bytes": side.bytes, "file": side.path.name, "sha256": side.sha256}]
    skeleton.metadata_props.add(key=DATA_KEY, value=json.dumps(content))


def _side_file_of(path: Path) -> Path | None:
    """The side file that the model now at `path` refers to, if we wrote it."""
    ours = re.compile(re.escape(path.stem) + r"\.[0-9a-f]{12}\.data")
    if not path.is_file() or not any(ours.fullmatch(name) for name in os.listdir(path.parent)):
        return None
    try:
        metadata = {entry.key: entry.value for entry in read_model(path).metadata_props}
        name = json.loads(metadata[DATA_KEY])[0]["file"]
    except (ModelFileError, LookupError, ValueError, TypeError, RecursionError):
        return None
    return path.with_name(name) if isinstance(name, str) and ours.fullmatch(name) else None
