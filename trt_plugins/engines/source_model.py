"""The ONNX model that an engine is built from: whole, with its side files, and what is known of its inputs' sizes.

A model comes from strangers. Nothing of it is run; its side files must lie in its folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelFileError
from ...symbolic import dtypes
from ...symbolic.graph_inspection.file_kind import UNVERIFIED, no_onnx_model
from ...symbolic.nested_graphs import graphs_within, nested_graphs, nested_nodes
from ..fitted_nodes import FITTED
from .record import TensorRecord

if TYPE_CHECKING:
    import onnx

__all__ = ["STANDARD_DOMAINS", "SizeRange", "SourceModel", "graphs_of", "has_side_files", "read_source_model"]

STANDARD_DOMAINS = ("", "ai.onnx")

# As `export` writes them: who made the file, a digest over it with the digest's own 64 characters set to zeros, the side
# files with theirs, and the inputs as they were declared.
_PRODUCER = "deployops"
_DIGEST, _DATA, _MANIFEST = "deployops.digest", "deployops.data", "deployops.manifest"
_DIGEST_MARK = b"\x0a" + bytes([len(_DIGEST)]) + _DIGEST.encode() + b"\x12\x40"
_NO_DIGEST = b"0" * 64

_AGAIN = "Copy it again, or export the model anew"
_MEANT = "Where the change is meant: --allow-modified (allow_modified=True)"
_CHUNK = 1 << 20
_MOST_BYTES = (1 << 31) - 1  # of a protobuf message
_TENSOR = re.compile(r"[^:]+:\w+\[(?P<dims>[^\]]*)\]")
_DIM = re.compile(
    r"(?P<name>[^\W\d]\w*)(=(?P<low>\d{1,19})?\.\.(?P<high>\d{1,19})?)?(%(?P<multiple>\d{1,19}))?(@(?P<example>\d{1,19}))?"
)


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The sizes that a named dim may have, as the export recorded them. `high`, `example`: None where not recorded."""

    low: int
    high: int | None
    multiple: int
    example: int | None

    def __str__(self) -> str:
        text = f"{self.low}..{'' if self.high is None else self.high}"
        return text if self.multiple == 1 else f"{text}%{self.multiple}"

    def within(self, size: int) -> bool:
        """Whether it is between the smallest and the largest, whatever the multiple."""
        return self.low <= size and (self.high is None or size <= self.high)

    def allows(self, size: int) -> bool:
        return self.within(size) and size % self.multiple == 0


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A model that is whole.

    Attributes:
        path: the file.
        proto: what is in it; weights in side files are not loaded.
        sha256: of the file; where there are side files, of the list of all files with theirs.
        side_files: files with weights.
        inputs, outputs: a dim that varies has its name, `?` where it has none.
        ranges: of the named dims; none for a model of another tool.
        provenance: "" where it is what was exported; else how it differs, where that was allowed, or that it cannot be told.
    """

    path: Path
    proto: onnx.ModelProto
    sha256: str
    side_files: tuple[Path, ...]
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    ranges: Mapping[str, SizeRange]
    provenance: str = ""


class _Modified(ModelFileError):
    """Not what was exported, but a model all the same."""


def read_source_model(path: str | os.PathLike[str], *, allow_modified: bool = False) -> SourceModel:
    """Read a model and see that it is what was written, with its side files.

    `allow_modified`: take one that another tool has written again after the export; `provenance` says so.

    Raises:
        ModelFileError: missing, damaged, edited after export, no ONNX model, or separated from its side files.
    """
    path = Path(path)
    content = _content(path)
    proto = _parsed(path, content)
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    modified = ""
    try:
        _check_digest(path, proto.producer_name, metadata, content)
    except _Modified:
        if not allow_modified:
            raise
        modified = "the model is not the file that was exported: its digest does not hold, and --allow-modified was given"
    side_files = {str(file.relative_to(path.parent)): file for file in _side_files(path, proto)}
    digests = {name: _file_digest(file) for name, file in sorted(side_files.items())}
    try:
        _check_side_digests(path, metadata, digests)
    except _Modified:
        if not allow_modified:
            raise
        modified = modified or (
            "weights of the model are not those that were exported: their digest does not hold, and --allow-modified was given"
        )
    digest = sha256(content).hexdigest()
    if digests:
        listed = "".join(f"{name} {value}\n" for name, value in [("", digest), *digests.items()])
        digest = sha256(listed.encode()).hexdigest()
    weights = {tensor.name for tensor in proto.graph.initializer}
    return SourceModel(
        path=path,
        proto=proto,
        sha256=digest,
        side_files=tuple(side_files[name] for name in digests),
        inputs=tuple(_record(path, value) for value in proto.graph.input if value.name not in weights),
        outputs=tuple(_record(path, value, output=True) for value in proto.graph.output),
        ranges=_ranges(path, metadata.get(_MANIFEST, "{}")),
        provenance=modified or ("" if _DIGEST in metadata else UNVERIFIED),
    )


# --- the file ----------------------------------------------------------------------------------------------------


def _content(path: Path) -> bytes:
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise ModelFileError(f"{path} is a directory; give the model file in it")
        if not stat.S_ISREG(found.st_mode):  # a pipe has no end, or no beginning
            raise ModelFileError(f"{path} is not a regular file; give the path of an ONNX model")
        if found.st_size > _MOST_BYTES:
            raise no_onnx_model(
                path,
                f"{path}: more than 2 GiB, which no ONNX file can be: protobuf reads none. Export the model anew, with its weights "
                "in a side file",
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parsed(path: Path, content: bytes) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        proto = onnx.ModelProto()
    if proto.HasField("graph") and not proto.opset_import:
        raise ModelFileError(
            f"{path}: it names no opset (its opset_import is empty), so that nobody can tell what its operators mean. Export the "
            "model anew"
        )
    if not proto.HasField("graph"):
        raise no_onnx_model(path)
    return proto


def _check_digest(path: Path, producer: str, metadata: Mapping[str, str], content: bytes) -> None:
    stored = metadata.get(_DIGEST)
    if stored is None and (producer != _PRODUCER or FITTED in metadata):
        return  # of another tool, or made to fit TensorRT's parser after the export
    at = content.rfind(_DIGEST_MARK) + len(_DIGEST_MARK)
    view = memoryview(content)
    found = sha256(view[:at])
    found.update(_NO_DIGEST)
    found.update(view[at + len(_NO_DIGEST) :])
    if found.hexdigest() != stored:
        raise _Modified(
            f"{path}: content does not match its digest: damaged or edited after export. {_AGAIN}. {_MEANT}"
        )


# --- side files --------------------------------------------------------------------------------------------------


def graphs_of(proto: onnx.ModelProto) -> Iterator[Any]:
    """The model's graph, those inside its nodes, and the bodies of its local functions."""
    yield from nested_graphs(proto.graph)
    for function in proto.functions:
        yield function
        for node in nested_nodes(function.node):
            yield from graphs_within(node)


