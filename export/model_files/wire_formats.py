"""The outermost layer of the ONNX and safetensors formats: enough to know a file and see that it is whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from ...symbolic.graph_inspection.file_kind import MODEL_FIELDS
from .archive import DamagedFileError

__all__ = ["check_onnx", "check_safetensors"]

_GRAPH = 7  # a field of onnx.ModelProto
_MOST_FIELDS = 1_000_000  # of a model: functions, metadata, opsets; each costs a step here


def check_safetensors(stream: BinaryIO, size: int) -> None:
    """Raises DamagedFileError unless the header is whole and its tensors fill the rest of the file."""
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    try:
        header: dict[str, Any] = json.loads(stream.read(length).decode())
        header.pop("__metadata__", None)
        described = 8 + length + int(max((entry["data_offsets"][1] for entry in header.values()), default=0))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise DamagedFileError("its safetensors header cannot be read") from None
    if described != size:
        raise DamagedFileError(f"its header describes {described:,} bytes, the file has {size:,}")


def check_onnx(stream: BinaryIO, size: int) -> None:
    """Raises DamagedFileError unless the fields of the model end where the file ends and one is a graph."""
    fields = set()
    for count, field in enumerate(_fields(stream, size)):
        fields.add(field)
        if count > _MOST_FIELDS:
            raise DamagedFileError(f"it starts as an ONNX model and has more than {_MOST_FIELDS:,} parts")
    if _GRAPH not in fields:
        raise DamagedFileError("it starts as an ONNX model and has no graph")


def _fields(stream: BinaryIO, size: int) -> Iterator[int]:
    stream.seek(0)
    while (at := stream.tell()) < size:
        tag = _varint(stream)
        field, wire = tag >> 3, tag & 7
        if MODEL_FIELDS.get(field, wire) != wire or field == 0 or wire not in (0, 2):
            raise DamagedFileError(f"it starts as an ONNX model, and byte {at:,} belongs to none")
        length = _varint(stream)
        if wire == 2 and (length > size or stream.seek(length, os.SEEK_CUR) > size):
            raise DamagedFileError(
                f"it starts as an ONNX model and ends early (field {field} at byte {at:,})"
            )
        yield field


def _varint(stream: BinaryIO) -> int:
    value = 0
    for shift in range(0, 63, 7):
        byte = stream.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise DamagedFileError("it starts as an ONNX model and ends early")
