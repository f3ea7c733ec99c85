"""What a file is and what is in it, read without running any of it and without torch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelFileError, UsageError
from ..ort_ops.arguments import expect, expect_path, expect_sequence, listed_texts
from ..symbolic import dtypes
from ..symbolic.graph_inspection.file_kind import UNVERIFIED, FileKind, not_onnx
from ..symbolic.graph_inspection.standard_types import as_text
from ..symbolic.nested_graphs import nested_nodes
from ..symbolic.shown_text import printable, shown
from .model_files.contents import read_contents
from .model_files.model_file import Kind, identify
from .result import TensorSpec

if TYPE_CHECKING:
    import onnx

    from ..ort_ops.inspection.check import Checked
    from ..trt_plugins.inspection import Checked as CheckedForTensorRT
    from ..trt_plugins.inspection import TensorRTLimits
    from ..trt_plugins.library_manifest import PluginManifest

__all__ = ["Inspection", "inspect_model"]


_NEXT = {
    Kind.EXPORTED_PROGRAM.value: "deployops export {}",
    Kind.TORCHSCRIPT.value: "deployops export {} --input 'NAME:DTYPE[DIM,...]'",
    Kind.CHECKPOINT.value: "deployops export {} --model PKG.MOD:CALLABLE --input 'NAME:DTYPE[DIM,...]'",
    Kind.MODULE.value: "deployops export {} --trust --input 'NAME:DTYPE[DIM,...]', if you trust where it comes from",
    Kind.ONNX.value: "deployops validate MODEL --onnx {}",
}


# What is no model, or none that can be looked into.
_NO_MODEL = (Kind.ZIP, Kind.LFS_POINTER, Kind.HTML, Kind.TEXT, Kind.EMPTY, Kind.OTHER, Kind.UNKNOWN)

_FITTED = "made to fit TensorRT's parser after its export (fit_plugin_nodes): it is for TensorRT alone, and has no digest"


@dataclass(frozen=True, slots=True)
class Inspection:
    """A file told by its content; the rest as far as its kind has it.

    `custom_operators`: torch operators that are not torch's own, with the number of calls. `weights`: dtype by name.
    `checked`: of an ONNX model what ONNX Runtime makes of it on the CPU; None where TensorRT alone was asked for, or all
    libraries are for CUDA. `cuda`: what a session on CUDA makes of it, where there is a library for it.
    `tensorrt`: what a TensorRT makes of it, where one was asked for.
    `digest`: as it was checked; "" where there is none that holds, and `note` says why.
    """

    path: Path
    kind: str
    description: str
    bytes: int
    unsafe_globals: tuple[str, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    custom_nodes: Mapping[str, int] = field(default_factory=dict)
    bodies: tuple[str, ...] = ()
    manifest: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    custom_operators: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    checked: Checked | None = None
    cuda: Checked | None = None
    tensorrt: CheckedForTensorRT | None = None
    note: str = ""

    @property
    def exit_code(self) -> int:
        """1 where a runtime that was looked at would refuse the model, or run it otherwise than meant."""
        verdicts = (found.verdict for found in (self.checked, self.cuda, self.tensorrt) if found is not None)
        return int("would fail" in verdicts)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; plain data."""
        return {
            "path": str(self.path),
            "kind": self.kind,
            "description": self.description,
            "bytes": self.bytes,
            "unsafe_globals": list(self.unsafe_globals),
            "inputs": [str(t) for t in self.inputs],
            "outputs": [str(t) for t in self.outputs],
            "opsets": dict(self.opsets),
            "custom_nodes": dict(self.custom_nodes),
            "bodies": list(self.bodies),
            "manifest": dict(self.manifest),
            "digest": self.digest,
            "note": self.note,
            "custom_operators": dict(self.custom_operators),
            "weights": dict(self.weights),
            "onnxruntime": None if self.checked is None else self.checked.to_dict(),
            "onnxruntime_cuda": None if self.cuda is None else self.cuda.to_dict(),
            "tensorrt": None if self.tensorrt is None else self.tensorrt.to_dict(),
        }

    def summary(self) -> str:
        """What the command line prints: with long names cut, `to_dict` has them whole."""
        from ..symbolic.graph_inspection.report import report_lines, short

        lines = [f"{self.path}: {self.description} ({self.bytes:,} bytes)"]
        if self.unsafe_globals:
            lines.append(
                "  loading it would run code: it wants " + _some([short(n) for n in self.unsafe_globals], 10)
            )
        lines += [short(f"  input   {t}") for t in self.inputs]
        lines += [short(f"  output  {t}") for t in self.outputs]
        if self.opsets:
            opsets = [short(f"{d or 'ai.onnx'} {v}") for d, v in self.opsets.items()]
            lines.append("  opsets  " + ", ".join(opsets))
        lines += [short(f"  custom  {n} × {name}") for name, n in self.custom_operators.items()]
        if self.weights:
            dtypes_text = ", ".join(f"{n} {d}" for d, n in Counter(self.weights.values()).items())
            lines.append(
                f"  tensors {len(self.weights)} ({dtypes_text}): {_some([short(n) for n in self.weights], 5)}"
            )
        made = ", ".join(
            short(f"{k} {self.manifest[k]}") for k in ("deployops", "torch") if k in self.manifest
        )
        if made:
            lines.append(f"  made by {made}")
        if self.digest:
            lines.append(f"  digest  {self.digest} (checked)")
        if self.note:
            lines.append(f"  {'digest' if self.note == UNVERIFIED else 'note':7} {self.note}")
        for checked in (self.checked, self.cuda, self.tensorrt):
            if checked is not None:
                lines += report_lines(checked)
        if self.kind in _NEXT:
            lines.append(f"  next    {_NEXT[self.kind].format(self.path)}")
        return "\n".join(map(printable, lines))


