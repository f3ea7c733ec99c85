"""What the parser of TensorRT-RTX makes of models, in a process of its own: PRELOAD JOB.json RESULT.json.

A job is {name: model in base64}. A plugin acme::Blur, version "2", is registered from Python.
"""

from __future__ import annotations

import base64
import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(preload: str, job_path: str, result_path: str) -> None:
    ctypes.CDLL(preload, mode=ctypes.RTLD_GLOBAL)
    import tensorrt_rtx as trt

    kinds = (trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime)

    class Blur(*kinds):  # type: ignore[misc]
        def __init__(self) -> None:
            for kind in kinds:
                kind.__init__(self)
            self.num_outputs = 1
            self.plugin_namespace, self.plugin_name, self.plugin_version = "acme", "Blur", "2"

        def get_capability_interface(self, kind: Any) -> Any:
            return self

        def clone(self) -> Any:
            return Blur()

        def get_output_data_types(self, types: Any) -> Any:
            return [types[0]]

        def get_output_shapes(self, inputs: Any, shape_inputs: Any, builder: Any) -> Any:
            return [inputs[0]]

        def supports_format_combination(self, position: int, tensors: Any, inputs: int) -> bool:
            return True

    class Creator(trt.IPluginCreatorV3One):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_namespace, self.plugin_version = "Blur", "acme", "2"
            empty, kind = np.array([]), trt.PluginFieldType.INT32
            self.field_names = trt.PluginFieldCollection(
                [trt.PluginField(n, empty, kind) for n in ("radius", "sizes")]
            )
            self.given: dict[str, list[Any]] = {}

        def create_plugin(self, name: str, fields: Any, phase: Any) -> Any:
            self.given = {f.name: [str(f.type).rpartition(".")[2], *f.data.tolist()] for f in fields}
            return Blur()

    creator, logger = Creator(), trt.Logger(trt.Logger.INTERNAL_ERROR)
    trt.get_plugin_registry().register_creator(creator, "acme")
    builder = trt.Builder(logger)
    results = {}
    for name, text in json.loads(Path(job_path).read_text()).items():
        creator.given = {}
        network = builder.create_network()
        parsed = trt.OnnxParser(network, logger).parse(base64.b64decode(text))
        layers = [str(network.get_layer(k).type).rpartition(".")[2] for k in range(network.num_layers)]
        inputs = [list(network.get_input(k).shape) for k in range(network.num_inputs)] if parsed else []
        results[name] = {"layers": layers if parsed else None, "fields": creator.given, "inputs": inputs}
    Path(result_path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
