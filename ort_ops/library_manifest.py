"""The manifest beside a custom-operator library: what is in it, without loading it.

`deployops compile` writes `<stem>.json` next to the library: its operators with their versions, inputs, attributes and the
element types of each kernel, and the sha256 of the library itself. Reading it loads no native code, so that a model can
be held against a library on any machine. The file is checked as one that anybody may have written.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError

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
LARGEST = 16 << 20  # bytes; the manifest of all shipped operators is a few hundred kB
MOST_ENTRIES = 10_000  # operators, and signatures of one operator
_ATTRIBUTE_TYPES = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
_FORMS = ("single", "optional", "variadic")
_CHUNK = 1 << 20

Form = Literal["single", "optional", "variadic"]


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """An input or output. `type`: its type variable, or None."""

    name: str
    form: Form = "single"
    type: str | None = None


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """Element types of one kernel, by the names of inputs and outputs."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelAttribute:
    """`type`: FLOAT, INT, STRING, FLOATS, INTS or STRINGS."""

    name: str
    type: str
    required: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class KernelOperator:
    """An operator of a library, in one version. `name`: its torch name; `kernel`: sha256 of its kernel file."""

    domain: str
    op_type: str
    version: int
    name: str
    inputs: tuple[KernelArgument, ...]
    outputs: tuple[KernelArgument, ...]
    signatures: tuple[KernelSignature, ...]
    attributes: tuple[KernelAttribute, ...] = ()
    kernel: str = ""

    @property
    def onnx_name(self) -> str:
        return f"{self.domain}::{self.op_type}"

    def input_at(self, place: int) -> KernelArgument | None:
        """The declared input of a node's input; everything from the first variadic one on belongs to it."""
        for k, argument in enumerate(self.inputs):
            if k == place or argument.form == "variadic":
                return argument
        return None

    def takes(self, signature: KernelSignature, inputs: Sequence[str | None]) -> bool:
        """Do the known element types of a node's inputs fit a kernel?"""
        lists = {signature.inputs.get(a.name) for a in self.inputs if a.form == "variadic"}
        for place, dtype in enumerate(inputs):
            argument = self.input_at(place)
            if dtype is None or argument is None:
                continue
            # several lists of tensors come one after the other, and an attribute says where each ends
            wanted = lists if argument.form == "variadic" else {signature.inputs.get(argument.name)}
            if dtype not in wanted:
                return False
        return True

    def output_dtypes(self, inputs: Sequence[str | None]) -> list[str | None]:
        """Element types of a node's outputs, where the kernels that fit its inputs agree on them."""
        fitting = [s for s in self.signatures if self.takes(s, inputs)]
        found: list[str | None] = []
        for output in self.outputs:
            kinds = {s.outputs.get(output.name) for s in fitting}
            found.append(kinds.pop() if len(kinds) == 1 else None)
        return found


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


def this_platform() -> str:
    """`linux-x86_64`, `darwin-arm64`, `win32-AMD64`: for what a library runs here must be built."""
    return f"{sys.platform}-{platform.machine()}"


def platform_of(target: str) -> str:
    """The same for a compiler's target, which may be another machine's: `linux-aarch64` for `aarch64-linux-gnu`."""
    return f"{sys.platform}-{target.split('-')[0]}"


def manifest_path(library: Path) -> Path:
    """Where a library's manifest stands: beside it, under the same stem."""
    return library.with_suffix(".json")


def read_manifest(library: str | os.PathLike[str]) -> LibraryManifest:
    """The manifest of a library, checked against the library's bytes; the library is not loaded.

    Raises UsageError: no such library or manifest, not a manifest, another format, another platform, or a library that
    was rebuilt or replaced since the manifest was written.
    """
    library = Path(library)
    _check_is_library(library)
    path = manifest_path(library)
    content = _content(library, path)
    read = _Reader(_shown(path))
    if type(content.get("format")) is not int or content["format"] != FORMAT:  # True and 1.0 equal 1
        raise UsageError(
            f"{_shown(path)}: its format is {_brief(content.get('format'))}; this deployops reads {FORMAT}. Build the "
            "library again with `deployops compile`"
        )
    manifest = LibraryManifest(
        path=library,
        sha256=read.text(content, "sha256"),
        target=read.text(content, "target"),
        platform=read.text(content, "platform"),
        operators=tuple(read.operator(o) for o in read.entries(content, "operators")),
        compiler=read.texts_by_name(content, "compiler"),
        flags=read.texts(content, "flags"),
        levels=read.texts(content, "levels"),
    )
    if manifest.platform != this_platform():
        raise UsageError(
            f"{_shown(library)} is built for {_brief(manifest.platform)}, and this is {this_platform()}. Build it here "
            "with `deployops compile --target ort-cpu`"
        )
    if _sha256(library) != manifest.sha256:
        raise UsageError(
            f"{_shown(library)} was rebuilt or replaced since {_shown(path.name)} was written: their hashes differ. Copy "
            "both files of one build, or build again with `deployops compile`"
        )
    return manifest


