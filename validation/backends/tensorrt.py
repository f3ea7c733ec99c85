"""TensorRT and TensorRT-RTX as backends: a serialized engine, run in a child process on an NVIDIA GPU.

The engine's sidecar is read first, here and not in the child: an engine of another GPU, of another TensorRT, of another model,
without its plugins, cut off or damaged is told in a line before anything native is loaded.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ...trt_plugins.engines.record import Flavor
from .cuda import driver_missing
from .engine_checks import engine_problems, engine_record, runs_host_code
from .graph_runner import GraphRunner
from .runner import Kind, Request

__all__ = ["KINDS"]


def _missing(request: Request, flavor: Flavor, package: str, install: str) -> str:
    """All that is missing, so that it need not be found out one by one."""
    reasons = []
    if request.engine is None:
        reasons.append("no engine is given (--engine FILE)")
    elif not request.engine.is_file():
        reasons.append(f"there is no engine file {request.engine.name}")
    else:
        reasons += engine_problems(request.engine, flavor, onnx=request.onnx, plugins=request.plugins)
    if find_spec(package) is None:
        reasons.append(f"the package {package} is not installed ({install})")
    if reason := driver_missing():
        reasons.append(reason)
    return "; ".join(reasons)


def _open(request: Request, name: str, package: str) -> GraphRunner:
    assert request.engine is not None
    plugins = [Path(p).resolve() for p in request.plugins]
    runner = GraphRunner(
        name,
        "tensorrt",
        {
            "package": package,
            "engine": str(request.engine.resolve()),
            "plugins": [str(p) for p in plugins],
            "host_code": runs_host_code(record := engine_record(request.engine)),
            "in_place": record is not None and record.in_place,
        },
        isolate=request.isolate,
        limit_s=request.limit_s,
        files=(request.engine, *plugins),
    )
    if request.memory is not None:
        runner.notes["the memory limit is not kept: CUDA reserves address space beyond any"] = None
    return runner


KINDS = (
    Kind(
        "tensorrt",
        "a TensorRT engine on an NVIDIA GPU",
        lambda request: _missing(request, "tensorrt", "tensorrt", 'pip install "deployops[gpu]"'),
        lambda request: _open(request, "tensorrt", "tensorrt"),
    ),
    Kind(
        "tensorrt-rtx",
        "a TensorRT-RTX engine on an NVIDIA GPU",
        lambda request: _missing(request, "tensorrt-rtx", "tensorrt_rtx", 'pip install "deployops[rtx]"'),
        lambda request: _open(request, "tensorrt-rtx", "tensorrt_rtx"),
    ),
)
