"""CUDA kernels as a backend on a machine without a GPU: custom operators by `trt_plugins.emulation`, the rest by ONNX Runtime."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

from ...errors import ModelFileError
from ...ort_ops.diagnosis import parsed
from .cores import usable_cores
from .graph_runner import GraphRunner
from .runner import Kind, Request

__all__ = ["KINDS"]


def _missing(request: Request) -> str:
    if request.onnx is None:
        return "no ONNX file is given"
    root = (__package__ or "").partition(".validation")[0]
    if find_spec(f"{root}.trt_plugins.emulation") is None:
        return "this version of deployops cannot run CUDA kernels on the CPU"
    if find_spec("onnxruntime") is None:
        return 'ONNX Runtime, which runs what is no custom operator, is not installed: pip install "deployops[cpu]"'
    compiler = os.environ.get("CXX") or "g++"
    if not (shutil.which(compiler) or shutil.which("clang++")):
        return f"CUDA kernels are compiled for the CPU, and there is no C++ compiler ({compiler}, clang++)"
    from .emulated_engine import declared_nodes

    try:
        model = parsed(request.onnx)
    except ModelFileError:
        return ""  # opening it says what is wrong
    return (
        "" if declared_nodes(model) else "the model has no declared operator, whose CUDA kernel could be run"
    )


def _open(request: Request) -> GraphRunner:
    assert request.onnx is not None
    # Here: the operators are declared in this process, and the emulation runs their kernels in one of its own.
    return GraphRunner(
        "emulated",
        "emulated",
        {
            "path": str(request.onnx.resolve()),
            "threads": usable_cores() if request.threads is None else request.threads,
        },
        isolate=False,
    )


KINDS = (
    Kind(
        "emulated",
        "custom operators by their CUDA kernels, run on the CPU; the rest by ONNX Runtime",
        _missing,
        _open,
    ),
)
