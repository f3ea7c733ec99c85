"""A model in float16 or bfloat16 computes what it did, says what stayed float32, and never writes a weight as infinite.

float16 is run by ONNX Runtime; its CPU provider has no bfloat16 kernels, so that bfloat16 is run by onnx's reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from deployops.errors import ModelFileError, UsageError
from deployops.trt_plugins.engines.casting.cast_model import CastModel, cast_model
from deployops.trt_plugins.engines.casting.narrow_weights import narrowed

RNG = np.random.default_rng(4)


def f32(*shape: int, scale: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def model(
    text: str, weights: Mapping[str, Any] | None = None, opset: int = 18, ir: int = 8
) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]>\n{text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()
    )
    return made


def run(made: onnx.ModelProto, **feeds: Any) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def kept(cast: CastModel) -> dict[str, str]:
    return {k.operator: k.reason for k in cast.kept}


def types(made: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    values = [*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input]
    found = {v.name: v.type.tensor_type.elem_type for v in values}
    return found | {t.name: t.data_type for t in inferred.graph.initializer}


def operand_types(made: onnx.ModelProto, operator: str) -> set[int]:
    known = types(made)
    return {
        known[name] for node in made.graph.node if node.op_type == operator for name in node.input if name
    }


def near(
    made: onnx.ModelProto, cast: CastModel, bound: float, in_reference: bool = True, **feeds: Any
) -> None:
    """Within `bound` of the outputs' scale, in two runtimes.

    ONNX Runtime runs elementwise float16 nodes in float32 on the CPU, so that only onnx's reference, which computes in
    numpy's float16, shows that something was cast: its numbers differ.
    """
    onnx.checker.check_model(cast.model, full_check=True)
    was = run(made, **feeds)
    runs = [
        (run(cast.model, **feeds), False),
        *([(reference(cast.model, **feeds), True)] if in_reference else []),
    ]
    for now, cast_for_real in runs:
        assert [(a.dtype, a.shape) for a in was] == [(b.dtype, b.shape) for b in now]
        errors = [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(was, now, strict=True)]
        assert max(errors) < bound
        assert max(errors) > 0 or not cast_for_real


def reference(made: onnx.ModelProto, **feeds: Any) -> list[Any]:
    return [np.asarray(v) for v in ReferenceEvaluator(made).run(None, feeds)]


MLP = model(
    """g (float[n,16] x) => (float[n,8] y) {
      h = Gemm(x, w1, b1)  r = Relu(h)  z = MatMul(r, w2)  y = Softmax<axis=-1>(z) }""",
    {"w1": f32(16, 32, scale=0.2), "b1": f32(32), "w2": f32(32, 8, scale=0.2)},
)
CONV = model(
    """g (float[n,3,16,16] x) => (float[n,4] y) {
      c = Conv<pads=[1,1,1,1]>(x, w, b)
      k = BatchNormalization(c, gain, shift, mean, var)
      r = Relu(k)
      u = Resize<mode="linear">(r, , scales)
      m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(u)
      a = GlobalAveragePool(m)
      f = Flatten(a)
      y = Gemm(f, head) }""",
    {
        "w": f32(8, 3, 3, 3, scale=0.2), "b": f32(8), "gain": f32(8), "shift": f32(8), "mean": f32(8),
        "var": np.abs(f32(8)) + 0.5, "scales": np.array([1, 1, 2, 2], np.float32), "head": f32(8, 4),
    },
)  # fmt: skip
# Written as PyTorch exports it without fused operators: the layer norm in single nodes, a mask of the lowest float32.
BLOCK = model(
    """g (float[b,6,16] x, int64[b,6] ids, bool[b,1,6] visible) => (float[b,6,16] y) {
      mean = ReduceMean<keepdims=1>(x, last)
      centred = Sub(x, mean)
      squared = Pow(centred, two)
      variance = ReduceMean<keepdims=1>(squared, last)
      safe = Add(variance, eps)
      deviation = Sqrt(safe)
      normal = Div(centred, deviation)
      scaled = Mul(normal, gain)
      positions = Cast<to=1>(ids)
      column = Unsqueeze(positions, last)
      angles = MatMul(column, frequencies)
      turned = Sin(angles)
      moved = Add(scaled, turned)
      q = MatMul(moved, wq)  k = MatMul(moved, wk)  v = MatMul(moved, wv)
      kt = Transpose<perm=[0,2,1]>(k)
      scores = MatMul(q, kt)
      mask = Where(visible, zero, lowest)
      masked = Add(scores, mask)
      probabilities = Softmax<axis=-1>(masked)
      mixed = MatMul(probabilities, v)
      y = Add(x, mixed) }""",
    {
        "last": np.array([-1], np.int64), "two": np.float32(2), "eps": np.float32(1e-12), "gain": f32(16),
        "frequencies": (10000.0 ** -(np.arange(16, dtype=np.float32)[None] / 16)).astype(np.float32),
        "wq": f32(16, 16, scale=0.2), "wk": f32(16, 16, scale=0.2), "wv": f32(16, 16, scale=0.2),
        "zero": np.float32(0), "lowest": np.float32(np.finfo(np.float32).min),
    },
)  # fmt: skip


def test_a_multilayer_perceptron() -> None:
    cast = cast_model(MLP, "fp16")
    near(MLP, cast, 2e-3, x=f32(5, 16))
    assert operand_types(cast.model, "MatMul") == operand_types(cast.model, "Gemm") == {TensorProto.FLOAT16}
    assert operand_types(cast.model, "Softmax") == {TensorProto.FLOAT}
    assert list(kept(cast)) == ["Softmax"]
    assert not cast.warnings


def test_a_convolutional_network_keeps_the_scales_of_resize() -> None:
    cast = cast_model(CONV, "fp16")
    near(CONV, cast, 4e-3, x=f32(2, 3, 16, 16))
    assert (
        operand_types(cast.model, "Conv")
        == operand_types(cast.model, "BatchNormalization")
        == {TensorProto.FLOAT16}
    )
    assert operand_types(cast.model, "Resize") == {TensorProto.FLOAT16, TensorProto.FLOAT}
    assert types(cast.model)["scales"] == TensorProto.FLOAT
    assert not cast.kept


def test_the_region_of_resize_stays_float32() -> None:
    made = model(
        """g (float[1,1,8,8] x) => (float[1,1,8,8] y) {
          a = Mul(x, gain)  y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(a, roi, , sizes) }""",
        {
            "gain": np.float32(0.3),
            "roi": np.float32([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9]),
            "sizes": np.array([1, 1, 8, 8], np.int64),
        },
    )
    cast = cast_model(made, "fp16")
    assert types(cast.model)["roi"] == TensorProto.FLOAT
    assert types(cast.model)["a"] == TensorProto.FLOAT16


def test_a_transformer_block_far_out_in_positions_and_masked_rows() -> None:
    cast = cast_model(BLOCK, "fp16")
    visible = np.ones((2, 1, 6), bool)
    visible[0, 0, 3:] = False
    visible[1] = False  # a row with nothing visible: -inf in the mask would make NaN of it
    ids = np.arange(12, dtype=np.int64).reshape(2, 6) + 4099
    near(BLOCK, cast, 4e-3, x=f32(2, 6, 16, scale=300), ids=ids, visible=visible)
    stays = {k.node for k in cast.kept}
    assert {"squared", "variance", "safe", "deviation", "normal"} <= stays, (
        "the variance of 300² overflows float16"
    )
    assert {"positions", "angles", "turned"} <= stays
    assert {"mask", "masked", "probabilities"} <= stays
    assert not stays & {"q", "k", "v", "scores", "mixed", "scaled"}
    assert operand_types(cast.model, "MatMul") == {TensorProto.FLOAT16, TensorProto.FLOAT}


@pytest.mark.parametrize("made", [MLP, CONV, BLOCK], ids=["mlp", "conv", "block"])
def test_names_and_types_of_inputs_and_outputs_stay(made: onnx.ModelProto) -> None:
    before = made.SerializeToString()
    for precision in ("fp16", "bf16"):
        cast = cast_model(made, precision)
        assert list(cast.model.graph.input) == list(made.graph.input)
        assert list(cast.model.graph.output) == list(made.graph.output)
        named = {o for node in made.graph.node for o in node.output}
        assert named <= {o for node in cast.model.graph.node for o in node.output}
        assert {t.name for t in cast.model.graph.initializer} == {t.name for t in made.graph.initializer}
    assert made.SerializeToString() == before
    assert (
        cast_model(made, "fp16").model.SerializeToString()
        == cast_model(made, "fp16").model.SerializeToString()
    )


def test_bfloat16_is_right_in_onnx_reference() -> None:
    cast = cast_model(MLP, "bf16")
    onnx.checker.check_model(cast.model, full_check=True)
    assert operand_types(cast.model, "MatMul") == {TensorProto.BFLOAT16}
    x = f32(5, 16)
    (was,) = run(MLP, x=x)
    (now,) = ReferenceEvaluator(cast.model).run(None, {"x": x})
    assert now.dtype == np.float32
    assert 0 < np.abs(was - now).max() < 2e-2


def test_an_operator_that_takes_bfloat16_only_in_a_newer_opset_says_which() -> None:
    cast = cast_model(CONV, "bf16")
    assert kept(cast)["Conv"] == "Conv of opset 18 takes no bfloat16; 22 does"
    assert any("Conv from 22 on" in w and "--opset 22" in w for w in cast.warnings)
    newer = onnx.ModelProto()
    newer.CopyFrom(CONV)
    newer.opset_import[0].version = 22
    assert "Conv" not in kept(cast_model(newer, "bf16"))


# --- weights -----------------------------------------------------------------------------------------------------


@given(hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
@settings(max_examples=300, deadline=None)
def test_conversion_counts_what_numpy_shows(values: Any) -> None:
    for precision, kind in (("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        found = narrowed(values, precision)  # type: ignore[arg-type]
        with np.errstate(all="ignore"):
            wide = values.astype(kind).astype(np.float64)
        exact = values.astype(np.float64)
        finite = np.isfinite(exact)
        assert found.beyond == int((finite & np.isinf(wide)).sum())
        assert found.zeros == int(((exact != 0) & (wide == 0)).sum())
        assert (np.isnan(wide) == np.isnan(exact)).all()
        assert (found.largest == np.abs(exact[finite]).max()) if finite.any() else found.largest == 0


@pytest.mark.parametrize(
    ("value", "fits"), [(65504.0, True), (65519.9, True), (65520.0, False), (-70000.0, False), (np.inf, True)]
)
def test_the_border_of_float16(value: float, fits: bool) -> None:
    """IEEE 754: what rounds to 65,504 is finite, and from half a unit above it on it is not."""
    weight = np.array([[1.0, value], [2.0, 3.0]], np.float32)
    made = model("g (float[n,2] x) => (float[n,2] y) { y = MatMul(x, w) }", {"w": weight})
    cast = cast_model(made, "fp16")
    assert (types(cast.model)["w"] == TensorProto.FLOAT16) == fits
    stored = numpy_helper.to_array(cast.model.graph.initializer[0])
    assert (np.isinf(stored.astype(np.float32)) == np.isinf(weight)).all()
    if not fits:
        reason = kept(cast)["MatMul"]
        assert f"1 of 4 values up to {abs(value):g}" in reason
        assert "65,504" in reason
        x = f32(3, 2)
        assert (run(made, x=x)[0] == run(cast.model, x=x)[0]).all()


def test_an_epsilon_does_not_become_zero() -> None:
    made = model(
        "g (float[n,4] x) => (float[n,4] y) { s = Abs(x) t = Add(s, eps) y = Div(x, t) }",
        {"eps": np.float32(1e-12)},
    )
    cast = cast_model(made, "fp16")
    assert "would become zero" in kept(cast)["Add"]
    assert types(cast.model)["eps"] == TensorProto.FLOAT


def test_small_weights_are_counted() -> None:
    weight = np.array([1, 1e-9, -2e-9, 1e-6, 0], np.float32).reshape(5, 1)
    cast = cast_model(model("g (float[n,5] x) => (float[n,1] y) { y = MatMul(x, w) }", {"w": weight}), "fp16")
    zero, subnormal = cast.warnings
    assert "w 2 of 5" in zero
    assert "w 1 of 5" in subnormal


def test_a_weight_for_both_sides_is_there_twice() -> None:
    made = model(
        "g (float[n,4] x) => (float[n,4] y) { a = MatMul(x, w) y = Gemm(a, w) }", {"w": f32(4, 4, scale=0.3)}
    )
    cast = cast_model(made, "fp16", keep=["Gemm"])
    found = {t.name: t.data_type for t in cast.model.graph.initializer}
    assert found == {"w": TensorProto.FLOAT, "w_float16": TensorProto.FLOAT16}
    near(made, cast, 2e-3, x=f32(3, 4))


@pytest.mark.parametrize(
    "attribute", ["value = float {0.5}", "value_float = 0.5", "value_floats = [0.5, 0.25]"]
)
def test_constants_are_weights(attribute: str) -> None:
    made = model(f"g (float[n,2] x) => (float[n,2] y) {{ c = Constant<{attribute}>() y = Mul(x, c) }}")
    cast = cast_model(made, "fp16")
    assert types(cast.model)["c"] == TensorProto.FLOAT16
    near(made, cast, 2e-3, x=f32(3, 2))


def test_what_the_file_says_of_types_is_changed_with_them() -> None:
    made = model(
        "g (float[n,2] x) => (float[n,2] y) { c = Constant<value = float {0.3}>() a = Mul(x, c) e = Exp(a) y = Add(e, a) }"
    )
    said = onnx.shape_inference.infer_shapes(made)
    said.graph.value_info.append(onnx.helper.make_tensor_value_info("c", TensorProto.FLOAT, ()))
    cast = cast_model(said, "fp16")
    onnx.checker.check_model(cast.model, full_check=True)
    assert {v.name: v.type.tensor_type.elem_type for v in cast.model.graph.value_info} == {
        "a": TensorProto.FLOAT16,
        "c": TensorProto.FLOAT16,
        "e": TensorProto.FLOAT,
    }


def test_an_exported_transformer_with_rotary_positions(tmp_path: Any) -> None:
    """From torch, through the exporter: its constants, its names and its value types."""
    import torch

    import deployops

    class Rotary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = torch.nn.Linear(32, 32)
            self.register_buffer("frequencies", 10000.0 ** -(torch.arange(0, 16, 2) / 16.0))

        def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            angles = positions[..., None].float() * self.frequencies
            angles = torch.cat([angles, angles], -1)[:, None]
            q = self.project(x).view(x.shape[0], x.shape[1], 2, 16).transpose(1, 2)
            turned = q * angles.cos() + torch.cat([-q[..., 8:], q[..., :8]], -1) * angles.sin()
            mixed = torch.nn.functional.scaled_dot_product_attention(turned, turned, q, is_causal=True)
            return mixed.transpose(1, 2).reshape(x.shape)

    torch.manual_seed(0)
    x, positions = torch.randn(2, 6, 32), torch.arange(12).reshape(2, 6) + 5000
    net = Rotary().eval()
    deployops.export_model(net, (x, positions), out=tmp_path / "net.onnx")
    exported = onnx.load(tmp_path / "net.onnx")
    cast = cast_model(exported, "fp16")
    names = [i.name for i in exported.graph.input]
    [now] = run(cast.model, **dict(zip(names, (x.numpy(), positions.numpy()), strict=True)))
    was = net(x, positions).detach().numpy()
    assert 0 < np.abs(now - was).max() < 4e-3 * np.abs(was).max()
    assert {"Cos", "Sin", "Softmax"} <= set(kept(cast))


# --- sizes, indices, quantization, attributes ----------------------------------------------------------------------


def test_arithmetic_on_sizes_stays_exact() -> None:
    made = model(
        """g (float[n,2] x) => (float[m] y, int64[1] half) {
          s = Shape(x)  n = Gather<axis=0>(s, zero)  f = Cast<to=1>(n)  h = Div(f, two)  c = Ceil(h)
          half = Cast<to=7>(c)
          flat = Reshape(x, all)  start = Cast<to=7>(zf)
          y = Slice(flat, start, half) }""",
        {"zero": np.array([0], np.int64), "two": np.float32(2), "all": np.array([-1], np.int64), "zf": np.zeros(1, np.float32)},
    )  # fmt: skip
    cast = cast_model(made, "fp16")
    near(made, cast, 2e-3, x=f32(5001, 2))  # 5001 is no float16
    assert run(cast.model, x=f32(5001, 2))[1] == [2501]


def test_integers_that_enter_a_layer_are_said() -> None:
    made = model(
        "g (int64[n,4] x) => (float[n,2] y) { f = Cast<to=1>(x) y = MatMul(f, w) }", {"w": f32(4, 2)}
    )
    cast = cast_model(made, "fp16")
    assert any("whole numbers" in w and "f." in w and "65,504" in w for w in cast.warnings)
    assert operand_types(cast.model, "MatMul") == {TensorProto.FLOAT16}


def test_pixels_and_masks_are_cast_without_a_word() -> None:
    made = model(
        "g (uint8[n,4] x, bool[n,4] m) => (float[n,4] y) { f = Cast<to=1>(x) g = Cast<to=1>(m) p = Mul(f, s) y = Mul(p, g) }",
        {"s": np.float32(1 / 255)},
    )
    cast = cast_model(made, "fp16")
    assert not cast.kept
    assert not cast.warnings
    near(made, cast, 2e-3, x=RNG.integers(0, 256, (3, 4)).astype(np.uint8), m=np.ones((3, 4), bool))


def test_scales_of_quantization_stay() -> None:
    made = model(
        """g (float[n,4] x) => (float[n,2] y) {
          q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = MatMul(d, w) }""",
        {"s": np.float32(0.037), "z": np.int8(0), "w": f32(4, 2)},
        opset=19,
    )
    cast = cast_model(made, "fp16")
    assert set(kept(cast)) == {"QuantizeLinear", "DequantizeLinear"}
    assert types(cast.model)["s"] == TensorProto.FLOAT
    assert any("quantized" in w for w in cast.warnings)
    near(made, cast, 2e-3, x=f32(3, 4))


def test_filled_and_random_values() -> None:
    made = model(
        """g (float[n,4] x) => (float[n,4] y) {
          s = Shape(x)  c = ConstantOfShape<value = float[1] {0.5}>(s)  m = ConstantOfShape<value = float[1] {-1e9}>(s)
          a = Mul(x, c)  y = Max(a, m) }"""
    )
    cast = cast_model(made, "fp16")
    assert types(cast.model)["c"] == TensorProto.FLOAT16
    assert "1e+09 is outside the range" in kept(cast)["ConstantOfShape"]
    assert kept(cast)["Max"].startswith("its values come from a constant beyond the range")
    near(made, cast, 2e-3, x=f32(3, 4))
    noise = model(
        "g (float[n,4] x) => (float[n,4] y) { r = RandomNormalLike(x) z = Sub(r, r) y = Add(x, z) }"
    )
    assert "RandomNormalLike" in kept(cast_model(noise, "fp16"))


def test_operators_that_take_float32_alone() -> None:
    made = model(
        """g (float[1,5,4] boxes, float[1,2,5] scores) => (int64[k,3] y) {
          b = Relu(boxes)  y = NonMaxSuppression(b, scores, most) }""",
        {"most": np.array([3], np.int64)},
    )
    cast = cast_model(made, "fp16")
    onnx.checker.check_model(cast.model, full_check=True)
    assert "NonMaxSuppression" in kept(cast)


# --- graphs in graphs, functions -----------------------------------------------------------------------------------


IF = """g (float[n,4] x, bool c) => (float[n,4] y, float[n,4] z) {
  h = MatMul(x, w)
  y, z = If(c) <
    then_branch = t () => (float[n,4] a, float[n,4] p) { a = MatMul(h, w)  p = Mul(x, v) },
    else_branch = e () => (float[n,4] b, float[n,4] q) { k = Constant<value = float {0.5}>()  b = Mul(h, k)  q = Identity(h) }
  > }"""
LOOP = """g (float[4,4] x, int64 n) => (float[4,4] y, float[m,4,4] every) {
  h = MatMul(x, w)
  y, every = Loop(n, go, h) <
    body = b (int64 i, bool on, float[4,4] state) => (bool again, float[4,4] next, float[4,4] scan) {
      again = Identity(on)  p = MatMul(state, w)  next = Add(p, h)  scan = Mul(next, v) }
  > }"""
SCAN = """g (float[3,4] x, float[4] start) => (float[4] last, float[3,4] ys) {
  last, ys = Scan <num_scan_inputs = 1,
    body = b (float[4] state, float[4] one) => (float[4] next, float[4] out) {
      p = Mul(state, v)  next = Add(p, one)  out = Mul(next, v) }
  > (start, x) }"""


@pytest.mark.parametrize("branch", [True, False])
def test_if(branch: bool) -> None:
    made = model(IF, {"w": f32(4, 4, scale=0.4), "v": f32(4)})
    cast = cast_model(made, "fp16")
    near(made, cast, 4e-3, x=f32(3, 4), c=np.array(branch))
    assert list(kept(cast)) == ["If"]
    [node] = [n for n in cast.model.graph.node if n.op_type == "If"]
    inside = {n.op_type: list(n.input) for a in node.attribute for n in a.g.node if n.op_type == "MatMul"}
    assert inside["MatMul"] == ["h", "w"], "both are float16 outside"


def test_loop() -> None:
    made = model(LOOP, {"w": f32(4, 4, scale=0.4), "v": f32(4), "go": np.array(True)})
    cast = cast_model(made, "fp16")
    # onnx's reference joins what a Loop makes in each turn along its first axis, where the standard says a new one
    near(made, cast, 8e-3, in_reference=False, x=f32(4, 4), n=np.array(5, np.int64))
    [body] = [a.g for n in cast.model.graph.node for a in n.attribute if n.op_type == "Loop"]
    inside = onnx.helper.make_model(body, opset_imports=cast.model.opset_import)
    made_inside = {o: n for n in inside.graph.node for o in n.output}
    product = next(n for n in inside.graph.node if n.op_type == "MatMul")
    assert product.input[1] == "w", "the weight outside, which is float16"
    assert made_inside[product.input[0]].attribute[0].i == TensorProto.FLOAT16


def test_scan() -> None:
    made = model(SCAN, {"v": f32(4, scale=0.5)})
    near(made, cast_model(made, "fp16"), 8e-3, x=f32(3, 4), start=f32(4))


def test_sequences_are_left_alone() -> None:
    made = model(
        """g (float[n,4] x) => (float[k,4] y) {
          a = Mul(x, v)  s = SequenceConstruct(a, x)  y = ConcatFromSequence<axis=0>(s) }""",
        {"v": f32(4)},
    )
    cast = cast_model(made, "fp16")
    near(made, cast, 2e-3, x=f32(3, 4))
    assert "sequence" in kept(cast)["SequenceConstruct"]


def test_functions_without_a_plugin_are_inlined() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "acme": 1]>
    g (float[n,4] x) => (float[n,4] y) { y = acme.Twice(x) }
    <domain: "acme", opset_import: ["": 18]> Twice (a) => (b) { two = Constant<value = float {2.5}>()  b = Mul(a, two) }"""
    made = parser.parse_model(text)
    cast = cast_model(made, "fp16")
    assert not cast.model.functions
    assert operand_types(cast.model, "Mul") == {TensorProto.FLOAT16}
    near(made, cast, 2e-3, x=f32(3, 4))


