"""Real ONNX files for the validation tests, made by torch or node by node."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

Export = Callable[..., Path]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """`export(module, args)`: by the TorchScript exporter, which is quick; axis 0 of each input is open."""

    def run(module: torch.nn.Module, args: tuple[Any, ...], open_axis: bool = True, **options: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        names = [f"in{i}" for i in range(len(args))]
        if open_axis:
            options.setdefault("dynamic_axes", {n: {0: "batch"} for n in names})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, args, str(path), input_names=names, dynamo=False, opset_version=20, **options
            )
        return path

    return run


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Path]:
    """`build(nodes, inputs, outputs)`: a file from onnx.helper; values are (name, dtype, shape)."""

    def run(
        nodes: list[Any],
        inputs: list[tuple[str, str, Any]],
        outputs: list[tuple[str, str, Any]],
        constants: dict[str, Any] | None = None,
        domains: dict[str, int] | None = None,
        functions: list[Any] | None = None,
    ) -> Path:
        def info(name: str, dtype: str, shape: Any) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.DataType.Value(dtype.upper()), shape)

        stored = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
        graph = helper.make_graph(nodes, "g", [info(*i) for i in inputs], [info(*o) for o in outputs], stored)
        opsets = [helper.make_opsetid(d, v) for d, v in ({"": 20} | (domains or {})).items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions or [])
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"
        onnx.save(model, str(path))
        return path

    return run
