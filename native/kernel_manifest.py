"""The manifests beside native libraries: what ONNX Runtime's and TensorRT's have in common, and how they are read.

`deployops compile` writes `<stem>.json` next to a library. Reading it loads no native code, so that a model can be held
against a library on any machine. The file is checked as one that anybody may have written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from ..errors import UsageError

__all__ = [
    "KernelArgument",
    "KernelAttribute",
    "KernelInterface",
    "KernelSignature",
    "ManifestReader",
    "brief",
    "check_belongs",
    "check_is_library",
    "each_key_once",
    "json_content",
    "manifest_path",
    "read_content",
    "shown",
]

LARGEST = 16 << 20  # bytes; the manifest of all shipped operators is a few hundred kB
MOST_ENTRIES = 10_000  # operators, and signatures of one operator
_ATTRIBUTE_TYPES = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
_FORMS = ("single", "optional", "variadic")
_CHUNK = 1 << 20
_BUILD_AGAIN = "Build the library again with `deployops compile`"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInterface:
    """What goes in and out of an operator of a library, and the element types of its kernels."""

    inputs: tuple[KernelArgument, ...]
    outputs: tuple[KernelArgument, ...]
    signatures: tuple[KernelSignature, ...]
    attributes: tuple[KernelAttribute, ...] = ()

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


def manifest_path(library: Path) -> Path:
    """Where a library's manifest stands: beside it, under the same stem."""
    return library.with_suffix(".json")


def check_is_library(library: Path) -> None:
    """Raises UsageError for what is no library's path."""
    try:
        folder, file, there = library.is_dir(), library.is_file(), library.exists()
    except (OSError, ValueError) as error:  # a name that is too long, a folder that is closed
        raise UsageError(
            f"{shown(library)} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if folder:
        raise UsageError(f"{shown(library)} is a folder. Give the library in it (the .so, .dylib or .dll)")
    if not file:
        missing = "not a file" if there else "no such file"
        raise UsageError(
            f"{shown(library)}: {missing}. Give the path of the library itself (.so, .dylib, .dll)"
        )
    if library.suffix.lower() == ".json":
        raise UsageError(
            f"{shown(library)} is a manifest, not a library. Give the library itself, which stands beside it "
            "(.so, .dylib, .dll)"
        )


def read_content(library: Path) -> dict[str, Any]:
    """The manifest of a library as a JSON object. Raises UsageError where there is none."""
    path = manifest_path(library)
    try:
        if not path.is_file():
            raise UsageError(
                f"{shown(library)} has no manifest: {shown(path.name)} is not beside it. `deployops compile` writes one; "
                "of a library that another tool built nothing is known without loading it"
            )
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown(path)} cannot be read: {error}") from None
    content = json_content(path, "library manifest", _BUILD_AGAIN)
    if not isinstance(content, dict):
        raise UsageError(
            f"{shown(path)} is no library manifest: {brief(content)} is no JSON object. {_BUILD_AGAIN}"
        )
    return content


def json_content(path: Path, what: str, advice: str = "") -> Any:
    """A file of somebody else's as JSON. Raises UsageError where it is none, or very large; `advice`: what to do then."""
    advice = f". {advice}" if advice else ""
    try:
        with path.open("rb") as stream:
            text = stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown(path)} cannot be read: {error}") from None
    if len(text) > LARGEST:
        raise UsageError(f"{shown(path)} is no {what}: it has more than {LARGEST >> 20} MB{advice}")
    try:
        return json.loads(text, object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown(path)} is no {what}: not JSON ({brief(str(error))}){advice}") from None


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: an object. Raises ValueError for a key that is there twice: readers differ in what that says."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"an object has the key {brief(key)} twice")
        made[key] = value
    return made


def check_belongs(library: Path, sha256: str) -> None:
    """Raises UsageError where the library's bytes are not those that its manifest was written for."""
    if _sha256(library) != sha256:
        raise UsageError(
            f"{shown(library)} was rebuilt or replaced since {shown(manifest_path(library).name)} was written: their hashes "
            "differ. Copy both files of one build, or build again with `deployops compile`"
        )