def _check_is_library(library: Path) -> None:
    try:
        folder, file, there = library.is_dir(), library.is_file(), library.exists()
    except (OSError, ValueError) as error:  # a name that is too long, a folder that is closed
        raise UsageError(
            f"{_shown(library)} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if folder:
        raise UsageError(f"{_shown(library)} is a folder. Give the library in it (the .so, .dylib or .dll)")
    if not file:
        missing = "not a file" if there else "no such file"
        raise UsageError(
            f"{_shown(library)}: {missing}. Give the path of the library itself (.so, .dylib, .dll)"
        )
    if library.suffix.lower() == ".json":
        raise UsageError(
            f"{_shown(library)} is a manifest, not a library. Give the library itself, which stands beside it "
            "(.so, .dylib, .dll)"
        )


def _content(library: Path, path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise UsageError(
                f"{_shown(library)} has no manifest: {_shown(path.name)} is not beside it. `deployops compile` writes one; "
                "of a library that another tool built nothing is known without loading it"
            )
        with path.open("rb") as stream:
            text = stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{_shown(path)} cannot be read: {error}") from None
    if len(text) > LARGEST:
        raise UsageError(f"{_shown(path)} is no library manifest: it has more than {LARGEST >> 20} MB")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{_shown(path)} is no library manifest: not JSON ({_brief(str(error))})") from None
    if not isinstance(content, dict):
        raise UsageError(f"{_shown(path)} is no library manifest: {_brief(content)} is no JSON object")
    return content


class _Reader:
    """Takes typed fields out of parsed JSON; what is not there or of another kind is a UsageError that names it."""

    def __init__(self, file: str) -> None:
        self._file = file

    def operator(self, entry: Any) -> KernelOperator:
        operator = KernelOperator(
            domain=self.text(entry, "domain"),
            op_type=self.text(entry, "op_type"),
            version=self._field(entry, "version", int),
            name=self.text(entry, "name"),
            inputs=tuple(self._argument(a) for a in self.entries(entry, "inputs")),
            outputs=tuple(self._argument(a) for a in self.entries(entry, "outputs")),
            signatures=tuple(
                KernelSignature(self.texts_by_name(s, "inputs"), self.texts_by_name(s, "outputs"))
                for s in self.entries(entry, "signatures")
            ),
            attributes=tuple(self._attribute(a) for a in self.entries(entry, "attributes")),
            kernel=self.texts_by_name(entry, "kernel").get("sha256", "") if "kernel" in entry else "",
        )
        for signature in operator.signatures:
            missing = [a.name for a in operator.inputs if a.name not in signature.inputs]
            if missing:
                self._fault(
                    f"a signature of {_brief(operator.onnx_name)} does not say the type of {_brief(missing[0])}"
                )
        return operator

    def _argument(self, entry: Any) -> KernelArgument:
        form = self.text(entry, "form")
        if form not in _FORMS:
            self._fault(f"`form` is {_brief(form)}; expected one of {', '.join(_FORMS)}")
        kind = entry.get("type")
        if kind is not None and not isinstance(kind, str):
            self._fault(f"`type` is {_brief(kind)}; expected a text or null")
        return KernelArgument(self.text(entry, "name"), form, kind)  # type: ignore[arg-type]

    def _attribute(self, entry: Any) -> KernelAttribute:
        kind = self.text(entry, "type")
        if kind not in _ATTRIBUTE_TYPES:
            self._fault(f"`type` is {_brief(kind)}; expected one of {', '.join(_ATTRIBUTE_TYPES)}")
        required = self._field(entry, "required", bool)
        return KernelAttribute(self.text(entry, "name"), kind, required, entry.get("default"))

    def text(self, entry: Any, key: str) -> str:
        found: str = self._field(entry, key, str)
        return found

    def texts(self, entry: Any, key: str) -> tuple[str, ...]:
        found = self.entries(entry, key)
        if not all(isinstance(t, str) for t in found):
            self._fault(f"`{key}` holds something that is no text")
        return tuple(found)

    def texts_by_name(self, entry: Any, key: str) -> dict[str, str]:
        found: dict[str, str] = self._field(entry, key, dict)
        if not all(isinstance(t, str) for t in found.values()):
            self._fault(f"`{key}` holds something that is no text")
        return found

    def entries(self, entry: Any, key: str) -> list[Any]:
        found: list[Any] = self._field(entry, key, list)
        if len(found) > MOST_ENTRIES:
            self._fault(f"`{key}` has {len(found):,} entries")
        return found

    def _field(self, entry: Any, key: str, kind: type) -> Any:
        if not isinstance(entry, dict):
            self._fault(f"{_brief(entry)} stands where an object with `{key}` was expected")
        found: Any = entry.get(key)
        odd = kind is int and (
            isinstance(found, bool) or not isinstance(found, int) or not 0 < found < 1 << 31
        )
        if odd or not isinstance(found, kind):
            what = {
                str: "a text",
                int: "a positive number",
                list: "a list",
                dict: "an object",
                bool: "true or false",
            }
            self._fault(f"`{key}` is {_brief(found)}; expected {what[kind]}")
        return found

    def _fault(self, what: str) -> None:
        raise UsageError(
            f"{self._file} is no library manifest: {what}. Build the library again with `deployops compile`"
        )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise UsageError(f"{_shown(file)} cannot be read: {error.strerror or error}") from None
    return digest.hexdigest()


def _shown(path: str | os.PathLike[str]) -> str:
    text = os.fsdecode(path)
    return text if text.isprintable() else repr(text)


def _brief(value: Any) -> str:
    """A value of the file for a message: short, and one printable line."""
    text = repr(value) if len(str(value)[:200]) <= 60 else repr(str(value)[:60]) + "…"
    return text if text.isprintable() else ascii(text)
