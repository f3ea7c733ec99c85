"""Libraries of plugins that do not load, or bring nothing: read as files (`native/elf_file.py`), never loaded."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...native.elf_file import NativeLibrary, NotElfError, read_elf
from ...native.loader import LoadFault, load_faults
from ...symbolic.graph_inspection.findings import FAILS, HURTS, NOTE, Finding
from ..library_manifest import PluginManifest
from .tensorrt_limits import TensorRTLimits

__all__ = ["library_findings"]

# What `registry.load_library` asks a library for; the second is of plugins before IPluginV3.
_CREATORS, _OLD_CREATORS = "getCreators", "getPluginCreators"
_DRIVER = "libcuda.so"
_SHOWN = 5
_BUILD = "Build it with `deployops compile --target tensorrt`"


def library_findings(
    manifests: Sequence[PluginManifest], limits: TensorRTLimits, archs: Sequence[int]
) -> Iterator[Finding]:
    """What keeps each library from being used. `archs`: GPUs that it shall run on, 89 for 8.9; none: not looked at."""
    for manifest in manifests:
        if not manifest.is_library:
            continue
        try:
            library = read_elf(manifest.path)
        except NotElfError as error:
            yield Finding(
                FAILS, "library-not-elf", "", f"{manifest.name} is {error}", "Give the plugin library, a .so"
            )
            continue
        yield from _machine_findings(library, limits)
        yield from _entry_findings(manifest, library, limits)
        yield from _arch_findings(manifest, archs)
    yield from _twice(manifests)


def _machine_findings(library: NativeLibrary, limits: TensorRTLimits) -> Iterator[Finding]:
    name, here = library.path.name, platform.machine()
    if library.machine != here:
        what = f"{name} is built for {library.machine}, and this machine is {here}"
        yield Finding(FAILS, "library-platform", "", what, f"Build it there, or inspect on {library.machine}")
        return
    own = _own_library(limits)
    tied = [n for n in library.needed if n.startswith(("libnvinfer", "libtensorrt"))]
    for needed in tied:
        other = re.fullmatch(r"(lib(?:nvinfer|tensorrt_rtx))(_\w+)?\.so\.?([\d.]*)", needed)
        major = other[3].split(".")[0] if other else ""
        if other is None or other[1] != own or (major and limits.release[0] != int(major)):
            what = f"{name} is linked to {needed}, which {limits.title} has not"
            yield Finding(
                FAILS,
                "library-other-tensorrt",
                "",
                what,
                f"Build it for {limits.title}; or link it to no library of TensorRT",
            )
    for fault in load_faults(library, ("libnvinfer", "libtensorrt", _DRIVER, "ld-linux")):
        yield _load_finding(name, fault)
    if any(n.startswith(_DRIVER) for n in library.needed):
        what = f"{name} is linked to the driver ({_DRIVER}.1): it loads on machines with one alone"
        yield Finding(NOTE, "library-needs-driver", "", what, "Link it to the CUDA runtime, not to libcuda")


def _own_library(limits: TensorRTLimits) -> str:
    return "libtensorrt_rtx" if limits.flavor == "tensorrt-rtx" else "libnvinfer"


def _load_finding(name: str, fault: LoadFault) -> Finding:
    if fault.kind == "missing-library":
        by = "" if fault.by == name else f" (for {fault.by})"
        what = f"{name} needs {fault.name}{by}, which this machine has not"
        advice = f"Install it, or put its folder into LD_LIBRARY_PATH. {_cuda_advice(fault.name)}".rstrip()
    elif fault.kind == "missing-version":
        what = f"{name} needs {fault.name}, and that of this machine is older"
        advice = "Build the library on the oldest system that it shall run on"
    else:
        what = f"{name} needs the symbol {fault.name}, which none of its libraries has"
        advice = "Link the object or library that has it"
    return Finding(FAILS, f"library-{fault.kind}", "", what, advice)


def _cuda_advice(library: str) -> str:
    version = re.match(r"libcudart\.so\.(\d+)", library)
    return f"It is of CUDA {version[1]}; a library with the static runtime needs none" if version else ""


def _entry_findings(
    manifest: PluginManifest, library: NativeLibrary, limits: TensorRTLimits
) -> Iterator[Finding]:
    name = manifest.name
    if manifest.plugins is not None and not manifest.registered and not limits.takes_plugins_v3:
        what = f"{name} has plugins of the kind IPluginV3, which TensorRT has since 10.0; this is {limits.version}"
        yield Finding(FAILS, "tensorrt-too-old", "", what, "Use TensorRT 10 or newer")
    if _CREATORS in library.defined:
        return
    if _OLD_CREATORS not in library.defined:
        what = f"{name} shows neither {_CREATORS} nor {_OLD_CREATORS}: TensorRT's load_library finds no plugin in it"
        advice = "Where its plugins register themselves, load it with ctypes.CDLL or dlopen instead"
        yield Finding(HURTS, "library-no-creators", "", what, advice)
    elif limits.flavor == "tensorrt-rtx":
        what = f"{name} has plugins of older kinds (IPluginV2) alone, which {limits.title} does not take"
        yield Finding(FAILS, "library-old-plugins", "", what, f"Write them as IPluginV3. {_BUILD}")
    elif limits.release >= (11, 0):
        what = f"{name} has plugins of older kinds (IPluginV2) alone, which TensorRT 11 calls deprecated"
        yield Finding(NOTE, "library-old-plugins", "", what, "Write them as IPluginV3")


def _arch_findings(manifest: PluginManifest, archs: Sequence[int]) -> Iterator[Finding]:
    if manifest.plugins is None or not manifest.archs:
        return
    for arch in archs:
        # machine code runs on GPUs of the same major version, not older than it
        if any(a // 10 == arch // 10 and a <= arch for a in manifest.archs):
            continue
        there = ", ".join(f"sm_{a}" for a in manifest.archs)
        if manifest.ptx is not None and manifest.ptx <= arch:
            what = f"{manifest.name} has no machine code for sm_{arch} ({there}): the driver compiles its PTX at the first start"
            yield Finding(HURTS, "library-arch", "", what, f"Compile it with --arch {arch} too")
        else:
            what = f"{manifest.name} has no code for sm_{arch} ({there})"
            yield Finding(FAILS, "library-arch", "", what, f"Compile it with --arch {arch}")


def _twice(manifests: Sequence[PluginManifest]) -> Iterator[Finding]:
    """TensorRT's registry takes nothing of a library that has a plugin which is there already."""
    owners: dict[tuple[str, str, str], Path] = {}
    both: dict[tuple[Path, Path], list[str]] = {}
    for manifest in manifests:
        for plugin in manifest.plugins or ():
            owner = owners.setdefault((plugin.name, plugin.version, plugin.namespace), manifest.path)
            if owner != manifest.path:
                both.setdefault((owner, manifest.path), []).append(plugin.title)
    for paths, names in both.items():
        # our own libraries all have one name
        first, second = (path if paths[0].name == paths[1].name else path.name for path in paths)
        listed = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        what = f"{first} and {second} both have {listed}: TensorRT takes nothing at all of the second"
        yield Finding(FAILS, "plugin-twice", "", what, "Give one of the two")