def _tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in graphs_of(proto):
        if hasattr(graph, "initializer"):  # a function has none
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                yield from attribute.tensors
                if attribute.HasField("t"):
                    yield attribute.t


def has_side_files(proto: onnx.ModelProto) -> bool:
    """Whether weights lie in other files."""
    import onnx

    return any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(proto))


def _side_files(path: Path, proto: onnx.ModelProto) -> Iterable[Path]:
    """The files that weights are in, each once; that they are there and long enough."""
    import onnx

    needed: dict[str, int] = {}
    for tensor in _tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            reference = {entry.key: entry.value for entry in tensor.external_data}
            numbers = [reference.get(key) or "0" for key in ("offset", "length")]
            if not all(re.fullmatch("[0-9]{1,19}", number) for number in numbers):
                raise ModelFileError(
                    f"{path}: damaged: the weight {tensor.name!r:.200} lies at no size of its side file. {_AGAIN}"
                )
            location = reference.get("location", "")
            needed[location] = max(needed.get(location, 0), sum(map(int, numbers)))
    return [_expect_side_file(path, location, size) for location, size in needed.items()]


def _expect_side_file(path: Path, location: str, needed: int) -> Path:
    file = path.parent / location
    try:
        inside = not Path(location).is_absolute() and file.resolve().is_relative_to(path.parent.resolve())
        there = inside and file.is_file()
    except (OSError, ValueError, RuntimeError):  # a zero byte, a name too long, a loop of links
        inside = there = False
    if not inside:
        raise ModelFileError(
            f"{path}: refers to weights outside its folder: {location[:200]!r}. A model and its side files are one unit: "
            "keep them in the same folder, and do not use this one"
        )
    if not there:
        raise ModelFileError(
            f"{path}: its weights are missing: it needs the side file {location[:200]!r} next to it. "
            "Copy all its files together"
        )
    size = file.stat().st_size
    if size < needed:
        raise ModelFileError(
            f"{file}: damaged: {size:,} bytes, but {path.name} needs {needed:,}. Copy all its files again"
        )
    return file