class ManifestReader:
    """Takes typed fields out of parsed JSON; what is not there or of another kind is a UsageError that names it."""

    def __init__(
        self,
        file: str,
        kind: str = "library manifest",
        advice: str = _BUILD_AGAIN,
    ) -> None:
        self._file, self._kind, self._advice = file, kind, advice

    def interface(self, entry: Any, title: str) -> dict[str, Any]:
        """The fields of a `KernelInterface`, checked against each other. `title`: of the operator, for messages."""
        fields: dict[str, Any] = {
            "inputs": tuple(self._argument(a) for a in self.entries(entry, "inputs")),
            "outputs": tuple(self._argument(a) for a in self.entries(entry, "outputs")),
            "signatures": tuple(
                KernelSignature(self.texts_by_name(s, "inputs"), self.texts_by_name(s, "outputs"))
                for s in self.entries(entry, "signatures")
            ),
            "attributes": tuple(self._attribute(a) for a in self.entries(entry, "attributes")),
        }
        for signature in fields["signatures"]:
            missing = [a.name for a in fields["inputs"] if a.name not in signature.inputs]
            if missing:
                self.fault(f"a signature of {brief(title)} does not say the type of {brief(missing[0])}")
        return fields

    def _argument(self, entry: Any) -> KernelArgument:
        form = self.text(entry, "form")
        if form not in _FORMS:
            self.fault(f"`form` is {brief(form)}; expected one of {', '.join(_FORMS)}")
        kind = entry.get("type")
        if kind is not None and not isinstance(kind, str):
            self.fault(f"`type` is {brief(kind)}; expected a text or null")
        return KernelArgument(self.text(entry, "name"), form, kind)  # type: ignore[arg-type]

    def _attribute(self, entry: Any) -> KernelAttribute:
        kind = self.text(entry, "type")
        if kind not in _ATTRIBUTE_TYPES:
            self.fault(f"`type` is {brief(kind)}; expected one of {', '.join(_ATTRIBUTE_TYPES)}")
        required = self.field(entry, "required", bool)
        return KernelAttribute(self.text(entry, "name"), kind, required, entry.get("default"))

    def text(self, entry: Any, key: str) -> str:
        found: str = self.field(entry, key, str)
        return found

    def texts(self, entry: Any, key: str) -> tuple[str, ...]:
        found = self.entries(entry, key)
        if not all(isinstance(t, str) for t in found):
            self.fault(f"`{key}` holds something that is no text")
        return tuple(found)

    def texts_by_name(self, entry: Any, key: str) -> dict[str, str]:
        found: dict[str, str] = self.field(entry, key, dict)
        if not all(isinstance(t, str) for t in found.values()):
            self.fault(f"`{key}` holds something that is no text")
        return found

    def entries(self, entry: Any, key: str) -> list[Any]:
        found: list[Any] = self.field(entry, key, list)
        if len(found) > MOST_ENTRIES:
            self.fault(f"`{key}` has {len(found):,} entries")
        return found

    def field(self, entry: Any, key: str, kind: type) -> Any:
        if not isinstance(entry, dict):
            self.fault(f"{brief(entry)} stands where an object with `{key}` was expected")
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
            self.fault(f"`{key}` is {brief(found)}; expected {what[kind]}")
        return found

    def fault(self, what: str) -> NoReturn:
        raise UsageError(f"{self._file} is no {self._kind}: {what}. {self._advice}")


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise UsageError(f"{shown(file)} cannot be read: {error.strerror or error}") from None
    return digest.hexdigest()


def shown(path: str | os.PathLike[str]) -> str:
    """A path for a message, on one line."""
    text = os.fsdecode(path)
    return text if text.isprintable() else repr(text)


def brief(value: Any) -> str:
    """A value of the file for a message: short, and one printable line."""
    text = repr(value) if len(str(value)[:200]) <= 60 else repr(str(value)[:60]) + "…"
    return text if text.isprintable() else ascii(text)
