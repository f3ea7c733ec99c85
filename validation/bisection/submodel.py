"""Parts of a model as a model of their own, which starts from given values. Weights are written once, for all of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...errors import ModelFileError
from ...export.onnx_file.integrity import MANIFEST_KEY
from ...symbolic.nested_graphs import graphs_within
from .dataflow import Dataflow, Part, reads_of

if TYPE_CHECKING:
    import onnx

__all__ = ["Workshop"]

Array = npt.NDArray[Any]

_SHARED_FROM = 1024  # bytes; smaller tensors stay in the model, where shape inference reads them
_ALIGNMENT = 64


class Workshop:
    """A folder for submodels of one file. Large weights lie there once, next to every submodel.

    Attributes:
        folder: where the parts are written.
        flow: the model's graph, its large weights referring to files in the folder.
    """

    def __init__(self, path: Path, model: onnx.ModelProto, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        _share_weights(model, path.parent, folder)
        self.flow = Dataflow(model)

    def write(self, parts: Sequence[Part], values: Mapping[str, Array]) -> tuple[Path, list[str]]:
        """A file that runs the parts side by side (see `_model`), and the names of its inputs."""
        model = self._model(parts, values)
        self._count += 1
        path = self.folder / f"part_{self._count}.onnx"
        path.write_bytes(model.SerializeToString(deterministic=True))
        return path, [i.name for i in model.graph.input]

    def loaded(self, part: Part, values: Mapping[str, Array]) -> onnx.ModelProto:
        """A part as a model in memory, its weights in it."""
        import onnx

        model = self._model([part], values)
        onnx.load_external_data_for_model(model, str(self.folder))
        return model

    def array(self, name: str) -> Array | None:
        """What a stored constant holds."""
        import onnx
        from onnx import numpy_helper

        tensor = self.flow.stored.get(name)
        if not isinstance(tensor, onnx.TensorProto) or tensor.data_type == onnx.TensorProto.STRING:
            return None
        return numpy_helper.to_array(tensor, str(self.folder))

    def _model(self, parts: Sequence[Part], values: Mapping[str, Array]) -> onnx.ModelProto:
        """The parts side by side.

        A part reads the values it is given under their own names, and makes its values under names that
        begin with its number, so that a value can be both: one part's result, another's input.
        `values` tell the dtypes and shapes of what is given.
        """
        import onnx

        flow, whole = self.flow, self.flow.model
        model = onnx.ModelProto()
        model.ir_version, model.producer_name = whole.ir_version, whole.producer_name
        model.opset_import.extend(whole.opset_import)
        model.functions.extend(whole.functions)
        model.metadata_props.extend(p for p in whole.metadata_props if p.key == MANIFEST_KEY)
        graph = model.graph
        graph.name = whole.graph.name or "part"
        read: dict[str, None] = {}
        for number, part in enumerate(parts):
            made = {name for k in part.nodes for name in flow.nodes[k].output if name}
            names = {name: f"part_{number}/{name}" for name in made}
            for k in part.nodes:
                node = graph.node.add()
                node.CopyFrom(flow.nodes[k])
                _rename(node, names)
                node.name = f"part_{number}/{node.name}"
                read.update(dict.fromkeys(n for n in flow.reads[k] if n not in made))
            for name in part.wanted:
                read.update({} if name in made else {name: None})
                # no type: the runtime finds the one that the nodes give, which may be the fault
                graph.output.add().name = names.get(name, name)
        described = {i.name: i for i in whole.graph.input}
        for name in read:
            tensor = flow.stored.get(name)
            if isinstance(tensor, onnx.TensorProto):
                graph.initializer.append(tensor)
            elif tensor is not None:
                graph.sparse_initializer.append(tensor)
            else:
                graph.input.append(_input(name, values.get(name), described.get(name)))
        return model


def _input(name: str, value: Array | None, described: onnx.ValueInfoProto | None) -> onnx.ValueInfoProto:
    import onnx.helper

    if described is not None and described.HasField("type"):
        return described
    if value is None:
        raise ModelFileError(f"the value {name!r} is read by a node and made by none")
    dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, list(value.shape))


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename values of the main graph in a node and in what its bodies read from outside."""
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    _rename_in_bodies(node, names)


def _rename_in_bodies(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for graph in graphs_within(node):
        own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output}
        outer = {old: new for old, new in names.items() if old not in own}
        for inner in graph.node:
            if outer and any(name in outer for name in reads_of(inner)):
                inner.input[:] = [outer.get(name, name) for name in inner.input]
                _rename_in_bodies(inner, outer)
        for output in graph.output:
            output.name = outer.get(output.name, output.name)


def _share_weights(model: onnx.ModelProto, source: Path, folder: Path) -> None:
    """Move large tensors of the main graph into a file in `folder`; place files that others refer to next to it."""
    import onnx

    placed: dict[str, str] = {}
    with (folder / "weights.bin").open("wb") as file:
        for tensor in model.graph.initializer:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _refer(tensor, source, folder, placed)
                continue
            if tensor.data_type == onnx.TensorProto.STRING:
                continue
            raw = _raw(tensor)
            if len(raw) < _SHARED_FROM:
                continue
            file.write(bytes(-file.tell() % _ALIGNMENT))
            offset = file.tell()
            file.write(raw)
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)
            _point(tensor, "weights.bin", offset, len(raw))
    for tensor in _inner_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _refer(tensor, source, folder, placed)


def _raw(tensor: onnx.TensorProto) -> bytes:
    from onnx import numpy_helper

    if tensor.HasField("raw_data"):
        return tensor.raw_data
    count = 1
    for size in tensor.dims:
        count *= size
    if count * 8 < _SHARED_FROM or tensor.data_type in _PACKED:
        return b""
    return numpy_helper.to_array(tensor).tobytes()


# Below a byte, their layout in typed fields is not that of raw data: INT4, UINT4, FLOAT4E2M1, INT2, UINT2, FLOAT6.
_PACKED = frozenset({21, 22, 23, 25, 26, 27, 28})


def _inner_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Tensors in attributes and in bodies."""
    import onnx

    todo = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    for node in todo:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
        for graph in graphs_within(node):
            yield from graph.initializer
            todo.extend(graph.node)


def _refer(tensor: onnx.TensorProto, source: Path, folder: Path, placed: dict[str, str]) -> None:
    """Let an external tensor refer to a link of its file in `folder`. Files outside the model's folder are refused."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if location not in placed:
        file = (source / location).resolve()
        if not location or not file.is_relative_to(source.resolve()) or not file.is_file():
            raise ModelFileError(
                f"tensor {tensor.name!r}: its data {location!r} lie outside the model's folder"
            )
        placed[location] = f"external_{len(placed)}.bin"
        try:
            os.link(file, folder / placed[location])
        except OSError:  # another file system
            shutil.copyfile(file, folder / placed[location])
    length = fields.get("length")
    _point(tensor, placed[location], int(fields.get("offset", 0)), None if length is None else int(length))


def _point(tensor: onnx.TensorProto, location: str, offset: int, length: int | None) -> None:
    import onnx

    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("external_data")
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
