"""The values inside an ONNX file on one call: a copy of it with them as outputs, run once by a backend."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...ort_ops.arrays import to_array

if TYPE_CHECKING:
    from ..backends import Runner

__all__ = ["inside_file"]

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
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "exposed.onnx"
            large = model.ByteSize() > _LARGE
            onnx.save(model, str(file), save_as_external_data=large)
            del model
            with closing(opened(file)) as runner:
                arrays = runner.run(inputs)
                found = dict(zip(runner.outputs, arrays, strict=True))
        fed = {n: to_array(v) for n, v in inputs if hasattr(v, "detach")}
        return {**fed, **found}

    return values