def _check_side_digests(path: Path, metadata: Mapping[str, str], digests: Mapping[str, str]) -> None:
    try:
        stored = {str(e["file"]): str(e["sha256"]) for e in json.loads(metadata.get(_DATA, "[]"))}
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ModelFileError(f"{path}: damaged: its list of side files cannot be read. {_AGAIN}") from None
    wrong = [name for name, value in stored.items() if name in digests and digests[name] != value]
    if wrong:
        raise _Modified(
            f"{path.parent / wrong[0]}: content does not match the digest in {path.name}: damaged or edited after export. "
            f"Copy all its files again, or export the model anew. {_MEANT}"
        )


def _file_digest(file: Path) -> str:
    digest = sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


# --- inputs, outputs and their sizes -----------------------------------------------------------------------------


def _record(path: Path, value: onnx.ValueInfoProto, output: bool = False) -> TensorRecord:
    kind = value.type.tensor_type
    what = f"{path}: the {'output' if output else 'input'} {value.name!r:.200}"
    if not value.type.HasField("tensor_type"):
        raise ModelFileError(
            f"{what} is no tensor, and TensorRT takes tensors only. Export the model without it"
        )
    try:
        dtype = dtypes.name_of(kind.elem_type)
    except KeyError:
        dtype = f"type {kind.elem_type} of ONNX"
    if not kind.HasField("shape"):
        if output:  # TensorRT finds it itself
            return TensorRecord(value.name, dtype, ("…",))
        raise ModelFileError(f"{what} has no shape, not even a number of dims. Export the model with it")
    dims = (
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?"
        for d in kind.shape.dim
    )
    return TensorRecord(value.name, dtype, tuple(dims))


def _ranges(path: Path, manifest: str) -> dict[str, SizeRange]:
    """The ranges that `--input 'x:float32[n=1..64@8,h=32..512%32]'` declared, as the manifest has them."""
    try:
        inputs = json.loads(manifest).get("inputs", [])
        texts = [text for text in inputs if isinstance(text, str)]
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ModelFileError(f"{path}: its manifest cannot be read: damaged or edited. {_AGAIN}") from None
    found: dict[str, SizeRange] = {}
    for text in texts:
        tensor = _TENSOR.match(text)
        for dim in tensor["dims"].split(",") if tensor else ():
            declared = _DIM.fullmatch(dim.strip())
            if declared:
                low, high, multiple, example = (
                    int(value) if (value := declared[key]) else None
                    for key in ("low", "high", "multiple", "example")
                )
                found[declared["name"]] = SizeRange(1 if low is None else low, high, multiple or 1, example)
    return found
