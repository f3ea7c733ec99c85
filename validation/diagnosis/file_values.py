"""The values inside an ONNX file on one call: a copy of it with them as outputs, or as inputs, run once by a backend."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...ort_ops.arrays import to_array
from ..backends.torch_call import to_tensor

if TYPE_CHECKING:
    import onnx

    from ..backends import Runner

__all__ = ["inside_file", "outputs_given"]

Array = npt.NDArray[Any]

_LARGE = 2**30  # bytes: a protobuf message ends at 2 GiB


def inside_file(
    path: Path, inputs: Sequence[tuple[str, Any]], opened: Callable[[Path], Runner]
) -> Callable[[Sequence[str]], Mapping[str, Array]]:
    """A function that gives values inside the file by name; those of its inputs are there too.

    Args:
        inputs: (name, value) pairs of the call.
        opened: opens a file with a backend that keeps every node: "onnxruntime, optimiser off".
    """

    def values(names: Sequence[str]) -> dict[str, Array]:
        import onnx

        model = onnx.load(str(path))
        own = {o.name for o in model.graph.output}
        wanted = [n for n in dict.fromkeys(names) if n not in own]
        model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted)
        found = _run(model, inputs, opened)
        fed = {n: to_array(v) for n, v in inputs if hasattr(v, "detach")}
        return {**fed, **found}

    return values


def outputs_given(
    path: Path, inputs: Sequence[tuple[str, Any]], opened: Callable[[Path], Runner]
) -> Callable[[Mapping[str, Array]], list[Array]]:
    """A function that gives the file's outputs were values inside it these: a runtime need not keep to them by itself.

    Arguments as of `inside_file`.
    """

    def outputs(values: Mapping[str, Array]) -> list[Array]:
        import onnx
        from onnx import helper

        model = onnx.load(str(path))
        graph = model.graph
        for node in graph.node:
            for k, name in enumerate(node.output):
                if name in values:
                    node.output[k] = f"{name}, as it was"
        for known in [v for v in graph.value_info if v.name in values]:
            graph.value_info.remove(known)
        for name, array in values.items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        given = [*inputs, *((name, to_tensor(array)) for name, array in values.items())]
        names = [o.name for o in graph.output]
        found = _run(model, given, opened)
        return [found[name] for name in names]

    return outputs


def _run(
    model: onnx.ModelProto, inputs: Sequence[tuple[str, Any]], opened: Callable[[Path], Runner]
) -> dict[str, Array]:
    """Its outputs by name."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exposed.onnx"
        large = model.ByteSize() > _LARGE
        onnx.save(model, str(file), save_as_external_data=large)
        with closing(opened(file)) as runner:
            arrays = runner.run(inputs)
            return dict(zip(runner.outputs, arrays, strict=True))
