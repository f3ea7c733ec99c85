"""Messages between this process and a backend's: JSON and raw arrays. No pickle: nothing is executed."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

__all__ = ["Garbled", "read", "write"]

Array = npt.NDArray[Any]

# A trace of a profile is the longest text there is.
_LONGEST_HEADER = 1 << 30


class Garbled(Exception):
    """What was read is no message: somebody else has written to the stream."""


def write(stream: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, Array] | None = None) -> None:
    """Write one message and flush it."""
    # not ascontiguousarray, which makes a scalar an array of one dim
    arrays = {k: np.asarray(v, order="C") for k, v in (arrays or {}).items()}
    shapes = [[k, v.dtype.name, list(v.shape)] for k, v in arrays.items()]
    text = json.dumps({**header, "arrays": shapes}).encode()
    stream.write(struct.pack("<Q", len(text)))
    stream.write(text)
    for array in arrays.values():
        # through bytes' own dtype: ml_dtypes arrays have no buffer format
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()


def read(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read one message. Raises EOFError if the other side is gone, Garbled for what is no message."""
    (length,) = struct.unpack("<Q", _exactly(stream, 8))
    if length > _LONGEST_HEADER:
        raise Garbled
    try:
        header: dict[str, Any] = json.loads(_exactly(stream, length))
        described = [
            (name, _dtype(dtype), [int(n) for n in shape]) for name, dtype, shape in header.pop("arrays")
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Garbled from error
    arrays = {}
    for name, dtype, shape in described:
        count = int(np.prod(shape, dtype=np.int64))
        raw = _exactly(stream, count * dtype.itemsize)
        arrays[name] = np.frombuffer(raw, dtype=dtype).reshape(shape)
    return header, arrays


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    while done < size:
        # BufferedReader has readinto; IO[bytes] in general is typed without it
        count: int | None = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        done += count
    return buffer


def _dtype(name: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype
