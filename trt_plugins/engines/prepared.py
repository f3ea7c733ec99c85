"""The model file that TensorRT reads: the user's own, or one that was cast, or whose nodes were made to fit the parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from ...symbolic.node_source import source_words
from ..fitted_nodes import fit_plugin_nodes
from ..library_manifest import PluginManifest
from .casting.plugin_dtypes import plugin_dtypes
from .record import KeptFloat32, Precision
from .source_model import STANDARD_DOMAINS, SourceModel, graphs_of

if TYPE_CHECKING:
    import onnx

__all__ = ["PreparedModel", "prepare_model"]

_SIDE_FILE_FROM = 1 << 30  # bytes of weights: far enough below the 2 GiB that one protobuf message holds


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """`proto`: what is in the file. `kept`: the nodes that stay float32. `warnings`: what casting loses."""

    path: Path
    proto: onnx.ModelProto
    kept: tuple[KeptFloat32, ...] = ()
    warnings: tuple[str, ...] = ()


def prepare_model(
    source: SourceModel,
    precision: Precision,
    folder: Path,
    *,
    keep: Sequence[str] = (),
    plugins: Sequence[PluginManifest] = (),
) -> PreparedModel:
    """The file to parse; a cast model is written into `folder`.

    Args:
        keep: nodes and operators that stay float32.
        plugins: of the libraries what their manifests say; of one without nothing is known, and its plugins get float32.

    Raises UsageError where the model is not float32 and was asked to be, DeployOpsError where it cannot be cast.
    """
    if precision == "fp32":
        _expect_float32(source)
    told = (*_newer_opset(source), *_doubles(source))
    import onnx

    from .casting.cast_model import cast_model

    entries = [entry for manifest in plugins for entry in manifest.entries]
    proto = onnx.ModelProto()
    kept: tuple[KeptFloat32, ...] = ()
    proto.CopyFrom(source.proto)
    narrow = precision in ("fp16", "bf16")
    if precision in ("fp16", "bf16"):
        if source.side_files:
            onnx.load_external_data_for_model(proto, str(source.path.parent))
        cast = cast_model(proto, precision, keep=keep, plugins=plugin_dtypes([{"plugins": entries}]))
        proto, kept, told = cast.model, tuple(cast.kept), (*told, *cast.warnings)
    fitted = fit_plugin_nodes(proto, entries)
    if not narrow and not fitted:
        return PreparedModel(source.path.resolve(), source.proto, warnings=told)
    path = folder / "model.onnx"
    if not narrow:  # its weights stay where they are
        _link_side_files(source, folder)
        path.write_bytes(proto.SerializeToString())
        return PreparedModel(path, proto, warnings=told)
    weights = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    onnx.save_model(
        proto, str(path), save_as_external_data=weights > _SIDE_FILE_FROM, location="model.weights"
    )
    return PreparedModel(path, proto, kept, told)


def _link_side_files(source: SourceModel, folder: Path) -> None:
    for file in source.side_files:
        link = folder / file.relative_to(source.path.parent)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())


def _expect_float32(source: SourceModel) -> None:
    """Raise where the model computes in narrower types: casting up would not bring back what they lost."""
    import onnx

    narrow: dict[int, str] = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
    found = [f"`{i.name}` is {i.dtype}" for i in source.inputs if i.dtype in narrow.values()]
    found += _uses(source, narrow)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise UsageError(
            f"{source.path.name} is not float32: {found[0]}{more}. Export the model in float32, or leave the precision out to "
            "build it in the types it has"
        )


def _newer_opset(source: SourceModel) -> tuple[str, ...]:
    """TensorRT's parser takes any opset, also one whose operators mean something else than those it knows."""
    import onnx

    known = onnx.defs.onnx_opset_version()
    found = max((o.version for o in source.proto.opset_import if o.domain in STANDARD_DOMAINS), default=0)
    if found <= known:
        return ()
    return (
        f"the model says opset {found}, and onnx {onnx.__version__} knows up to {known}: TensorRT may take its operators for "
        "older ones without a word. Export it with another opset",
    )


def _doubles(source: SourceModel) -> tuple[str, ...]:
    """TensorRT makes float32 of float64 inside a model, without a word."""
    import onnx

    found = list(_uses(source, {onnx.TensorProto.DOUBLE: "float64"}))
    if not found:
        return ()
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (f"TensorRT computes in float32 what is float64 in the model: {found[0]}{more}",)


def _uses(source: SourceModel, types: Mapping[int, str]) -> Iterator[str]:
    """Weights, constants and casts of these types."""
    for graph in graphs_of(source.proto):
        for tensor in getattr(graph, "initializer", ()):
            if tensor.data_type in types:
                yield f"the weight `{tensor.name}` is {types[tensor.data_type]}"
        for node in graph.node:
            words = source_words(node)
            title = f"`{node.name or next(iter(node.output), '')}`" + (f" ({words})" if words else "")
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i in types:
                    yield f"the node {title} casts to {types[attribute.i]}"
                elif attribute.HasField("t") and attribute.t.data_type in types:
                    yield f"the constant of node {title} is {types[attribute.t.data_type]}"
