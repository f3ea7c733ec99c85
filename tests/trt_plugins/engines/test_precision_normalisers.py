"""Norms, cosines and normalisers of every form survive float16: their sums of products leave its range, what they make does not.

The cast model is run by onnx's reference, which computes in numpy's float16; ONNX Runtime computes float16 elementwise nodes
in float32 on the CPU and hides what overflows. Expected values are the original model's in float64.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from deployops.symbolic.nested_graphs import nested_graphs, nested_nodes
from deployops.trt_plugins.engines.casting.cast_model import CastModel, cast_model

RNG = np.random.default_rng(0)
LARGEST = float(np.finfo(np.float16).max)


def f32(*shape: int, scale: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


def number(value: float) -> Any:
    return np.asarray(value, np.float32)


WEIGHTS: dict[str, Any] = {
    "d": number(64), "eps": number(1e-6), "e8": number(1e-8), "e10": number(1e-10), "e12": number(1e-12), "half": number(-0.5),
    "two": number(2), "one": number(1), "zero": number(0), "minus2": number(-2), "n128": number(128), "third": number(1 / 3),
    "three": number(3), "near1": number(1 - 1e-7),
    "i0": np.array([0]), "i1": np.array([1]), "last": np.array([-1]), "hw": np.array([2, 3]), "rows": np.array([4, 64]),
    "groups": np.array([2, 2, -1]), "image": np.array([2, 4, 8, 8]), "ones": np.ones((64, 1), np.float32),
    "box": np.full((1, 1, 3, 3), 1 / 9, np.float32), "gamma": np.abs(f32(4, 4, 1, 1)), "form": f32(64, 64, scale=0.05),
    "tiny": f32(64, 8, scale=1e-4),
}  # fmt: skip
X, XY = "float[4,64] x", "float[4,64] x, float[4,64] y"
IMAGE, TWO_IMAGES = "float[2,4,8,8] x", "float[1,1,8,8] x, float[1,1,8,8] y"
SQUARES = 'Einsum<equation="bi,bi->b">'
ROOT = "u = Unsqueeze(s, last)  m = Div(u, d)  a = Add(m, eps)  q = Sqrt(a)"
MOMENTS = "g = Reshape(x, groups)  m = ReduceMean<keepdims=1>(g, last)  c = Sub(g, m)"

# name -> inputs, nodes that make o, shape of o
FORMS: dict[str, tuple[str, str, str]] = {
    "einsum, reciprocal": (X, f"s = {SQUARES}(x, x)  {ROOT}  r = Reciprocal(q)  o = Mul(x, r)", "4,64"),
    "einsum, one by root": (X, f"s = {SQUARES}(x, x)  {ROOT}  r = Div(one, q)  o = Mul(x, r)", "4,64"),
    "einsum, divided": (X, f"s = {SQUARES}(x, x)  {ROOT}  o = Div(x, q)", "4,64"),
    "einsum, power": (
        X, f"s = {SQUARES}(x, x)  u = Unsqueeze(s, last)  m = Div(u, d)  a = Add(m, eps)  r = Pow(a, half)  o = Mul(x, r)", "4,64",
    ),
    "einsum of a scaled value": (
        X, f"h = Div(x, d)  s = {SQUARES}(h, x)  u = Unsqueeze(s, last)  q = Sqrt(u)  o = Div(x, q)", "4,64",
    ),
    "einsum of a value computed twice": (
        X, f"h = Sub(x, two)  k = Sub(x, two)  s = {SQUARES}(h, k)  {ROOT}  o = Div(h, q)", "4,64",
    ),
    "einsum, sizes of the shape": (
        X, f"s = {SQUARES}(x, x)  u = Unsqueeze(s, last)  z = Shape<start=1>(x)  n = Cast<to=1>(z)  m = Div(u, n)  a = Add(m, eps) "
        "q = Sqrt(a)  r = Reciprocal(q)  o = Mul(x, r)", "4,64",
    ),
    "matmul": (
        X, "l = Unsqueeze(x, i1)  t = Transpose<perm=[0,2,1]>(l)  p = MatMul(l, t)  s = Squeeze(p, i1)  m = Div(s, d) "
        "a = Add(m, eps)  q = Sqrt(a)  o = Div(x, q)", "4,64",
    ),
    "gemm": ("float[1,64] x", "p = Gemm<transB=1>(x, x)  m = Div(p, d)  q = Sqrt(m)  o = Div(x, q)", "1,64"),
    "conv with itself": ("float[1,1,8,8] x", "p = Conv(x, x)  q = Sqrt(p)  o = Div(x, q)", "1,1,8,8"),
    "mul and sum": (X, f"p = Mul(x, x)  s = ReduceSum<keepdims=0>(p, last)  {ROOT}  o = Div(x, q)", "4,64"),
    "mul and mean": (X, "p = Mul(x, x)  m = ReduceMean<keepdims=1>(p, last)  q = Sqrt(m)  o = Div(x, q)", "4,64"),
    "mul times ones": (X, "p = Mul(x, x)  s = MatMul(p, ones)  q = Sqrt(s)  o = Div(x, q)", "4,64"),
    "pow times ones": (X, "p = Pow(x, two)  s = MatMul(p, ones)  q = Sqrt(s)  o = Div(x, q)", "4,64"),
    "absolute values times ones": (X, "n = Abs(x)  s = MatMul(n, ones)  o = Div(x, s)", "4,64"),
    "relu on the way": (X, f"w = {SQUARES}(x, x)  s = Relu(w)  {ROOT}  o = Div(x, q)", "4,64"),
    "where on the way": (
        X, f"n = {SQUARES}(x, x)  g = Greater(n, zero)  s = Where(g, n, one)  {ROOT}  o = Div(x, q)", "4,64",
    ),
    "concat on the way": (
        XY, f"a0 = {SQUARES}(x, x)  b0 = {SQUARES}(y, y)  a1 = Unsqueeze(a0, last)  b1 = Unsqueeze(b0, last) "
        "c = Concat<axis=1>(a1, b1)  s = ReduceMax<keepdims=1>(c, last)  q = Sqrt(s)  o = Div(x, q)", "4,64",
    ),
    "gap of squares": (IMAGE, "p = Mul(x, x)  g = GlobalAveragePool(p)  q = Sqrt(g)  o = Div(x, q)", "2,4,8,8"),
    "local energy": (
        IMAGE, "p = Pow(x, two)  g = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(p)  q = Sqrt(g)  o = Div(x, q)", "2,4,8,8",
    ),
    "generalised divisive normalisation": (
        IMAGE, "p = Mul(x, x)  g = Conv(p, gamma)  a = Add(g, one)  q = Sqrt(a)  o = Div(x, q)", "2,4,8,8",
    ),
    "generalised mean": (
        IMAGE, "a = Abs(x)  p = Pow(a, three)  g = GlobalAveragePool(p)  o = Pow(g, third)", "2,4,1,1",
    ),
    "lp pool": (IMAGE, "g = LpPool<p=2, kernel_shape=[8,8]>(x)  o = Div(x, g)", "2,4,8,8"),
    "rms over several axes": (
        IMAGE, "p = Mul(x, x)  m = ReduceMean<keepdims=1>(p, hw)  a = Add(m, eps)  q = Sqrt(a)  o = Div(x, q)", "2,4,8,8",
    ),
    "over channels": (IMAGE, "p = Mul(x, x)  s = ReduceSum<keepdims=1>(p, i1)  q = Sqrt(s)  o = Div(x, q)", "2,4,8,8"),
    "group norm": (
        IMAGE, f"{MOMENTS}  p = Mul(c, c)  v = ReduceMean<keepdims=1>(p, last)  a = Add(v, eps)  q = Sqrt(a)  n = Div(c, q) "
        "o = Reshape(n, image)", "2,4,8,8",
    ),
    "group norm, mean of squares": (
        IMAGE, f"{MOMENTS}  p = Mul(g, g)  v0 = ReduceMean<keepdims=1>(p, last)  mm = Mul(m, m)  v = Sub(v0, mm) "
        "a = Add(v, eps)  q = Sqrt(a)  n = Div(c, q)  o = Reshape(n, image)", "2,4,8,8",
    ),
    "group norm, einsum": (
        IMAGE, f'{MOMENTS}  v = Einsum<equation="abc,abc->ab">(c, c)  u = Unsqueeze(v, last)  w = Div(u, n128)  a = Add(w, eps) '
        "q = Sqrt(a)  n = Div(c, q)  o = Reshape(n, image)", "2,4,8,8",
    ),
    "cosine": (
        XY, f"p = {SQUARES}(x, y)  n = ReduceL2<keepdims=0>(x, last)  k = ReduceL2<keepdims=0>(y, last)  g = Mul(n, k) "
        "c = Max(g, e8)  o = Div(p, c)", "4",
    ),
    "cosine, sums": (
        XY, "h = Mul(x, y)  p = ReduceSum<keepdims=0>(h, last)  n = ReduceL2<keepdims=0>(x, last) "
        "k = ReduceL2<keepdims=0>(y, last)  g = Mul(n, k)  o = Div(p, g)", "4",
    ),
    "cosine of all pairs": (
        XY, "t = Transpose(y)  p = MatMul(x, t)  n = ReduceL2<keepdims=1>(x, last)  k0 = ReduceL2<keepdims=1>(y, last) "
        "k = Transpose(k0)  g = Mul(n, k)  r = Reciprocal(g)  o = Mul(p, r)", "4,4",
    ),
    "cosine, divided twice": (
        XY, "t = Transpose(y)  p = MatMul(x, t)  n = ReduceL2<keepdims=1>(x, last)  k0 = ReduceL2<keepdims=1>(y, last) "
        "k = Transpose(k0)  g = Div(p, n)  o = Div(g, k)", "4,4",
    ),
    "cosine, einsum alone": (
        XY, f"p = {SQUARES}(x, y)  n = {SQUARES}(x, x)  k = {SQUARES}(y, y)  g = Mul(n, k)  r = Pow(g, half)  o = Mul(p, r)", "4",
    ),
    "linear attention": (
        XY, "f = Relu(x)  k = Relu(y)  t = Transpose(k)  kv = MatMul(t, y)  n = MatMul(f, kv)  z = ReduceSum<keepdims=1>(k, i0) "
        "zt = Transpose(z)  w = MatMul(f, zt)  c = Add(w, eps)  o = Div(n, c)", "4,64",
    ),
    "linear attention, einsum": (
        XY, 'f = Relu(x)  k = Relu(y)  kv = Einsum<equation="nd,ne->de">(k, y)  z = ReduceSum<keepdims=0>(k, i0) '
        'w = Einsum<equation="nd,d->n">(f, z)  c = Add(w, eps)  r = Reciprocal(c)  o = Einsum<equation="nd,de,n->ne">(f, kv, r)',
        "4,64",
    ),
    "relu attention": (
        XY, "t = Transpose(y)  p = MatMul(x, t)  w = Relu(p)  s = ReduceSum<keepdims=1>(w, last)  c = Add(s, eps)  o = Div(w, c)",
        "4,4",
    ),
    "distances": (
        XY, "t = Transpose(y)  p = MatMul(x, t)  a = ReduceSumSquare<keepdims=1>(x, last) "
        "b0 = ReduceSumSquare<keepdims=1>(y, last)  b = Transpose(b0)  w = Add(a, b)  pp = Mul(p, minus2)  z = Add(w, pp) "
        "o = Sqrt(z)", "4,4",
    ),
    "quadratic form": (
        X, "h = MatMul(x, form)  t = Mul(h, x)  s = ReduceSum<keepdims=1>(t, last)  a = Abs(s)  q = Sqrt(a)  o = Div(x, q)", "4,64",
    ),
    "structural similarity": (
        TWO_IMAGES, " ".join(
            f"{a}m = Conv<pads=[1,1,1,1]>({a}, box)" for a in "xy"
        ) + " " + " ".join(
            f"{a}{b} = Mul({a}, {b})  {a}{b}c = Conv<pads=[1,1,1,1]>({a}{b}, box)  {a}{b}m = Mul({a}m, {b}m) "
            f"{a}{b}v = Sub({a}{b}c, {a}{b}m)" for a, b in ("xx", "yy", "xy")
        ) + " n = Add(xyv, one)  w = Add(xxv, yyv)  v = Add(w, one)  o = Div(n, v)", "1,1,8,8",
    ),
    "length of two": (XY, "a = Mul(x, x)  b = Mul(y, y)  c = Add(a, b)  o = Sqrt(c)", "4,64"),
    "quaternion": (
        XY, "x0, x1 = Split<axis=1, num_outputs=2>(x)  y0, y1 = Split<axis=1, num_outputs=2>(y)  a = Mul(x0, y0)  b = Mul(x1, y1) "
        "c = Add(a, b)  h = Mul(x0, x0)  k = Mul(x1, x1)  g = Add(h, k)  q = Sqrt(g)  o = Div(c, q)", "4,32",
    ),
    "a product by a norm": (XY, "p = Mul(x, y)  n = ReduceL2<keepdims=1>(x, last)  o = Div(p, n)", "4,64"),
    "by a product": (XY, "p = Mul(x, y)  o = Div(x, p)", "4,64"),
    "geometric mean": (XY, "p = Mul(x, y)  a = Abs(p)  o = Sqrt(a)", "4,64"),
    "logarithm": (X, f"s = {SQUARES}(x, x)  o = Log(s)", "4"),
    "dice": (
        XY, "a = Abs(x)  b = Abs(y)  i = Mul(a, b)  s = ReduceSum<keepdims=0>(i, last)  n = Mul(s, two)  aa = Mul(a, a) "
        "bb = Mul(b, b)  sa = ReduceSum<keepdims=0>(aa, last)  sb = ReduceSum<keepdims=0>(bb, last)  w = Add(sa, sb) "
        "o = Div(n, w)", "4",
    ),
    "weight normalisation": (
        X, "t = Mul(tiny, tiny)  s = ReduceSum<keepdims=1>(t, i0)  q = Sqrt(s)  w = Div(tiny, q)  o = MatMul(x, w)", "4,8",
    ),
    "in a branch": (
        X, f"c = Greater(one, zero)  o = If(c)<then_branch = t () => (float[4,64] o1) {{ s = {SQUARES}(x, x)  {ROOT} "
        "o1 = Div(x, q) }, else_branch = e () => (float[4,64] o2) { o2 = Identity(x) }>", "4,64",
    ),
    "the sum in a branch": (
        X, f"c = Greater(one, zero)  s = If(c)<then_branch = t () => (float[4] s1) {{ s1 = {SQUARES}(x, x) }}, "
        f"else_branch = e () => (float[4] s2) {{ s2 = ReduceSumSquare<keepdims=0>(x, last) }}>  {ROOT}  o = Div(x, q)", "4,64",
    ),
    "in turns": (
        X, "n = Constant<value_int=3>()  go = Constant<value = bool {1}>()  o = Loop(n, go, x)<body = b (int64 i, bool c, "
        f"float[4,64] z) => (bool c2, float[4,64] z2) {{ c2 = Identity(c)  s = {SQUARES}(z, z)  {ROOT}  r = Reciprocal(q) "
        "k = Mul(z, r)  z2 = Add(k, z) }>", "4,64",
    ),
    "the sum in turns": (
        X, "n = Constant<value_int=3>()  go = Constant<value = bool {1}>()  w = ReduceSumSquare<keepdims=0>(x, last) "
        f"s = Loop(n, go, w)<body = b (int64 i, bool c, float[4] z) => (bool c2, float[4] z2) {{ c2 = Identity(c) "
        f"e = {SQUARES}(x, x)  z2 = Add(z, e) }}>  {ROOT}  o = Div(x, q)", "4,64",
    ),
    "row by row": (
        X, "s = Scan<num_scan_inputs=1, body = b (float[64] r) => (float z) "
        f'{{ z = Einsum<equation="i,i->">(r, r) }}>(x)  {ROOT}  o = Div(x, q)', "4,64",
    ),
}  # fmt: skip


def built(name: str) -> onnx.ModelProto:
    return model(*FORMS[name])


def model(inputs: str, nodes: str, shape: str) -> onnx.ModelProto:
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({inputs}) => (float[{shape}] o) {{ {nodes} }}'
    )
    used = set(re.findall(r"\w+", nodes))
    made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in WEIGHTS.items() if n in used)
    return made


def in_float64(made: onnx.ModelProto) -> onnx.ModelProto:
    wide = onnx.ModelProto()
    wide.CopyFrom(made)
    for graph in nested_graphs(wide.graph):
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        for tensor in graph.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                values = numpy_helper.to_array(tensor).astype(np.float64)
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for node in nested_nodes(wide.graph.node):
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return wide


def fed(made: onnx.ModelProto, scale: float) -> dict[str, Any]:
    """Values that float16 holds."""
    rng = np.random.default_rng(7)
    return {
        v.name: (rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]) * scale)
        .astype(np.float16)
        .astype(np.float32)
        for v in made.graph.input
    }


def compared(made: onnx.ModelProto, cast: CastModel, scale: float) -> tuple[Any, Any]:
    feeds = fed(made, scale)
    wide = {name: value.astype(np.float64) for name, value in feeds.items()}
    [expected] = ReferenceEvaluator(in_float64(made)).run(None, wide)
    [found] = ReferenceEvaluator(cast.model).run(None, feeds)
    return np.asarray(expected), np.asarray(found)


@pytest.mark.parametrize("scale", [300, 1000])
@pytest.mark.parametrize("name", FORMS)
def test_nothing_that_float16_holds_becomes_zero_infinite_or_wrong(name: str, scale: float) -> None:
    made = built(name)
    cast = cast_model(made, "fp16")
    onnx.checker.check_model(cast.model, full_check=True)
    expected, found = compared(made, cast, scale)
    there = np.abs(expected) < LARGEST
    assert there.any()
    assert np.isfinite(found[there]).all()
    largest = np.abs(expected[there]).max()
    assert np.abs(found - expected)[there].max() < 4e-3 * largest
    assert (found[there & (np.abs(expected) > 1e-3 * largest)] != 0).all()


@pytest.mark.parametrize("name", ["einsum, reciprocal", "cosine", "linear attention"])
def test_bfloat16_keeps_the_same_nodes(name: str) -> None:
    made = built(name)
    assert [k.node for k in cast_model(made, "bf16").kept] == [k.node for k in cast_model(made, "fp16").kept]


# --- what is next to zero or one -----------------------------------------------------------------------------------

EPSILONS = {
    "added": "n = Abs(x)  a = Add(n, {e})  o = Div(y, a)",
    "the larger of two": "n = Abs(x)  a = Max(n, {e})  o = Div(y, a)",
    "a bound": "n = Abs(x)  a = Clip(n, {e})  o = Div(y, a)",
    "selected": "g = Equal(x, zero)  a = Where(g, {e}, x)  o = Div(y, a)",
    "expanded": "n = Abs(x)  k = Expand({e}, rows)  a = Add(n, k)  o = Div(y, a)",
    "under a root": "n = Abs(x)  a = Add(n, {e})  q = Sqrt(a)  o = Div(y, q)",
}


@pytest.mark.parametrize("epsilon", ["e8", "e10", "e12"])
@pytest.mark.parametrize("name", EPSILONS)
def test_a_row_of_zeros_is_not_divided_by_zero(name: str, epsilon: str) -> None:
    made = model(XY, EPSILONS[name].format(e=epsilon), "4,64")
    cast = cast_model(made, "fp16")
    zeros = dict.fromkeys("xy", np.zeros((4, 64), np.float32))
    assert (ReferenceEvaluator(cast.model).run(None, zeros)[0] == 0).all()  # 0 / 0 is NaN


def test_a_bound_just_below_one_stays_below_it() -> None:
    # in float16 it is 1, and the logarithm infinite
    made = model(XY, "p = Sigmoid(x)  c = Clip(p, e8, near1)  k = Sub(one, c)  o = Log(k)", "4,64")
    cast = cast_model(made, "fp16")
    reasons = {k.operator: k.reason for k in cast.kept}
    assert reasons["Clip"] == "its constant e8 (1e-08) would become zero"
    feeds = dict.fromkeys("xy", np.full((4, 64), 10, np.float32))  # a sigmoid of 1 in float16
    [found] = ReferenceEvaluator(cast.model).run(None, feeds)
    np.testing.assert_allclose(found, np.log(np.float32(1) - np.float32(1 - 1e-7)), rtol=1e-3)
    above = cast_model(
        model(XY, "p = Sigmoid(x)  c = Min(p, near1)  k = Sub(one, c)  o = Log(k)", "4,64"), "fp16"
    )
    assert "would become 1" in {k.operator: k.reason for k in above.kept}["Min"]


# --- and what stays narrow -----------------------------------------------------------------------------------------

NORMS = {
    "LayerNorm": "m{k} = ReduceMean<keepdims=1>({x}, last)  c{k} = Sub({x}, m{k})  s{k} = Mul(c{k}, c{k}) "
    "v{k} = ReduceMean<keepdims=1>(s{k}, last)  a{k} = Add(v{k}, eps)  q{k} = Sqrt(a{k})  n{k} = Div(c{k}, q{k}) "
    "g{k} = Mul(n{k}, gain)  {y} = Add(g{k}, gain) ",
    "RMSNorm": "s{k} = Mul({x}, {x})  v{k} = ReduceMean<keepdims=1>(s{k}, last)  a{k} = Add(v{k}, eps)  q{k} = Sqrt(a{k}) "
    "r{k} = Reciprocal(q{k})  n{k} = Mul({x}, r{k})  {y} = Mul(n{k}, gain) ",
    "RMSNorm, einsum": 's{k} = Einsum<equation="abc,abc->ab">({x}, {x})  u{k} = Unsqueeze(s{k}, last)  a{k} = Add(u{k}, eps) '
    "q{k} = Sqrt(a{k})  r{k} = Div(one, q{k})  n{k} = Mul({x}, r{k})  {y} = Mul(n{k}, gain) ",
}
GATED = (
    "i{k} = MatMul({x}, up)  w{k} = Sigmoid(i{k})  e{k} = Mul(i{k}, w{k})  j{k} = MatMul({x}, gate)  h{k} = Mul(e{k}, j{k}) "
    "{y} = MatMul(h{k}, down) "
)
ATTENTION = (
    "Q{k} = MatMul({x}, wq)  K{k} = MatMul({x}, wk)  V{k} = MatMul({x}, wv)  T{k} = Transpose<perm=[0,2,1]>(K{k}) "
    "L{k} = MatMul(Q{k}, T{k})  S{k} = Mul(L{k}, eighth)  P{k} = Softmax(S{k})  X{k} = MatMul(P{k}, V{k})  {y} = MatMul(X{k}, wo) "
)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("norm", NORMS)
def test_layers_attention_and_the_sums_between_them_are_cast(norm: str, order: str) -> None:
    """Of a transformer only norms and softmax stay float32: every product, gate and residual sum is narrow."""
    before, after = NORMS[norm], NORMS[norm]
    if order == "before":
        steps = [
            before.format(x="x", y="y0", k=0), ATTENTION.format(x="y0", y="z0", k=0), "res0 = Add(x, z0) ",
            before.format(x="res0", y="y1", k=1), GATED.format(x="y1", y="z1", k=1), "res1 = Add(res0, z1) ",
            before.format(x="res1", y="o", k=2),
        ]  # fmt: skip
    else:
        steps = [
            ATTENTION.format(x="x", y="z0", k=0), "res0 = Add(x, z0) ", after.format(x="res0", y="y0", k=0),
            GATED.format(x="y0", y="z1", k=1), "res1 = Add(y0, z1) ", after.format(x="res1", y="o", k=1),
        ]  # fmt: skip
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[2,6,64] x) => (float[2,6,64] o) {{ {" ".join(steps)} }}'
    )
    square = {n: f32(64, 64, scale=0.1) for n in ("wq", "wk", "wv", "wo")}
    layers = {"up": f32(64, 96, scale=0.1), "gate": f32(64, 96, scale=0.1), "down": f32(96, 64, scale=0.1)}
    held = {**square, **layers, "gain": f32(64), "eighth": number(0.125)}
    held |= {n: WEIGHTS[n] for n in ("eps", "last", "one")}
    made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in held.items() if n in str(steps))
    cast = cast_model(made, "fp16")
    wide = set(
        re.findall(r"\b([mcsuvaqrn]\d) = ", "".join(NORMS[norm].format(x="", y="", k=k) for k in range(3)))
    )
    assert not {k.node: k.reason for k in cast.kept if k.node not in wide | {"P0"}}
    assert {"s0", "q0", "P0"} <= {k.node for k in cast.kept}


def test_a_function_that_holds_the_sum_is_one_too() -> None:
    body = helper.make_function(
        "acme", "Energy", ["v"], ["e"],
        [helper.make_node("Einsum", ["v", "v"], ["e"], equation="bi,bi->b")], [helper.make_opsetid("", 18)],
    )  # fmt: skip
    made = built("einsum, divided")
    [einsum] = [n for n in made.graph.node if n.op_type == "Einsum"]
    einsum.CopyFrom(helper.make_node("Energy", ["x"], ["s"], domain="acme"))
    made.functions.append(body)
    made.opset_import.append(helper.make_opsetid("acme", 1))
    expected, found = compared(built("einsum, divided"), cast_model(made, "fp16"), 1000)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
