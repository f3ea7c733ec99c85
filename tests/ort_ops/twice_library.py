"""The library of twice.cc, compiled: acme::Twice, domain version 3, for one element type."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest

__all__ = ["compiled", "optimised", "refusal"]

_SOURCE = Path(__file__).with_name("twice.cc")


def compiled(folder: Path, dtype: int = 1) -> Path:
    """The library; `dtype` is a `TensorProto.DataType`. Another one than float32 is good for opening models only."""
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("not checked: no g++ to build a custom-operator library with")
    types = "twice.GetInputType = twice.GetOutputType = [](const Op*, size_t) { return %d; };"
    source = folder / f"twice{dtype}.cc"
    source.write_text(_SOURCE.read_text().replace(types % 1, types % dtype))
    library = source.with_suffix(".so")
    command = [compiler, "-std=c++17", "-fPIC", "-shared", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library


def _session(model: onnx.ModelProto, library: Path | None, saved: Path | None) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if library is not None:
        options.register_custom_ops_library(str(library))
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def optimised(model: onnx.ModelProto, library: Path | None) -> list[str]:
    """Operator types of the graph as the installed ONNX Runtime runs it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "optimised.onnx"
        _session(model, library, saved)
        return [node.op_type for node in onnx.load(saved).graph.node]


def refusal(model: onnx.ModelProto, library: Path | None = None) -> str | None:
    """The name of the exception with which the installed ONNX Runtime refuses a model; None where it opens it."""
    try:
        _session(model, library, None)
    except Exception as error:
        return type(error).__name__
    return None
