"""Would an engine run here? Told from its record alone: nothing is loaded, nothing is imported.

The rules are those of TensorRT's documentation (support matrix and "engine compatibility" of 11.4, TensorRT-RTX 1.7):

- An engine runs with the version that built it. Built as version compatible, with 8.6 or newer, it runs with newer
  versions of the same major version too, and from 8 with 10 and from 10 with 11. Engines of TensorRT-RTX run with their
  own release alone.
- It runs on the compute capability that it was built for. Built as hardware compatible, on Ampere and newer (`ampere+`), or
  on GPUs of the same compute capability.
- It runs on the platform that it was built for; engines of TensorRT-RTX run on Linux and Windows alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .record import EngineRecord, Flavor

__all__ = ["EngineFile", "Host", "doubts", "problems"]

_AMPERE = (8, 0)
_VERSION_COMPATIBLE_FROM = (8, 6)
_ACROSS = {(8, 10), (10, 11)}  # major versions: of the engine, of the runtime
_NAMES: Mapping[str, str] = {"tensorrt": "TensorRT", "tensorrt-rtx": "TensorRT-RTX"}


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that is to run an engine. What is None is not known, and nothing is claimed of it.

    Attributes:
        flavor: the TensorRT that is to run it.
        tensorrt: its version, `10.13.3.9`.
        platform: `linux-x86_64`.
        arch: the GPU's compute capability, `sm86`.
        gpu: its name.
    """

    flavor: Flavor | None = None
    tensorrt: str | None = None
    platform: str | None = None
    arch: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class EngineFile:
    """An engine as it lies on the disk."""

    bytes: int
    sha256: str


