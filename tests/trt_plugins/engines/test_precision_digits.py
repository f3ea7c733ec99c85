"""What computes coordinates stays float32 back to the last layer, is listed with the reason, and no cast is added for it.

Expected values are of float64 in numpy; what a cast model computes is of onnx's reference, which computes float16 in float16.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from deployops.trt_plugins.engines.casting.cast_model import CastModel, cast_model
from deployops.trt_plugins.engines.casting.plugin_dtypes import plugin_dtypes

RNG = np.random.default_rng(13)
GRID = "it computes the grid of GridSample, which needs the digits"


def f32(*shape: int, scale: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def model(text: str, weights: Mapping[str, Any] | None = None, opset: int = 18) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}, "acme": 1]>\n{text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()
    )
    return made


def run(made: onnx.ModelProto, **feeds: Any) -> list[Any]:
    return [np.asarray(v) for v in ReferenceEvaluator(made).run(None, feeds)]


def kept(cast: CastModel) -> dict[str, str]:
    return {k.node: k.reason for k in cast.kept}


def casts(cast: CastModel) -> list[str]:
    return [n.input[0] for n in cast.model.graph.node if n.op_type == "Cast"]


# A warp: a layer predicts how far each pixel moves, in pixels of an image of 3,001 columns.
WARP = model(
    """g (float[1,2,1,3001] image, float[1,8,1,3001] features, float[1,2,1,3001] pixels)
       => (float[1,2,1,3001] y, float[1,1,3001,2] grid) {
      hidden = Conv(features, first)
      active = Relu(hidden)
      moves = Conv(active, head, bias)
      there = Add(pixels, moves)
      ratio = Div(there, size)
      doubled = Mul(ratio, two)
      centred = Sub(doubled, one)
      grid = Transpose<perm=[0,2,3,1]>(centred)
      coloured = Mul(image, gain)
      y = GridSample(coloured, grid) }""",
    {
        "first": f32(8, 8, 1, 1, scale=0.3), "head": f32(2, 8, 1, 1, scale=0.3), "bias": f32(2), "gain": np.float32(0.7),
        "size": np.array([3000, 1], np.float32).reshape(1, 2, 1, 1), "two": np.float32(2), "one": np.float32(1),
    },
)  # fmt: skip


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_grid_is_computed_in_float32_back_to_the_last_layer(precision: Any) -> None:
    made = onnx.ModelProto()
    made.CopyFrom(WARP)
    made.opset_import[0].version = 22  # Conv takes bfloat16
    cast = cast_model(made, precision)
    onnx.checker.check_model(cast.model, full_check=True)
    assert kept(cast) == dict.fromkeys(["moves", "there", "ratio", "doubled", "centred", "grid"], GRID)
    assert sorted(casts(cast)) == [
        "active",
        "features",
        "image",
        "y_float16".replace("float16", _name(precision)),
    ]
    weights = {t.name: t.data_type for t in cast.model.graph.initializer}
    assert weights["head"] == TensorProto.FLOAT
    assert weights["first"] != TensorProto.FLOAT


def _name(precision: str) -> str:
    return "float16" if precision == "fp16" else "bfloat16"


def test_a_pixel_is_found_where_it_is() -> None:
    """In float16 the columns of an image of 3,001 are up to a pixel apart from where they should be."""
    pixels = np.stack([np.arange(3001), np.zeros(3001)]).astype(np.float32).reshape(1, 2, 1, 3001)
    feeds = {"image": f32(1, 2, 1, 3001), "features": f32(1, 8, 1, 3001), "pixels": pixels}
    cast = cast_model(WARP, "fp16")
    now = run(cast.model, **feeds)[1][0, 0, :, 0]
    w = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in WARP.graph.initializer}
    hidden = np.maximum(w["first"][:, :, 0, 0] @ feeds["features"][0, :, 0].astype(np.float64), 0)
    moves = w["head"][:, :, 0, 0] @ hidden + w["bias"][:, None]
    columns = (now.astype(np.float64) + 1) / 2 * 3000
    error = np.abs(columns - (np.arange(3001) + moves[0]))
    assert 0 < error.max() < 0.01


def test_a_grid_that_is_an_input_costs_nothing() -> None:
    made = model(
        """g (float[1,1,4,4] x, float[1,4,4,2] grid) => (float[1,1,4,4] y) {
          z = Mul(x, gain)  moved = Add(grid, step)  y = GridSample(z, moved) }""",
        {"gain": np.float32(0.7), "step": np.float32(1e-4)},
    )
    cast = cast_model(made, "fp16")
    assert kept(cast) == {"moved": GRID}
    assert casts(cast) == ["x", "y_float16"]


def test_a_value_for_both_sides_is_cast_once() -> None:
    made = model(
        """g (float[1,1,4,4] x, float[1,4,4,2] start) => (float[1,1,4,4] y, float[1,4,4,2] a, float[1,4,4,2] b) {
          s = Sigmoid(start)  a = Mul(s, gain)  b = Sub(s, gain)  y = GridSample(x, s) }""",
        {"gain": np.float32(0.7)},
    )
    cast = cast_model(made, "fp16")
    assert casts(cast).count("s") == 1
    assert set(kept(cast)) == {"s"}


def test_geometry_without_layers_stays_float32_through_its_products() -> None:
    """A camera: points are turned, then projected; both products are of coordinates."""
    made = model(
        """g (float[1,1,9,9] x, float[1,20,3] points, float[1,3,3] pose) => (float[1,1,1,20] y) {
          scaled = Mul(points, scale)  turned = MatMul(scaled, pose)  seen = MatMul(turned, lens)
          flat = Slice(seen, zero, two, last)  grid = Unsqueeze(flat, first)  y = GridSample(x, grid) }""",
        {
            "scale": np.float32(0.01), "lens": f32(3, 3), "zero": np.array([0]), "two": np.array([2]), "last": np.array([2]),
            "first": np.array([1]),
        },
    )  # fmt: skip
    cast = cast_model(made, "fp16")
    assert {"scaled", "turned", "seen", "flat", "grid"} == set(kept(cast))
    assert casts(cast) == ["x", "y_float16"]


@pytest.mark.parametrize(
    ("nodes", "what", "stays"),
    [
        ("t = Gemm(f, w6)  theta = Reshape(t, s23)  y = AffineGrid(theta, sizes)", "AffineGrid", {"t", "theta"}),
        ("b = Gemm(f, w4)  boxes = Mul(b, gain)  y = RoiAlign(image, boxes, batch)", "RoiAlign", {"b", "boxes"}),
        ("s = Gemm(f, w4)  e = Sigmoid(s)  k = Reshape(e, s4)  y = Resize(image, , k)", "Resize", {"s", "e", "k"}),
        (
            "b = Gemm(f, w4)  boxes = Reshape(b, s114)  y = NonMaxSuppression(boxes, scores, most)",
            "NonMaxSuppression",
            {"b", "boxes"},
        ),
    ],
)  # fmt: skip
def test_other_coordinates(nodes: str, what: str, stays: set[str]) -> None:
    made = model(
        f"g (float[1,8] x, float[1,1,4,4] image, float[1,1,1] scores) => (y) {{ f = Gemm(x, w8)  {nodes} }}",
        {
            "w8": f32(8, 8), "w6": f32(8, 6), "w4": f32(8, 4), "gain": np.float32(3.3), "s23": np.array([1, 2, 3]),
            "s4": np.array([4]), "s114": np.array([1, 1, 4]), "sizes": np.array([1, 1, 5, 5]), "batch": np.array([0]),
            "most": np.array([1]),
        },
        opset=20,
    )  # fmt: skip
    cast = cast_model(made, "fp16")
    found = {node: why for node, why in kept(cast).items() if f"of {what}" in why}
    assert set(found) >= stays
    assert "f" not in kept(cast), "a layer before"


# --- positions -------------------------------------------------------------------------------------------------------


def test_the_positions_of_an_embedding_that_are_floats() -> None:
    """The timestep of a diffusion model is a float input; times its frequency, float16 is off by 0.25 rad."""
    frequencies = (10000.0 ** -(np.arange(8) / 8)).astype(np.float32)
    made = model(
        """g (float[n] t) => (float[n,4] y, float[n,16] e) {
          column = Unsqueeze(t, last)  angles = Mul(column, frequencies)  s = Sin(angles)  c = Cos(angles)
          e = Concat<axis=-1>(s, c)  y = MatMul(e, w) }""",
        {"last": np.array([-1]), "frequencies": frequencies, "w": f32(16, 4)},
    )
    cast = cast_model(made, "fp16")
    t = np.array([999.3, 731.7, 3.2], np.float32)
    now = run(cast.model, t=t)[1]
    angles = t.astype(np.float64)[:, None] * frequencies.astype(np.float64)
    assert np.abs(now - np.concatenate([np.sin(angles), np.cos(angles)], -1)).max() < 1e-3
    assert {"column", "angles", "s", "c"} <= set(kept(cast))
    assert "y" not in kept(cast)


def test_a_sine_of_activations_is_cast() -> None:
    """As in a vocoder (snake): behind layers, its argument is no position."""
    made = model(
        """g (float[n,8] x) => (float[n,8] y) {
          a = MatMul(x, w)  b = Relu(a)  c = MatMul(b, w)  d = Mul(c, alpha)  s = Sin(d)  y = Add(c, s) }""",
        {"w": f32(8, 8, scale=0.3), "alpha": np.float32(1.3)},
    )
    assert not cast_model(made, "fp16").kept


def test_an_index_is_computed_in_float32() -> None:
    """Row times width plus column: 5,001 is no float16, and another pixel would be taken."""
    made = model(
        """g (float[n] row, float[n] column, float[10002] image) => (float[n] y) {
          r = Floor(row)  c = Floor(column)  before = Mul(r, width)  place = Add(before, c)  index = Cast<to=7>(place)
          y = Gather(image, index) }""",
        {"width": np.float32(5001)},
    )
    image = np.arange(10002).astype(np.float32) % 7
    cast = cast_model(made, "fp16")
    rows, columns = np.array([0.2, 1.4, 1.9]), np.array([2049.5, 0.3, 4097.8])
    [now] = run(cast.model, row=rows.astype(np.float32), column=columns.astype(np.float32), image=image)
    assert now.tolist() == [
        image[int(np.floor(r)) * 5001 + int(np.floor(c))] for r, c in zip(rows, columns, strict=True)
    ]
    assert "whole numbers" in kept(cast)["place"]


def test_a_scale_of_quantization_does_not_keep_the_activations() -> None:
    made = model(
        """g (float[n,8] x) => (int8[n,8] y) {
          a = MatMul(x, w)  size = Abs(a)  most = ReduceMax<keepdims=0>(size)  scale = Div(most, levels)
          y = QuantizeLinear(a, scale, zero) }""",
        {"w": f32(8, 8), "levels": np.float32(127), "zero": np.int8(0)},
        opset=19,
    )
    assert {k.operator for k in cast_model(made, "fp16").kept} == {"QuantizeLinear"}


# --- custom operators --------------------------------------------------------------------------------------------------


def library(*rows: dict[str, str], name: str = "Sample", output: str = "float16") -> Any:
    """As the manifest beside a library says it: a row of dtypes for each kernel."""
    inputs = list(rows[0])
    entry = {
        "plugin_namespace": "acme",
        "plugin_name": name,
        "inputs": [{"name": n, "form": "single"} for n in inputs],
        "outputs": ["y"],
        "signatures": [{"inputs": r, "outputs": {"y": r.get("value", output)}} for r in rows],
    }
    return plugin_dtypes([{"plugins": [entry]}])


CUSTOM = model(
    """g (float[n,8] x, float[n,2] reference) => (float[n,8] y) {
      value = MatMul(x, w)  offsets = MatMul(value, o)  scaled = Div(offsets, size)  places = Add(reference, scaled)
      s = acme.Sample(value, places)  y = MatMul(s, w) }""",
    {"w": f32(8, 8), "o": f32(8, 2), "size": np.array([37.0, 23.0], np.float32)},
)


def test_an_input_that_a_plugin_takes_in_float32_alone() -> None:
    rows = [{"value": v, "locations": "float32"} for v in ("float32", "float16")]
    cast = cast_model(CUSTOM, "fp16", plugins=library(*rows))
    why = "it computes locations of acme::Sample, which takes it in float32 alone"
    assert kept(cast) == dict.fromkeys(["offsets", "scaled", "places"], why)
    [node] = [n for n in cast.model.graph.node if n.op_type == "Sample"]
    assert list(node.input) == ["value", "places"], "no cast before it"
    assert sorted(casts(cast)) == ["value", "x", "y_float16"]


@pytest.mark.parametrize(
    "rows",
    [
        [{"value": "float32", "locations": "float32"}],
        [{"value": v, "locations": v} for v in ("float32", "float16")],
    ],
)
def test_what_is_float32_with_all_else_or_narrow_too_does_not_spread(rows: Any) -> None:
    cast = cast_model(CUSTOM, "fp16", plugins=library(*rows))
    assert not {"offsets", "scaled", "places"} & set(kept(cast))


def test_coordinates_that_a_plugin_makes_in_float16_are_said() -> None:
    made = model(
        """g (float[1,1,4,4] x, float[1,4,4,2] start) => (float[1,1,4,4] y) {
          c = acme.Sample(start)  grid = Add(c, step)  y = GridSample(x, grid) }""",
        {"step": np.float32(0.1)},
    )
    made.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, (1, 4, 4, 2)))
    cast = cast_model(made, "fp16", plugins=library({"value": "float32"}, {"value": "float16"}))
    [warning] = [w for w in cast.warnings if "digits" in w]
    assert "c of acme::Sample" in warning
    assert "--keep-float32" in warning
    told = cast_model(
        made, "fp16", keep=["acme::Sample"], plugins=library({"value": "float32"}, {"value": "float16"})
    )
    assert not told.warnings


def test_a_chain_too_long_to_follow_is_said() -> None:
    steps = "".join(f"s{k + 1} = Add(s{k}, step)  " for k in range(60))
    made = model(
        f"g (float[1,1,4,4] x, float[1,4,4,2] s0) => (float[1,1,4,4] y) {{ {steps} y = GridSample(x, s60) }}",
        {"step": np.float32(0.1)},
    )
    cast = cast_model(made, "fp16")
    assert len(cast.kept) == 49
    [warning] = cast.warnings
    assert "s11" in warning
    assert "--keep-float32" in warning


# --- graphs in graphs ------------------------------------------------------------------------------------------------


def test_coordinates_that_a_loop_refines() -> None:
    """As RAFT does: moved each turn by what a layer makes of the sampled features."""
    made = model(
        """g (float[1,1,4,4] image, float[1,4,4,2] start, int64 turns) => (float[1,4,4,2] last) {
          gained = Mul(image, gain)
          last = Loop(turns, go, start) <body = b (int64 i, bool on, float[1,4,4,2] at) => (bool again, float[1,4,4,2] next) {
            again = Identity(on)  seen = GridSample(gained, at)  flat = Reshape(seen, s)  active = Relu(flat)
            first = MatMul(active, w1)  hidden = Relu(first)  delta = MatMul(hidden, w)  small = Mul(delta, step)
            next = Add(at, small) }> }""",
        {
            "gain": np.float32(0.7), "go": np.array(True), "s": np.array([1, 4, 4, 1]),
            "w1": np.array([[1, -1]], np.float32), "w": np.array([[1, -2], [3, 1]], np.float32),
            "step": np.float32(1e-4),
        },
    )  # fmt: skip
    cast = cast_model(made, "fp16")
    found = kept(cast)
    assert {"delta", "small", "next"} <= set(found)
    assert not {"seen", "flat", "active", "first", "hidden"} & set(found)
    feeds = {"image": f32(1, 1, 4, 4), "start": f32(1, 4, 4, 2, scale=0.2), "turns": np.array(3)}
    moved = run(made, **feeds)[0] - feeds["start"]
    narrow = run(cast.model, **feeds)[0] - feeds["start"]
    assert 0 < np.abs(moved).max() < 1e-2
    assert np.abs(moved - narrow).max() < 0.02 * np.abs(moved).max(), (
        "steps that a float16 coordinate would lose"
    )


def test_coordinates_out_of_a_branch() -> None:
    made = model(
        """g (float[1,1,4,4] x, float[1,4,4,2] start, bool c) => (float[1,1,4,4] y) {
          s = Sub(start, step)
          grid = If(c) <then_branch = t () => (float[1,4,4,2] a) { a = Add(s, step) },
                        else_branch = e () => (float[1,4,4,2] b) { b = Mul(s, step) }>
          y = GridSample(x, grid) }""",
        {"step": np.float32(0.1)},
    )
    assert {"s", "a", "b"} <= set(kept(cast_model(made, "fp16")))


def test_states_of_a_loop_that_are_handed_on_for_many_turns() -> None:
    """The last of six is a grid; the first comes to be it after six turns."""
    count = 6
    states = ", ".join(f"float[1,4,4,2] s{k}" for k in range(count))
    leaving = ", ".join(f"float[1,4,4,2] t{k}" for k in range(count))
    moved = "  ".join(f"t{k} = Identity(s{k - 1})" for k in range(1, count))
    made = model(
        f"""g (float[1,1,4,4] x, float[1,4,4,2] c, int64 turns) => (float[1,1,4,4] y) {{
          {", ".join(f"o{k}" for k in range(count))} = Loop(turns, go, {", ".join(["c"] * count)}) <body = b (int64 i, bool on,
            {states}) => (bool again, {leaving}) {{ again = Identity(on)  t0 = Tanh(s{count - 1})  {moved} }}>
          y = GridSample(x, o{count - 1}) }}""",
        {"go": np.array(True)},
    )
    assert "t0" in kept(cast_model(made, "fp16"))


def test_loops_in_loops_take_no_longer_than_their_nodes() -> None:
    depth = 14
    text = "out = GridSample(x, c)  k0 = Add(c, step)"
    for k in range(depth):
        text = (
            f"o{k} = Identity(go)  k{k + 1} = Loop(turns, go, c) <body = b{k} (int64 i{k}, bool a{k}, float[1,4,4,2] c) "
            f"=> (bool o{k}, float[1,4,4,2] k{k}) {{ {text} o{k} = Identity(a{k}) }}>"
        ).removeprefix(f"o{k} = Identity(go)  ")
    made = model(
        f"g (float[1,1,4,4] x, float[1,4,4,2] c, int64 turns) => (float[1,4,4,2] y) {{ {text} y = Identity(k{depth}) }}",
        {"go": np.array(True), "step": np.float32(0.1)},
    )
    start = time.perf_counter()
    cast = cast_model(made, "fp16")
    assert time.perf_counter() - start < 20
    assert "k0" in kept(cast)


# --- a model in the other half type --------------------------------------------------------------------------------------


def test_a_bfloat16_model_asked_for_in_float16() -> None:
    """Its own steps in float32 keep the range that they were written for, and its weights are checked."""
    made = model(
        """g (bfloat16[n,4] x) => (bfloat16[n,4] y) {
          a = Relu(x)  wide = Cast<to=1>(a)  many = Cast<to=1>(w)  m = Max(wide, many)  y = Cast<to=16>(m) }""",
        {"w": np.array([1e9, 2, 3, 4], ml_dtypes.bfloat16)},
    )
    cast = cast_model(made, "fp16")
    [warning] = cast.warnings
    assert "bfloat16, which stays as it is" in warning
    assert "65,504" in warning
    assert "a larger range than float16" in kept(cast)["wide"]
    assert "many is beyond the range" in kept(cast)["m"]
    x = np.array([[1e6, 1, 1, 1]], ml_dtypes.bfloat16)
    assert (run(cast.model, x=x)[0] == run(made, x=x)[0]).all()


def test_other_models_are_not_said_to_be_in_a_half_type() -> None:
    made = model("g (float[n,4] x) => (float[n,4] y) { y = MatMul(x, w) }", {"w": f32(4, 4)})
    for precision in ("fp16", "bf16"):
        assert not cast_model(made, precision).warnings  # type: ignore[arg-type]
    half = model("g (float16[n,4] x) => (float16[n,4] y) { y = Relu(x) }")
    assert not cast_model(half, "fp16").warnings
    assert "fewer digits" in cast_model(half, "bf16").warnings[0]