def inspect_model(
    path: str | os.PathLike[str],
    *,
    runtime: str | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
    tensorrt: str | None = None,
    tensorrt_rtx: str | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
    archs: Sequence[int] = (),
    allow_modified: bool = False,
) -> Inspection:
    """Identify a file and list what can be read of it; of an ONNX model verify the digest, and find what would fail or hurt.

    Nothing of the model or the libraries is run, and no runtime is needed.

    Args:
        path: any model file.
        runtime: "onnxruntime==X.Y.Z", what to hold an ONNX model against; None: the installed one, or the newest known;
            with a TensorRT and no libraries, none.
        libraries: custom-operator libraries with their manifests beside them, as `deployops compile` writes both. With one
            of the target ort-cuda the model is held against a session on CUDA too; with such alone, against that only.
        tensorrt: "10.8", the version of TensorRT to hold an ONNX model against. tensorrt_rtx: "1.7", of TensorRT-RTX.
        plugins: for it: plugin libraries, with their manifests beside them where `deployops compile` built them; and JSON
            files that describe plugins.
        archs: GPUs that the plugin libraries shall run on, 89 for compute capability 8.9.
        allow_modified: take a model that another tool has written again after its export; a note says so.

    Raises:
        ModelFileError: a file that is damaged, or no model: a web page, a Git LFS pointer, an archive, an engine.
        UsageError: a wrong version; a library whose manifest does not belong to it, or (of ONNX Runtime) without one.
    """
    expect_path("path", path)
    expect("runtime", runtime, str, 'a text such as "onnxruntime==1.23.2"')
    libraries, plugins = listed_texts(libraries), listed_texts(plugins)
    expect_sequence("libraries", libraries, (str, os.PathLike), "a list of paths")
    expect_sequence("plugins", plugins, (str, os.PathLike), "a list of paths")
    against = _tensorrt_limits(tensorrt, tensorrt_rtx, plugins, archs)
    file = identify(path)
    if file.kind is not Kind.ONNX and (runtime is not None or libraries or against is not None):
        fault = not_onnx(file.path, FileKind(file.kind.value, file.description))
        raise UsageError(f"a runtime and libraries are for ONNX models: {fault}")
    if file.kind in _NO_MODEL:
        raise ModelFileError(f"{shown(file.path)} is no model but {file.description}")
    if file.kind is Kind.ENGINE:
        raise ModelFileError(_engine(file.path, file.description))
    if file.kind is not Kind.ONNX:
        inside = read_contents(file)
        return Inspection(
            file.path,
            file.kind.value,
            file.description,
            file.size,
            file.unsafe_globals,
            inside.inputs,
            inside.outputs,
            custom_operators=inside.operators,
            weights=inside.weights,
        )
    from ..ort_ops.inspection.check import check_model
    from ..ort_ops.inspection.providers import sessions
    from ..ort_ops.inspection.runtime_limits import limits_for
    from ..ort_ops.library_manifest import read_manifest as read_library
    from ..symbolic.graph_inspection.shape_faults import NOT_INFERRED, infer
    from .onnx_file.integrity import DIGEST_KEY, FITTED_KEY, read_manifest, read_model

    for_ort = against is None or runtime is not None or bool(libraries)
    limits = limits_for(runtime) if for_ort else None
    manifests = [read_library(library) for library in dict.fromkeys(os.fspath(p) for p in libraries)]
    plugin_manifests = _plugin_manifests(plugins)
    note = _digest_note(path, allow_modified)
    model = read_model(path)
    inferred = NOT_INFERRED if limits is None else infer(model)
    by_provider = (
        {
            s.provider: check_model(model, limits, s, folder=file.path.parent, inferred=inferred)
            for s in sessions(manifests)
        }
        if limits is not None
        else {}
    )
    metadata = {p.key: p.value for p in model.metadata_props}
    standard = ("", "ai.onnx")
    nodes = [n for n in nested_nodes(model.graph.node) if n.domain not in standard]
    return Inspection(
        path=file.path,
        kind=file.kind.value,
        description=file.description,
        bytes=file.size,
        inputs=tuple(map(_tensor, model.graph.input)),
        outputs=tuple(map(_tensor, model.graph.output)),
        opsets={as_text(o.domain): o.version for o in model.opset_import},
        custom_nodes=dict(
            sorted(Counter(f"{as_text(n.domain)}::{as_text(n.op_type)}" for n in nodes).items())
        ),
        bodies=tuple(sorted({f"{as_text(f.domain)}::{as_text(f.name)}" for f in model.functions})),
        manifest=read_manifest(model, path),
        digest="" if note else metadata.get(DIGEST_KEY, ""),
        note=note or ("" if DIGEST_KEY in metadata else _FITTED if FITTED_KEY in metadata else UNVERIFIED),
        checked=by_provider.get("CPU"),
        cuda=by_provider.get("CUDA"),
        tensorrt=None if against is None else _checked_for_tensorrt(model, against, plugin_manifests, archs),
    )


