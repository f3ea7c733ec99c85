"""What TensorRT makes of a plugin library and of models, as JSON: run in a process of its own, with that TensorRT alone.

Usage: python run_tensorrt.py JOB.json RESULT.json. A job: {"module": "tensorrt_rtx" or "tensorrt_lean", "preload":
[libraries], "environment": {variable: value}, "library": "…so", "archs": ["SM80"], "models": [{"path", "profile": {input:
[min, opt, max]}, "values": {shape input: [min, opt, max]}, "aliases": whether outputs may lie where inputs do}], "create":
[{"name", "version", "namespace", "fields": {name: number, text or list}}]}.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


def _field(trt: Any, name: str, value: Any) -> Any:
    kind = trt.PluginFieldType
    if isinstance(value, str):  # with the NUL that ONNX parsers count
        return trt.PluginField(name, np.frombuffer(value.encode() + b"\0", dtype=np.int8), kind.CHAR)
    values = value if isinstance(value, list) else [value]
    if all(isinstance(v, int) for v in values):
        return trt.PluginField(name, np.array(values, dtype=np.int32), kind.INT32)
    return trt.PluginField(name, np.array(values, dtype=np.float32), kind.FLOAT32)


def _model(trt: Any, logger: Any, job: dict[str, Any], archs: list[str], said: list[str]) -> dict[str, Any]:
    said.clear()
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    result: dict[str, Any] = {"parsed": parser.parse_from_file(job["path"])}
    result["errors"] = [parser.get_error(k).desc() for k in range(parser.num_errors)]
    if result["parsed"]:
        outputs = [network.get_output(k) for k in range(network.num_outputs)]
        result["outputs"] = {o.name: [list(o.shape), str(o.dtype)] for o in outputs}
        result["plugins"] = sum(
            network.get_layer(k).type == trt.LayerType.PLUGIN_V3 for k in range(network.num_layers)
        )
        config = builder.create_builder_config()
        config.num_compute_capabilities = len(archs)
        for k, arch in enumerate(archs):
            config.set_compute_capability(getattr(trt.ComputeCapability, arch), k)
        profile = builder.create_optimization_profile()
        for name, (least, optimum, most) in job["profile"].items():
            profile.set_shape(name, least, optimum, most)
        for name, (least, optimum, most) in job.get("values", {}).items():
            profile.set_shape_input(name, least, optimum, most)
        if job.get("aliases"):
            config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
        if job["profile"]:
            config.add_optimization_profile(profile)
        engine = builder.build_serialized_network(network, config)
        result["engine_bytes"] = 0 if engine is None else engine.nbytes
        if engine is not None and "engine" in job:
            Path(job["engine"]).write_bytes(bytes(memoryview(engine)))
    result["said"] = list(said)
    return result


def main(job_path: str, result_path: str) -> None:
    job = json.loads(Path(job_path).read_text())
    os.environ.update(job.get("environment", {}))  # the C library's too, where plugins look
    for library in job.get("preload", []):
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    trt = importlib.import_module(job["module"])
    said: list[str] = []

    class Logger(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR, trt.ILogger.WARNING):
                said.append(f"{str(severity).rpartition('.')[2]}: {message}")

    logger = Logger()
    registry = trt.get_plugin_registry()
    handle = registry.load_library(job["library"])
    result: dict[str, Any] = {
        "version": trt.__version__,
        "loaded": handle is not None,
        "creators": sorted([c.plugin_namespace, c.name, c.plugin_version] for c in registry.all_creators),
    }
    result["created"] = []
    for wanted in job.get("create", []):
        said.clear()
        creator = registry.get_creator(wanted["name"], wanted["version"], wanted["namespace"])
        fields = [_field(trt, name, value) for name, value in wanted["fields"].items()]
        made = creator.create_plugin("the_node", trt.PluginFieldCollection(fields), trt.TensorRTPhase.BUILD)
        result["created"].append({"made": made is not None, "said": list(said)})
    result["models"] = [_model(trt, logger, m, job.get("archs", []), said) for m in job.get("models", [])]
    Path(result_path).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