def problems(
    record: EngineRecord,
    host: Host,
    *,
    engine: EngineFile | None = None,
    model: str | None = None,
    plugins: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Why the engine would not run on `host`, a line for each reason, with what to do; nothing where no reason is known.

    Args:
        engine: the file as it is now, where it was read.
        model: sha256 of the ONNX model that the engine is to belong to, as in `EngineRecord.model_sha256`.
        plugins: the libraries that are given, by file name, with their sha256; None: not looked at.
    """
    found = [_file(record, engine), _flavor(record, host)]
    if not found[1]:  # of another flavor nothing else compares
        found += [_version(record, host), _gpu(record, host)]
    found += [_platform(record, host), _model(record, model), *_plugins(record, plugins)]
    return tuple(line for line in found if line)


def doubts(
    record: EngineRecord,
    host: Host,
    *,
    engine: EngineFile | None = None,
    model: str | None = None,
    plugins: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """What `problems` could not look at, or TensorRT does not promise, a line each: *not checked*."""
    found = []
    if engine is None:
        found.append("whether the engine is the file that the sidecar describes: it was not read")
    if host.flavor is None or host.tensorrt is None:
        found.append(f"the version: no {_NAMES[record.flavor]} was found here; it needs {_wanted(record)}")
    if host.platform is None:
        found.append(f"the platform: it needs {record.platform}")
    if host.arch is None:
        found.append(f"the GPU: none was found here; it needs {_gpus(record)}")
    elif _other_model(record, host):
        found.append(
            f"another GPU of the same compute capability: built on {record.gpu}, here is {host.gpu}. TensorRT loads it with a "
            "warning and does not promise its speed"
        )
    if model is None:
        found.append(f"whether it was built from your model: give the ONNX file; it was {record.model}")
    needed = [p.name for p in record.plugins if not p.embedded]
    if needed and plugins is None:
        found.append(f"its plugin libraries, {', '.join(needed)}: give them with --plugins")
    found.append(
        "that it loads and computes the right values: only running it tells (deployops validate --engine)"
    )
    return tuple(found)


def _file(record: EngineRecord, engine: EngineFile | None) -> str:
    if engine is None or (engine.bytes, engine.sha256) == (record.bytes, record.sha256):
        return ""
    if engine.bytes == 0:
        return "the engine is empty (0 bytes): copy it again, or build it again"
    if engine.bytes < record.bytes:
        return (
            f"the engine is cut off: {engine.bytes} of {record.bytes} bytes: copy it again, or build it again"
        )
    return (
        f"the engine is not the file that its sidecar describes ({engine.bytes} bytes, sha256 {engine.sha256[:12]}…, "
        f"not {record.bytes} bytes, {record.sha256[:12]}…): copy both again, or build it again"
    )


def _flavor(record: EngineRecord, host: Host) -> str:
    if host.flavor in (None, record.flavor):
        return ""
    assert host.flavor is not None
    return (
        f"built by {_NAMES[record.flavor]}, not {_NAMES[host.flavor]}, and neither loads the other's engines: "
        f"run it with {_NAMES[record.flavor]}, or build it with --flavor {host.flavor}"
    )


def _version(record: EngineRecord, host: Host) -> str:
    if host.tensorrt is None:
        return ""
    built, here = _numbers(record.tensorrt), _numbers(host.tensorrt)
    if _same(built, here) or _may_load(record, built, here):
        return ""
    why = ""
    if record.flavor == "tensorrt-rtx":
        why = " (engines of TensorRT-RTX run with the release that built them)"
    elif record.version_compatible:
        why = (
            " (version compatible: with newer versions of its major version, from 8 with 10, from 10 with 11)"
        )
    name = _NAMES[record.flavor]
    return f"built by {name} {record.tensorrt}, here is {host.tensorrt}{why}: install {_wanted(record)}, or build it again here"


def _may_load(record: EngineRecord, built: tuple[int, ...], here: tuple[int, ...]) -> bool:
    if not record.version_compatible or record.flavor != "tensorrt":
        return False
    if min(built[:2], here[:2]) < _VERSION_COMPATIBLE_FROM:
        return False
    if built[0] != here[0]:
        return (built[0], here[0]) in _ACROSS
    shared = min(len(built), len(here))
    return built[:shared] <= here[:shared]


def _same(built: tuple[int, ...], here: tuple[int, ...]) -> bool:
    """10.13.3 is what the package calls 10.13.3.9: as far as both are said, and major, minor and patch at the least."""
    shared = min(len(built), len(here))
    if shared < 3:
        return built == here
    return built[:shared] == here[:shared]


def _gpu(record: EngineRecord, host: Host) -> str:
    if host.arch is None or host.arch in record.archs:
        return ""
    if record.hardware_compatible == "ampere+" and _capability(host.arch) >= _AMPERE:
        return ""
    here = f"{host.gpu} ({host.arch})" if host.gpu else host.arch
    on = f" on {record.gpu}" if record.gpu else ""
    return f"built{on} for {_gpus(record)}, here is {here}: build it on this GPU" + (
        f", or with --arch {host.arch} added"
        if record.flavor == "tensorrt-rtx"
        else ", or as hardware compatible"
    )


def _other_model(record: EngineRecord, host: Host) -> bool:
    plain = record.flavor == "tensorrt" and not record.hardware_compatible
    return plain and bool(record.gpu and host.gpu) and record.gpu != host.gpu and host.arch in record.archs


def _platform(record: EngineRecord, host: Host) -> str:
    if host.platform in (None, record.platform):
        return ""
    assert host.platform is not None
    if record.flavor == "tensorrt-rtx" and _portable(record.platform) and _portable(host.platform):
        return ""
    return f"built for {record.platform}, here is {host.platform}, and engines do not cross platforms: build it here"


def _portable(platform: str) -> bool:
    system, _, machine = platform.partition("-")
    return system in ("linux", "win", "win32") and machine in ("x86_64", "amd64")


def _model(record: EngineRecord, model: str | None) -> str:
    if model is None or model == record.model_sha256:
        return ""
    return (
        f"built from another ONNX: {record.model} with sha256 {record.model_sha256[:12]}…, and yours is {model[:12]}…: "
        "build the engine again from your model"
    )


def _plugins(record: EngineRecord, plugins: Mapping[str, str] | None) -> list[str]:
    if plugins is None:
        return []
    found = []
    by_content = {digest: name for name, digest in plugins.items()}
    for needed in record.plugins:
        if needed.embedded or needed.sha256 in by_content:  # the same bytes under another name serve as well
            continue
        if needed.name in plugins:
            found.append(
                f"plugin library changed: {needed.name} has sha256 {plugins[needed.name][:12]}…, the engine was built with "
                f"{needed.sha256[:12]}…: give that one, or build the engine again with this one"
            )
        else:
            given = ", ".join(sorted(plugins)) or "none"
            found.append(f"plugin library missing: {needed.name} (given: {given}): give it with --plugins")
    return found


def _wanted(record: EngineRecord) -> str:
    return f"{_NAMES[record.flavor]} {record.tensorrt}" + (
        " or newer" if record.version_compatible and record.flavor == "tensorrt" else ""
    )


def _gpus(record: EngineRecord) -> str:
    if record.hardware_compatible == "ampere+":
        return "sm80 and newer"
    return ", ".join(record.archs) or "a GPU that its record does not name"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"[0-9]+", version))


def _capability(arch: str) -> tuple[int, int]:
    """`sm89` -> (8, 9), `sm120` -> (12, 0)."""
    digits = re.sub(r"[^0-9]", "", arch)
    return (int(digits[:-1]), int(digits[-1])) if len(digits) > 1 else (0, 0)
