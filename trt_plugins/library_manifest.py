"""The plugins of a library as its manifest tells them, without loading the library; or as a JSON file describes them.

`deployops compile --target tensorrt` writes `<stem>.json` next to a library (`manifest.py`). Plugins of others are
described by hand, or by a tool: `described_plugins` says how. Both are read as files that anybody may have written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..native.kernel_manifest import (
    KernelAttribute,
    KernelInterface,
    ManifestReader,
    brief,
    check_belongs,
    check_is_library,
    json_content,
    manifest_path,
    read_content,
    shown,
)
from .manifest import FORMAT

__all__ = ["Plugin", "PluginField", "PluginManifest", "described_plugins", "of_registry", "read_plugins"]

# TensorRT's own words for a field's type (`PluginFieldType`) -> the attributes that the parser makes into it.
_FIELD_TYPES = {
    "int32": ("INT", "INTS"),
    "float32": ("FLOAT", "FLOATS"),
    "char": ("STRING", "STRINGS"),
    **dict.fromkeys(("float16", "float64", "int8", "int16", "bf16"), ("TENSOR",)),
}
_ATTRIBUTE_TYPES = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS", "TENSOR")


@dataclass(frozen=True, slots=True)
class PluginField:
    """An attribute that a plugin reads.

    `types`: the types of ONNX attributes that are meant; none: not told. `length`: of the list that TensorRT gives, where
    it is fixed.
    """

    name: str
    types: tuple[str, ...]
    required: bool = True
    default: Any = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as TensorRT's registry has it.

    Attributes:
        fields: None: not told.
        operator: its torch name; "" where a stranger describes it.
        interface: its inputs and kernels; None where they are not known.
        shape_inputs: inputs whose values it reads as sizes.
        data_sizes: outputs that it has for TensorRT alone, after those of the ONNX node: sizes that the data decides.
    """

    name: str
    version: str
    namespace: str
    fields: tuple[PluginField, ...] | None
    operator: str = ""
    interface: KernelInterface | None = None
    shape_inputs: tuple[str, ...] = ()
    data_sizes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """`acme::Blur`, or the bare name where the namespace is empty."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class PluginManifest:
    """A file of plugins.

    Attributes:
        path: the library, or the JSON file that describes plugins.
        plugins: None for a library without a manifest: what it has is not known without loading it (`of_registry`).
        registered: they are known from TensorRT's registry alone: names, versions, namespaces, names of fields.
        is_library: False for a description alone.
        archs: compute capabilities with machine code, 80 for 8.0; ptx: that of its PTX, for newer GPUs. None: not known.
        entries: of a library's manifest, the plugins as they stand there.
    """

    path: Path
    plugins: tuple[Plugin, ...] | None
    is_library: bool = True
    registered: bool = False
    sha256: str = ""
    archs: tuple[int, ...] = ()
    ptx: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    entries: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return self.path.name


def read_plugins(path: str | os.PathLike[str]) -> PluginManifest:
    """The plugins of a library, checked against the library's bytes; or those that a `.json` file describes.

    A library without a manifest has unknown plugins. Raises UsageError: no such file, a manifest that is damaged, of
    another target or format, or of other bytes than the library's.
    """
    file = Path(path)
    if file.suffix.lower() == ".json":
        return _described(file)
    check_is_library(file)
    try:
        if not manifest_path(file).is_file():
            return PluginManifest(file, None)
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown(manifest_path(file))} cannot be read: {error}") from None
    content = read_content(file)
    read = ManifestReader(shown(manifest_path(file)))
    if content.get("target") != "tensorrt":
        if "operators" in content:
            raise UsageError(
                f"{shown(file)} is a library for ONNX Runtime, and none of TensorRT plugins: give it with --ort-library "
                "(libraries=[…]), or build one with `deployops compile --target tensorrt`"
            )
        raise UsageError(
            f"{shown(manifest_path(file))} is no manifest of TensorRT plugins but another. Give the library that `deployops "
            "compile --target tensorrt` built"
        )
    if type(content.get("format")) is not int or content["format"] != FORMAT:  # True and 1.0 equal 1
        raise UsageError(
            f"{shown(manifest_path(file))}: its format is {brief(content.get('format'))}; this deployops reads {FORMAT}. "
            "Build the library again with `deployops compile --target tensorrt`"
        )
    entries = tuple(read.entries(content, "plugins"))
    manifest = PluginManifest(
        file,
        tuple(_plugin(read, p) for p in entries),
        sha256=read.text(content, "sha256"),
        archs=tuple(read.field({"archs": a}, "archs", int) for a in read.entries(content, "archs")),
        ptx=read.field(content, "ptx", int),
        versions={key: read.text(content, key) for key in ("nvcc", "tensorrt_headers")},
        entries=entries,
    )
    check_belongs(file, manifest.sha256)
    return manifest


def of_registry(manifest: PluginManifest, creators: Iterable[Mapping[str, Any]]) -> PluginManifest:
    """A library without a manifest, by what TensorRT's registry had once it was loaded.

    `creators`: `name`, `version`, `namespace` and `fields` (names; null: not told) of each. Types and defaults of fields are
    left out: no creator is held to what it says of them.
    """
    plugins = tuple(
        Plugin(
            c["name"],
            c["version"],
            c["namespace"],
            None if c["fields"] is None else tuple(PluginField(n, (), required=False) for n in c["fields"]),
        )
        for c in creators
    )
    return replace(manifest, plugins=plugins, registered=True)


def _plugin(read: ManifestReader, entry: Any) -> Plugin:
    name, namespace = read.text(entry, "plugin_name"), read.text(entry, "plugin_namespace")
    outputs = [{"name": o, "form": "single"} for o in read.texts(entry, "outputs")]
    interface = KernelInterface(**read.interface({**entry, "outputs": outputs}, f"{namespace}::{name}"))
    return Plugin(
        name,
        read.text(entry, "plugin_version"),
        namespace,
        tuple(map(_field, interface.attributes)),
        read.text(entry, "name"),
        interface,
        read.texts(entry, "shape_inputs") if "shape_inputs" in entry else (),
        read.texts(entry, "data_sizes") if "data_sizes" in entry else (),
    )


def _field(attribute: KernelAttribute) -> PluginField:
    length = None if attribute.type.endswith("S") else 1
    return PluginField(attribute.name, (attribute.type,), attribute.required, attribute.default, length)


def _described(file: Path) -> PluginManifest:
    check = "no such file" if not file.exists() else "" if file.is_file() else "not a file"
    if check:
        raise UsageError(
            f"{shown(file)}: {check}. Give a plugin library, or a JSON file that describes plugins"
        )
    content = json_content(file, "description of plugins")
    if isinstance(content, dict) and content.get("target") in ("tensorrt", "ort-cpu", "ort-cuda"):
        raise UsageError(
            f"{shown(file)} is a manifest, not a library. Give the library itself, which stands beside it (the .so)"
        )
    return PluginManifest(file, described_plugins(content, shown(file)), is_library=False)


def described_plugins(content: Any, file: str) -> tuple[Plugin, ...]:
    """The plugins that a JSON file describes: a list, or an object with the list under "plugins".

    An entry is ``{"name": "Blur", "version": "2", "namespace": "acme", "fields": {"radius": "int32", "sizes": ["INTS", 2],
    "mode": {"type": "STRING", "default": "full"}}, "inputs": [...], "signatures": [...]}``. The version is "1" and the
    namespace "" where they are left out. A field's type is an attribute's (INT, INTS, FLOAT, FLOATS, STRING, STRINGS,
    TENSOR) or TensorRT's (int32, float32, char, ...), which says nothing of single values and lists; in a list with its
    length, null for any; or an object. A field with a default need not be on the node. `inputs`, `outputs` and
    `signatures` are as in the manifest that `deployops compile` writes; without them dtypes are not checked.

    Raises UsageError.
    """
    read = ManifestReader(file, "description of plugins", "Correct it: docs/inspect.md shows one")
    entries = read.entries(content if isinstance(content, dict) else {"plugins": content}, "plugins")
    return tuple(_described_plugin(read, entry) for entry in entries)


def _described_plugin(read: ManifestReader, entry: Any) -> Plugin:
    name = read.text(entry, "name")
    fields = read.field(entry, "fields", dict) if "fields" in entry else {}
    interface = None
    if "signatures" in entry:
        lists = {"attributes": [], "outputs": [], **entry}
        interface = KernelInterface(**read.interface(lists, name))
    return Plugin(
        name,
        read.text(entry, "version") if "version" in entry else "1",
        read.text(entry, "namespace") if "namespace" in entry else "",
        tuple(_described_field(read, n, f) for n, f in fields.items()),
        interface=interface,
    )


def _described_field(read: ManifestReader, name: str, entry: Any) -> PluginField:
    length: Any = None
    required, default = True, None
    if isinstance(entry, list) and len(entry) == 2:
        kind, length = entry
    elif isinstance(entry, dict):
        kind, length = entry.get("type"), entry.get("length")
        required, default = "default" not in entry, entry.get("default")
    else:
        kind = entry
    known = isinstance(kind, str) and (kind.upper() in _ATTRIBUTE_TYPES or kind.lower() in _FIELD_TYPES)
    if not known:
        read.fault(
            f"field {brief(name)} has the type {brief(kind)}; expected {', '.join(_ATTRIBUTE_TYPES)}, or "
            f"{', '.join(_FIELD_TYPES)}"
        )
    if length is not None and (type(length) is not int or not 0 <= length < 1 << 31):
        read.fault(f"field {brief(name)} has the length {brief(length)}; expected a number or null")
    types = (kind.upper(),) if kind.upper() in _ATTRIBUTE_TYPES else _FIELD_TYPES[kind.lower()]
    return PluginField(name, types, required, default, length)
