"""The file beside an engine that says what it is, read without trust: it comes with the engine, from wherever that came."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelFileError, UsageError
from ...native.kernel_manifest import each_key_once
from ...native.output_files import replace_file
from ...symbolic.shown_text import printable
from .plan_header import read_plan_header
from .portability import EngineFile
from .record import EngineRecord, Shape, TensorRecord

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["FORMAT", "engine_file", "read_sidecar", "sidecar_path", "write_sidecar"]

FORMAT = 1
_MOST_BYTES = 16 << 20  # a sidecar of a network with 100,000 nodes that stay float32 has 10 MB
_MOST_DIM = 2**63 - 1
_LONGEST_BUILD = 366 * 86400.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ARCH = re.compile(r"sm[0-9]{2,3}[a-z]?")


def sidecar_path(engine: Path) -> Path:
    return engine.with_name(f"{engine.name}.json")


def engine_file(engine: Path) -> EngineFile:
    """Size and sha256 of an engine as it lies there. Raises UsageError where it cannot be read."""
    digest = sha256()
    size = 0
    try:
        with _regular(engine) as stream:
            while part := stream.read(1 << 20):
                digest.update(part)
                size += len(part)
    except OSError as error:
        raise UsageError(f"{_shown(engine)} cannot be read: {error.strerror or error}") from None
    return EngineFile(size, digest.hexdigest())


def write_sidecar(engine: Path, record: EngineRecord) -> Path:
    """Write `<engine>.json`, whole or not at all. Equal records give equal bytes; no path and no time of day is in it.

    Raises UsageError where it cannot be written.
    """
    text = json.dumps({"format": FORMAT, **asdict(record)}, indent=1, ensure_ascii=True, allow_nan=False)
    path = sidecar_path(engine)
    replace_file(path, lambda temporary: temporary.write_text(text + "\n", encoding="ascii"))
    return path


def read_sidecar(engine: Path) -> EngineRecord | None:
    """What is known of an engine; None where no sidecar lies beside it.

    Raises:
        ModelFileError: the sidecar is damaged, of another kind, or written by a newer deployops.
    """
    path = sidecar_path(engine)
    try:
        with _regular(path) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise _refused(path, f"it has more than {_MOST_BYTES >> 20} MiB")
    try:
        given = json.loads(content, parse_constant=_no_number, object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"it is no JSON ({_short(error)})") from None
    record = _record(path, given)
    header = read_plan_header(engine)
    if header is not None and header.flavor != record.flavor:
        raise _refused(
            path,
            f"its `flavor` is {record.flavor}, and the engine's first bytes are those of {header.flavor}",
        )
    return record


def _record(path: Path, given: Any) -> EngineRecord:
    from pydantic import ValidationError

    if not isinstance(given, dict) or "format" not in given:
        raise _refused(path, 'it has no "format", so it is not the sidecar of an engine')
    found = given.pop("format")
    if type(found) is not int or found < 1:
        raise _refused(path, f'its "format" is {_short(found)}, not a number from 1 on')
    if found > FORMAT:
        raise ModelFileError(
            f"{_shown(path)} has format {found}; this deployops reads up to {FORMAT}: "
            "read it with the version that wrote it, or newer"
        )
    try:
        record: EngineRecord = _adapter().validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"][:8])
        raise _refused(path, f"`{_short(where)}`: {first['msg']}") from None
    except (RecursionError, ValueError) as error:
        raise _refused(path, _short(error)) from None
    if unknown := _unknown(given, _adapter().dump_python(record, mode="json")):
        raise _refused(path, f"it has `{_short(unknown)}`, which format {FORMAT} does not")
    if fault := _fault(record):
        raise _refused(path, fault)
    return record


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[EngineRecord]:
    from pydantic import TypeAdapter

    return TypeAdapter(EngineRecord)


def _unknown(given: Any, known: Any, path: str = "") -> str:
    """The first key that no field has."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            if key not in known:
                return f"{path}{key}"
            if found := _unknown(value, known[key], f"{path}{key}."):
                return found
    elif isinstance(given, list) and isinstance(known, list):
        for value, of in zip(given, known, strict=True):
            if found := _unknown(value, of, path):
                return found
    return ""


