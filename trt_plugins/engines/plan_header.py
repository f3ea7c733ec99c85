"""What an engine's first bytes say of it, for one that has no sidecar. Nothing is deserialised.

TensorRT documents no format. What is read here is known from two sources, and no more is claimed:

- `trtexec --getPlanVersionOnly`, whose source is public (`samples/common/sampleEngines.cpp`): a tag of four bytes, a number
  that is 0, and at 24 to 27 the version, a byte for each part.
- engines built with TensorRT-RTX 1.7.1, which have another tag, the same places, at 16 their own size, and at 32 a bit for
  each compute capability. A test builds such engines and compares. Sizes and bits are read of 1.7 alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from .portability import EngineFile
from .record import EngineRecord, Flavor

__all__ = ["SMALLEST", "PlanHeader", "read_plan_header", "record_of_header"]

_BYTES = 64  # TensorRT-RTX calls this `engine_header_size`
SMALLEST = 28  # bytes up to the end of the version
_TAGS: dict[bytes, Flavor] = {b"ftrt": "tensorrt", b"vtrt": "tensorrt-rtx"}
_ARCHS = ("sm75", "sm80", "sm86", "sm89", "sm120", "sm121")  # from the lowest bit on
_PORTABLE = 0x7E  # built for no arch in particular: Ampere and newer


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """The beginning of an engine.

    Attributes:
        tensorrt: `10.13.3.9`.
        bytes: the size that the engine says it has; None: not known how to read.
        archs: as in `EngineRecord`; None: not known how to read.
        portable: for Ampere and newer.
    """

    flavor: Flavor
    tensorrt: str
    bytes: int | None = None
    archs: tuple[str, ...] | None = None
    portable: bool = False


def read_plan_header(engine: Path) -> PlanHeader | None:
    """None where the file does not begin as an engine does, or cannot be read."""
    try:
        if not engine.is_file():
            return None
        with engine.open("rb") as stream:
            start = stream.read(_BYTES)
    except OSError:
        return None
    flavor = _TAGS.get(start[:4])
    if flavor is None or len(start) < SMALLEST or start[4:8] != bytes(4):
        return None
    version = ".".join(str(part) for part in start[24:28])
    if flavor == "tensorrt" or len(start) < _BYTES or tuple(start[24:26]) != (1, 7):
        return PlanHeader(flavor, version)
    size, bits = struct.unpack_from("<Q", start, 16)[0], struct.unpack_from("<I", start, 32)[0]
    archs = tuple(arch for k, arch in enumerate(_ARCHS) if bits >> k & 1)
    if bits == _PORTABLE:
        return PlanHeader(flavor, version, size, (), True)
    known = bits and bits < 1 << len(_ARCHS)
    return PlanHeader(flavor, version, size, archs if known else None)


def record_of_header(header: PlanHeader, engine: Path, file: EngineFile, platform: str) -> EngineRecord:
    """As far as a header goes: for `problems`, which is then asked of nothing else."""
    return EngineRecord(
        engine=engine.name,
        sha256=file.sha256,
        bytes=file.bytes if header.bytes is None else header.bytes,
        flavor=header.flavor,
        tensorrt=header.tensorrt,
        platform=platform,
        archs=header.archs or (),
        gpu=None,
        hardware_compatible="ampere+" if header.portable else "",
        # whether it is, the header does not say: then another version is no reason to refuse it
        version_compatible=header.flavor == "tensorrt",
        model="?",
        model_sha256="",
        plugins=(),
        precision="as exported",
        kept_float32=(),
        profiles=(),
        inputs=(),
        outputs=(),
        workspace=None,
        build_seconds=0.0,
        warnings=(),
        in_place=False,
    )
