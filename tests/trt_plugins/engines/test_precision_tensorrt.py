"""TensorRT-RTX takes the cast models: they are parsed as strongly typed networks and built, with layers in the narrow type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from deployops.trt_plugins.engines.casting.cast_model import cast_model

RNG = np.random.default_rng(6)

BUILD = """
import json, sys
import tensorrt_rtx as trt
logger = trt.Logger(trt.Logger.ERROR)
found = {}
for path in sys.argv[1:]:
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    parsed = parser.parse_from_file(path)
    errors = [parser.get_error(k).desc() for k in range(parser.num_errors)]
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    types = set()
    for k in range(network.num_layers):
        layer = network.get_layer(k)
        if layer.type in (trt.LayerType.MATRIX_MULTIPLY, trt.LayerType.CONVOLUTION, trt.LayerType.SOFTMAX):
            types.add(f"{layer.type.name} {layer.get_output(0).dtype.name}")
    for k in range(network.num_inputs):
        value = network.get_input(k)
        if -1 in value.shape:
            profile.set_shape(value.name, *[tuple(n if d < 0 else d for d in value.shape) for n in (1, 2, 4)])
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config) if parsed else None
    outputs = [network.get_output(k).dtype.name for k in range(network.num_outputs)]
    found[path] = [errors, engine is not None, sorted(types), outputs]
print(json.dumps(found))
"""


def f32(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def model(text: str, **weights: Any) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 22]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items())
    return made


MODELS = {
    "attention": model(
        """g (float[n,6,16] x, bool[n,1,6] visible) => (float[n,6,16] y) {
          q = MatMul(x, w)  h = MatMul(x, v)  t = Transpose<perm=[0,2,1]>(h)  s = MatMul(q, t)
          m = Where(visible, zero, lowest)  k = Add(s, m)  p = Softmax<axis=-1>(k)  a = MatMul(p, q)
          y = LayerNormalization(a, gain) }""",
        w=f32(16, 16), v=f32(16, 16), gain=f32(16), zero=np.float32(0), lowest=np.float32(np.finfo(np.float32).min),
    ),
    "convolutions": model(
        """g (float[n,3,16,16] x) => (float[n,4] y) {
          c = Conv<pads=[1,1,1,1]>(x, w, b)  k = BatchNormalization(c, b, b, b, var)  r = Relu(k)
          u = Resize<mode="linear">(r, , scales)  a = GlobalAveragePool(u)  f = Flatten(a)  y = MatMul(f, head) }""",
        w=f32(8, 3, 3, 3), b=f32(8), var=np.abs(f32(8)) + 0.5, scales=np.array([1, 1, 2, 2], np.float32), head=f32(8, 4),
    ),
    "branches": model(
        """g (float[n,4] x, bool c) => (float[n,4] y) {
          h = MatMul(x, w)
          y = If(c) <then_branch = t () => (float[n,4] a) { a = MatMul(h, w) },
                     else_branch = e () => (float[n,4] b) { b = Identity(h) }> }""",
        w=f32(4, 4),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def built(tensorrt_rtx: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[Any]]:
    """What TensorRT-RTX says of every model in both types."""
    place = tmp_path_factory.mktemp("cast")
    paths = {}
    for name, made in MODELS.items():
        for precision in ("fp16", "bf16"):
            paths[name, precision] = place / f"{name}-{precision}.onnx"
            onnx.save(cast_model(made, precision).model, paths[name, precision])  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, *map(str, paths.values())],
        env={**os.environ, "PYTHONPATH": str(tensorrt_rtx)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return {key: found[str(path)] for key, path in paths.items()}


@pytest.mark.parametrize(("precision", "narrow"), [("fp16", "HALF"), ("bf16", "BF16")])
@pytest.mark.parametrize("name", MODELS)
def test_an_engine_is_built(
    name: str, precision: str, narrow: str, built: dict[tuple[str, str], list[Any]]
) -> None:
    errors, engine, types, outputs = built[name, precision]
    assert not errors
    assert engine
    assert set(outputs) == {"FLOAT"}
    products = {t for t in types if not t.startswith("SOFTMAX")}
    assert products
    assert all(t.endswith(f" {narrow}") for t in products), types
    assert {t for t in types if t.startswith("SOFTMAX")} <= {"SOFTMAX FLOAT"}