# --- what the user asks for, and what cannot be ----------------------------------------------------------------------


def test_keep_by_operator_and_by_name() -> None:
    named = onnx.ModelProto()
    named.CopyFrom(MLP)
    named.graph.node[2].name = "/head/MatMul"
    cast = cast_model(named, "fp16", keep=["Gemm", "/head/MatMul"])
    assert {k.node or k.operator: k.reason for k in cast.kept}["/head/MatMul"] == "you asked for it"
    assert operand_types(cast.model, "Gemm") == operand_types(cast.model, "MatMul") == {TensorProto.FLOAT}
    with pytest.raises(UsageError, match="nothing in the model is called 'Gem'"):
        cast_model(named, "fp16", keep=["Gem"])


def test_weights_that_are_not_loaded_are_refused(tmp_path: Any) -> None:
    copy = onnx.ModelProto()
    copy.CopyFrom(MLP)
    onnx.save_model(copy, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    with pytest.raises(UsageError, match=r"side file and not loaded.*onnx\.load"):
        cast_model(onnx.load(tmp_path / "m.onnx", load_external_data=False), "fp16")
    near(MLP, cast_model(onnx.load(tmp_path / "m.onnx"), "fp16"), 2e-3, x=f32(2, 16))


def test_a_model_with_contradicting_types_is_refused() -> None:
    broken = model("g (float[n] x, int64[n] k) => (float[n] y) { y = Add(x, k) }")
    with pytest.raises(ModelFileError, match="breaks ONNX's rules"):
        cast_model(broken, "fp16")
