"""The manifest beside a custom-operator library: what is in it, without loading it.

Its operators with their versions, inputs, attributes and the element types of each kernel, and the sha256 of the library
itself; how it is read is `native/kernel_manifest.py`.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..native.kernel_manifest import (
    KernelArgument,
    KernelAttribute,
    KernelInterface,
    KernelSignature,
    ManifestReader,
    brief,
    check_belongs,
    check_is_library,
    manifest_path,
    read_content,
    shown,
)

__all__ = [
    "FORMAT",
    "KernelArgument",
    "KernelAttribute",
    "KernelOperator",
    "KernelSignature",
    "LibraryManifest",
    "manifest_path",
    "platform_of",
    "read_manifest",
    "this_platform",
]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class KernelOperator(KernelInterface):
    """An operator of a library, in one version. `name`: its torch name; `kernel`: sha256 of its kernel file."""

    domain: str
    op_type: str
    version: int
    name: str
    kernel: str = field(default="", kw_only=True)

    @property
    def onnx_name(self) -> str:
        return f"{self.domain}::{self.op_type}"


@dataclass(frozen=True, slots=True)
class LibraryManifest:
    """What a library holds. `levels`: the instruction sets that it was compiled for."""

    path: Path
    sha256: str
    target: str
    platform: str
    operators: tuple[KernelOperator, ...]
    compiler: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def provider(self) -> str:
        """Of ONNX Runtime, for which its kernels are: "CPU" or "CUDA"."""
        return "CUDA" if self.target == "ort-cuda" else "CPU"


def this_platform() -> str:
    """`linux-x86_64`, `darwin-arm64`, `win32-AMD64`: for what a library runs here must be built."""
    return f"{sys.platform}-{platform.machine()}"


def platform_of(target: str) -> str:
    """The same for a compiler's target, which may be another machine's: `linux-aarch64` for `aarch64-linux-gnu`."""
    return f"{sys.platform}-{target.split('-')[0]}"


def read_manifest(library: str | os.PathLike[str]) -> LibraryManifest:
    """The manifest of a library, checked against the library's bytes; the library is not loaded.

    Raises UsageError: no such library or manifest, not a manifest, another format, another platform, or a library that
    was rebuilt or replaced since the manifest was written.
    """
    library = Path(library)
    check_is_library(library)
    path = manifest_path(library)
    content = read_content(library)
    read = ManifestReader(shown(path))
    if content.get("target") == "tensorrt" or "plugins" in content:
        raise UsageError(
            f"{shown(library)} is a library of TensorRT plugins, and none for ONNX Runtime: give it with --plugins (plugins=[…]), "
            "or build one with `deployops compile --target ort-cpu` or `--target ort-cuda`"
        )
    if type(content.get("format")) is not int or content["format"] != FORMAT:  # True and 1.0 equal 1
        raise UsageError(
            f"{shown(path)}: its format is {brief(content.get('format'))}; this deployops reads {FORMAT}. Build the "
            "library again with `deployops compile`"
        )
    manifest = LibraryManifest(
        path=library,
        sha256=read.text(content, "sha256"),
        target=read.text(content, "target"),
        platform=read.text(content, "platform"),
        operators=tuple(_operator(read, o) for o in read.entries(content, "operators")),
        compiler=read.texts_by_name(content, "compiler"),
        flags=read.texts(content, "flags"),
        levels=read.texts(content, "levels"),
    )
    if manifest.platform != this_platform():
        raise UsageError(
            f"{shown(library)} is built for {brief(manifest.platform)}, and this is {this_platform()}. Build it here "
            f"with `deployops compile --target {'ort-cuda' if manifest.provider == 'CUDA' else 'ort-cpu'}`"
        )
    check_belongs(library, manifest.sha256)
    return manifest


def _operator(read: ManifestReader, entry: Any) -> KernelOperator:
    domain, op_type = read.text(entry, "domain"), read.text(entry, "op_type")
    return KernelOperator(
        domain,
        op_type,
        version=read.field(entry, "version", int),
        name=read.text(entry, "name"),
        kernel=read.texts_by_name(entry, "kernel").get("sha256", "") if "kernel" in entry else "",
        **read.interface(entry, f"{domain}::{op_type}"),
    )