def _fault(record: EngineRecord) -> str:
    """What types cannot say."""
    digests = {"sha256": record.sha256, "model_sha256": record.model_sha256}
    digests |= {f"plugins.{p.name}.sha256": p.sha256 for p in record.plugins}
    for name, digest in digests.items():
        if not _SHA256.fullmatch(digest):
            return f"`{_short(name)}` is no sha256: 64 of 0-9 and a-f"
    for name in (record.engine, record.model, *(p.name for p in record.plugins)):
        if name in ("", ".", "..") or any(c in name for c in "/\\\0"):
            return f"{_short(name)!r} is to be the name of a file, without a folder"
    if not all(c.isprintable() for c in record.engine):
        return (
            f"`engine` is {_short(record.engine)!r}; expected the name of a file, without control characters"
        )
    if not record.archs and not record.hardware_compatible:
        return "`archs` is empty and `hardware_compatible` too: an engine has code for some GPU"
    if record.version_compatible and record.flavor == "tensorrt-rtx":
        return "`version_compatible` is true, and no TensorRT-RTX loads the engines of another version"
    for arch in record.archs:
        if not _ARCH.fullmatch(arch):
            return f"`archs` has {_short(arch)!r}; expected names like sm89"
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){1,4}", record.tensorrt):
        return f"`tensorrt` is {_short(record.tensorrt)!r}; expected a version like 10.13.3"
    if not re.fullmatch(r"[a-z0-9]+-[a-z0-9_]+", record.platform):
        return f"`platform` is {_short(record.platform)!r}; expected one like linux-x86_64"
    if record.bytes < 0 or (record.workspace is not None and record.workspace < 0):
        return "`bytes` and `workspace` are numbers of bytes, so not negative"
    if not (math.isfinite(record.build_seconds) and 0 <= record.build_seconds <= _LONGEST_BUILD):
        return "`build_seconds` is a time, so finite and not negative, and less than a year"
    return _shape_fault(record)


def _shape_fault(record: EngineRecord) -> str:
    for tensor in (*record.inputs, *record.outputs):
        if any(isinstance(d, int) and not 0 <= d <= _MOST_DIM for d in tensor.dims):
            return f"{_short(tensor.name)!r} has a size below 0 or beyond 64 bits"
    for what, tensors in (("inputs", record.inputs), ("outputs", record.outputs)):
        names = [tensor.name for tensor in tensors]
        twice = (
            next((name for name in names if names.count(name) > 1), None)
            if len(set(names)) < len(names)
            else None
        )
        if twice is not None:
            return f"`{what}` has {_short(twice)!r} twice"
    known = {tensor.name: tensor for tensor in record.inputs}
    for k, profile in enumerate(record.profiles):
        for name, shapes in profile.items():
            if name not in known:
                return f"profile {k} is of {_short(name)!r}, which is no input"
            if fault := _profile_fault(known[name], shapes):
                return f"profile {k} gives {_short(name)!r} {fault}"
    return ""


def _profile_fault(tensor: TensorRecord, shapes: tuple[Shape, Shape, Shape]) -> str:
    low, best, high = shapes
    if not len(low) == len(best) == len(high):
        return "shapes of different ranks"
    if any(not a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
        return "shapes that are not the smallest, the best and the largest"
    values = (
        tensor.dtype in ("int32", "int64") and len(tensor.dims) <= 1
    )  # of a shape input, which may be negative
    return "a size below 0" if min(low, default=0) < 0 and not values else ""


def _regular(path: Path) -> Any:
    """Open a file for reading; a pipe or a device may have no end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file")
    return open(descriptor, "rb")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _refused(path: Path, why: str) -> ModelFileError:
    return ModelFileError(
        f"{_shown(path)} does not describe an engine: {why}. Get it again from where the engine came from, build the "
        "engine again, or take the file away: the engine is then one of which nothing is known"
    )


def _shown(path: Path) -> str:
    return _short(path.name, 200)


def _short(value: object, most: int = 120) -> str:
    """Text of a stranger's file for a terminal: one line, no control characters."""
    text = " ".join(str(value).split()) if not isinstance(value, Mapping) else "an object"
    text = printable(text[: most + 1])
    return text if len(text) <= most else f"{text[:most]}…"