def _engine(path: Path, description: str) -> str:
    """Of a TensorRT engine all that is known. Raises ModelFileError for a damaged sidecar."""
    from ..trt_plugins.engines.show import show_engine

    known = show_engine(path).summary().splitlines()[1:]
    what = f"{shown(path)} is no model but {description.split(';')[0]}. `deployops engine show` says of it:"
    return "\n".join([what, *known])


def _digest_note(path: str | os.PathLike[str], allow_modified: bool) -> str:
    """What differs from what was exported; "" where nothing does. Raises ModelFileError where that is not allowed."""
    from .onnx_file.integrity import EditedFileError, verify_digest, verify_structure

    try:
        verify_digest(path)
    except EditedFileError as error:
        if not allow_modified:
            raise EditedFileError(f"{error} Where the change is meant: --allow-modified") from None
        verify_structure(path)
        return (
            "this is not the file that was exported: its digest does not hold, and --allow-modified was given"
        )
    return ""


def _tensorrt_limits(
    tensorrt: str | None, rtx: str | None, plugins: Sequence[Any], archs: Sequence[int]
) -> TensorRTLimits | None:
    from ..trt_plugins.inspection import limits_for

    if tensorrt is not None and rtx is not None:
        raise UsageError("a model is held against TensorRT or TensorRT-RTX, one at a time")
    if tensorrt is None and rtx is None:
        if plugins or archs:
            raise UsageError(
                "plugins and archs are for TensorRT: say which version (--tensorrt X.Y or --tensorrt-rtx X.Y)"
            )
        return None
    return limits_for("tensorrt", tensorrt) if tensorrt is not None else limits_for("tensorrt-rtx", str(rtx))


def _plugin_manifests(plugins: Sequence[Any]) -> list[PluginManifest]:
    from ..trt_plugins.library_manifest import read_plugins

    return [read_plugins(path) for path in dict.fromkeys(os.fspath(p) for p in plugins)]


def _checked_for_tensorrt(
    model: onnx.ModelProto, limits: TensorRTLimits, plugins: Sequence[PluginManifest], archs: Sequence[int]
) -> CheckedForTensorRT:
    from ..trt_plugins.inspection import check_model

    return check_model(model, limits, plugins, archs=archs)


def _some(names: Sequence[str], count: int) -> str:
    rest = len(names) - count
    return ", ".join(names[:count]) + (f" and {rest} more" if rest > 0 else "")


def _tensor(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    try:
        dtype = dtypes.name_of(tensor.elem_type)
    except KeyError:
        dtype = "?"
    return TensorSpec(
        as_text(value.name),
        dtype,
        # of unknown rank: without dims it would be a single number
        tuple(
            d.dim_value if d.HasField("dim_value") else as_text(d.dim_param or "?") for d in tensor.shape.dim
        )
        if tensor.HasField("shape")
        else ("...",),
    )
