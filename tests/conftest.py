"""What the tests of whole exports share: one call that exports and checks, one that runs a file, one the command line."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnxruntime
import pytest
import torch

from deployops import export_model
from deployops.export.result import ExportedModel
from deployops.ort_ops import ort_library
from deployops.symbolic.plugin_attributes import PLUGIN_ATTRIBUTES


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The machines that run the suite share their cores among the tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _run(path: Path, *arrays: Any, optimised: bool = False, **named: Any) -> list[np.ndarray[Any, Any]]:
    """The outputs of ONNX Runtime, by default with its optimiser off: it hides faults of a file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    feeds = dict(zip(names, arrays, strict=False)) | named
    outputs: list[np.ndarray[Any, Any]] = session.run(None, {n: np.asarray(a) for n, a in feeds.items()})
    return outputs


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield from _graphs(inner)


def _shapes(model: onnx.ModelProto) -> dict[str, bool]:
    """Every value of the model and its subgraphs -> whether it has a shape; sequences have none to have."""
    found = {}
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type
            found[value.name] = not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape")
        found |= {t.name: True for t in graph.initializer}
    return found


def _assert_shapes(model: onnx.ModelProto) -> None:
    """Strict inference gives every intermediate a shape, and declared custom nodes carry shapes through by themselves."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = _shapes(inferred)
    lost = [o for g in _graphs(inferred.graph) for n in g.node for o in n.output if o and not known.get(o)]
    assert not lost, f"strict inference gives no shape to {lost}"
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for graph in _graphs(bare.graph):
        del graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    known = _shapes(inferred)
    for graph in _graphs(inferred.graph):
        for node in graph.node:
            declared = node.domain and onnx.defs.has(node.op_type, domain=node.domain)
            if declared and all(known.get(i) for i in node.input if i):
                lost = [o for o in node.output if o and not known.get(o)]
                assert not lost, f"{node.domain}::{node.op_type} loses the shapes of {lost}"


@dataclass(frozen=True)
class Exported:
    """A file that was exported, with what the export said of it."""

    result: ExportedModel
    proto: onnx.ModelProto

    @property
    def path(self) -> Path:
        return self.result.path

    @property
    def ops(self) -> list[str]:
        """The nodes of the main graph, `domain::Type` or `Type`."""
        return [f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in self.proto.graph.node]

    @property
    def notes(self) -> str:
        return "\n".join(map(str, self.result.notes))

    def dims(self, name: str) -> list[int | str]:
        value = next(v for v in (*self.proto.graph.input, *self.proto.graph.output) if v.name == name)
        return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]

    def node(self, op_type: str) -> onnx.NodeProto:
        return next(n for g in _graphs(self.proto.graph) for n in g.node if n.op_type == op_type)

    def attributes(self, op_type: str) -> dict[str, Any]:
        """The operator's own: without those that tell TensorRT's parser which plugin it is."""
        own = [a for a in self.node(op_type).attribute if a.name not in PLUGIN_ATTRIBUTES]
        return {a.name: onnx.helper.get_attribute_value(a) for a in own}

    def run(self, *arrays: Any, **named: Any) -> list[np.ndarray[Any, Any]]:
        return _run(self.path, *arrays, **named)


def load_exported(path: Path, result: ExportedModel) -> Exported:
    """Read the file back and hold it to what every exported file promises."""
    onnx.checker.check_model(str(path), full_check=True)
    proto = onnx.load(str(path))
    _assert_shapes(proto)
    return Exported(result, proto)


@pytest.fixture(scope="session")
def shipped_library() -> str:
    """The library of the shipped operators: compiled once, or the one that DEPLOYOPS_TEST_LIBRARY names."""
    return os.environ.get("DEPLOYOPS_TEST_LIBRARY") or ort_library()


@pytest.fixture
def deploy(tmp_path: Path) -> Callable[..., Exported]:
    """``deploy(model, inputs, **options)``: `export_model`, then the checks that every exported file must pass."""

    def export(model: Any, inputs: Any = None, *, out: Path | None = None, **options: Any) -> Exported:
        result = export_model(model, inputs, out=out or tmp_path / "model.onnx", **options)
        return load_exported(result.path, result)

    return export


@pytest.fixture
def run_onnx() -> Callable[..., list[np.ndarray[Any, Any]]]:
    """``run_onnx(path, *arrays, optimised=False)``: ONNX Runtime on the CPU."""
    return _run


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """``command("export", "model.pt", ...)``: the command line in this process, its entry point and exit code included."""
    from deployops import cli

    def run(*arguments: Any) -> Finished:
        monkeypatch.setattr(sys, "argv", ["deployops", *map(str, arguments)])
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
            except SystemExit as end:
                code = int(end.code or 0)
        return Finished(code, out.getvalue(), err.getvalue())

    return run
