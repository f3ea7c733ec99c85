"""What float16 cannot hold stays float32 wherever it goes: masks, positions, constants of other types, numbers in nodes.

Judged by onnx's reference, which computes each node in the type it has; ONNX Runtime takes casts away on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from deployops.trt_plugins.engines.casting.cast_model import CastModel, cast_model
from deployops.trt_plugins.engines.casting.narrow_weights import narrowed

LOWEST = np.float32(np.finfo(np.float32).min)
X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
IO = "g (float[4,4] x) => (float[4,4] y)"
END = "a = Add(x, m)  y = Softmax(a)"


def model(
    text: str, weights: Mapping[str, Any] | None = None, opset: int = 20, ir: int = 9
) -> onnx.ModelProto:
    made = parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]>\n{text}')
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), n) for n, v in (weights or {}).items()
    )
    return made


def same(made: onnx.ModelProto, bound: float = 5e-3, **feeds: Any) -> CastModel:
    """Cast it, and see that the reference computes the same within `bound` of the outputs' scale."""
    cast = cast_model(made, "fp16")
    onnx.checker.check_model(cast.model, full_check=True)
    with np.errstate(all="ignore"):
        was = ReferenceEvaluator(made).run(None, feeds)
        now = ReferenceEvaluator(cast.model).run(None, feeds)
    for a, b in zip(was, now, strict=True):
        assert a.dtype == b.dtype
        assert np.isfinite(a).all()
        np.testing.assert_allclose(b, a, rtol=0, atol=bound * float(np.abs(a).max()))
    return cast


def kept(cast: CastModel) -> dict[str, str]:
    return {k.operator: k.reason for k in cast.kept}


# --- masks ---------------------------------------------------------------------------------------------------------

FULL = np.full((4, 4), LOWEST)
ZERO = np.zeros((4, 4), np.float32)
MASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "Trilu": (
        "s = Shape(x)  f = Expand(low, s)  t = Trilu<upper=1>(f, one)  m = Mul(t, some)",
        {"low": LOWEST, "one": np.int64(1), "some": np.tri(4, 4, -1).T.astype(np.float32)},
    ),
    "Pad": (
        "h = Slice(zero, st, en, ax)  m = Pad(h, pads, low)",
        {
            "zero": ZERO, "st": np.int64([0]), "en": np.int64([2]), "ax": np.int64([1]),
            "pads": np.int64([0, 0, 0, 2]), "low": LOWEST,
        },
    ),
    "GatherElements": ("m = GatherElements<axis=1>(full, i)", {"full": FULL, "i": np.zeros((4, 4), np.int64)}),
    "ScatterElements": (
        "m = ScatterElements<axis=1>(zero, i, u)",
        {"zero": ZERO, "i": np.int64([[1], [2], [3], [0]]), "u": np.full((4, 1), LOWEST)},
    ),
    "ScatterND, Transpose, DepthToSpace": (
        "n = ScatterND(zero, i, u)  t = Transpose(n)  r = Reshape(t, s4)  d = DepthToSpace<blocksize=1>(r)  m = Reshape(d, s2)",
        {
            "zero": ZERO, "i": np.int64([[1]]), "u": np.full((1, 4), LOWEST), "s4": np.int64([1, 1, 4, 4]),
            "s2": np.int64([4, 4]),
        },
    ),
    "GatherND": (
        "m = GatherND(both, i)",
        {"both": np.stack([FULL[0], ZERO[0]]), "i": np.int64([[0], [1], [0], [1]])},
    ),
    "a sequence": ("s = SequenceConstruct(full, x)  m = SequenceAt(s, k)", {"full": FULL, "k": np.int64(0)}),
    "float64": ("m = Cast<to=1>(d)", {"d": np.full((4, 4), -1e9)}),
    "through float64": ("h = Add(zero, full)  d = Cast<to=11>(h)  m = Cast<to=1>(d)", {"zero": ZERO, "full": FULL}),
    "whole numbers": ("u = Unsqueeze(k, ax)  m = Cast<to=1>(u)", {"k": np.int64(-100_000), "ax": np.int64([0])}),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_of_lowest_values_is_float32_up_to_the_softmax(name: str) -> None:
    nodes, weights = MASKS[name]
    cast = same(model(f"{IO} {{ {nodes}  {END} }}", weights), x=X)
    assert kept(cast)["Add"].startswith(("its values come", "its constant"))


@pytest.mark.parametrize("branch", [True, False])
def test_a_mask_out_of_a_branch(branch: bool) -> None:
    made = model(
        """g (float[4,4] x, bool c) => (float[4,4] y) {
          m = If(c) <then_branch = t () => (float[4,4] p) { p = Identity(full) },
                     else_branch = e () => (float[4,4] q) { q = Mul(x, x) }>
          a = Add(x, m)  y = Softmax(a) }""",
        {"full": FULL},
    )
    same(made, x=X, c=np.array(branch))


def test_a_causal_mask_of_dynamic_length_from_torch(tmp_path: Any) -> None:
    """As Hugging Face's models make it: full, triu, times what is visible."""
    import torch

    import deployops

    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            n = x.shape[1]
            mask = torch.triu(torch.full((n, n), fill_value=torch.finfo(torch.float32).min), diagonal=1)
            mask = mask * (torch.arange(n) > positions.reshape(-1, 1))
            return torch.softmax(x * 0.5 + mask[None], -1)

    out = tmp_path / "masked.onnx"
    deployops.export_model(Masked(), ["x:float32[1,s=2..64@8,s]", "positions:int64[s]"], out=out)
    cast = same(onnx.load(out), x=np.ones((1, 16, 16), np.float32), positions=np.arange(16))
    assert "Trilu" in kept(cast)


def test_a_bound_that_nothing_reaches_does_not_spread() -> None:
    for text, weights, opset in (
        ("c = Clip(x, zero, top)", {"zero": np.float32(0), "top": -LOWEST}, 20),
        ("c = Clip<min = 0.0, max = 3.4028234e38>(x)", {}, 10),
    ):
        made = model(
            f"{IO} {{ {text}  y = MatMul(c, w) }}", weights | {"w": np.eye(4, dtype=np.float32)}, opset
        )
        cast = same(made, x=X)
        assert "MatMul" not in kept(cast)
        assert not cast.warnings


def test_initializers_that_are_inputs_too_are_constants() -> None:
    for value in (1e6, 1e-9):
        made = model(
            "g (float[4,4] x, float c) => (float[4,4] y) { p = Mul(x, c)  y = Div(p, c) }",
            {"c": np.float32(value)},
            opset=7,
            ir=3,
        )
        cast = same(made, x=X)
        assert set(kept(cast)) == {"Mul", "Div"}
    plain = model(
        "g (float[4,4] x, float c) => (float[4,4] y) { y = Mul(x, c) }", {"c": np.float32(0.3)}, opset=7, ir=3
    )
    cast = same(plain, x=X)
    assert not cast.kept
    assert {t.name for t in cast.model.graph.initializer} == {"c", "c_float16"}


# --- positions -----------------------------------------------------------------------------------------------------

ODD = np.arange(4097, 4105, 2)  # float16 has even numbers only from 2,048 on, and every fourth from 4,096


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ("f = CastLike(p, one)", {"one": np.float32(1)}),
        ("d = Cast<to=11>(p)  f = Cast<to=1>(d)", {}),
        ("q = CastLike(p, one)  d = Identity(q)  f = Cast<to=1>(d)", {"one": np.float64(1)}),
        ("z = Mul(p, zero)  f = Cast<to=1>(k)", {"zero": np.int64(0), "k": ODD}),
        ("z = Mul(p, zero)  d = Cast<to=11>(k)  f = Cast<to=1>(d)", {"zero": np.int64(0), "k": ODD}),
        ("f = Gather(table, p)", {"table": np.arange(6000, dtype=np.float32)}),
        ("c = Cast<to=1>(p)  f = Pad(c, pads)", {"pads": np.int64([0, 0])}),
    ],
)
def test_positions_come_to_the_sine_exactly(nodes: str, weights: dict[str, Any]) -> None:
    made = model(
        f"g (int64[4] p, float[4] x) => (float[4] y) {{ {nodes}  a = Mul(f, unit)  s = Sin(a)  y = Mul(s, x) }}",
        weights | {"unit": np.float32(1)},
    )
    same(made, p=ODD, x=np.ones(4, np.float32))


def test_a_range_of_floats_counts_positions() -> None:
    made = model(
        "g (float n) => (float[k] y) { r = Range(zero, n, one)  a = Mul(r, one)  s = Sin(a)  y = Mul(s, half) }",
        {"zero": np.float32(0), "one": np.float32(1), "half": np.float32(0.5)},
    )
    cast = same(made, n=np.float32(5000))
    assert "positions" in kept(cast)["Range"]


@pytest.mark.parametrize("compare", ["Less", "Equal", "GreaterOrEqual"])
def test_a_mask_of_lengths_compares_in_float32(compare: str) -> None:
    for weights, inputs, nodes in (
        ({}, "int64[1,4] p, int64 n", "f = Cast<to=1>(p)  l = Cast<to=1>(n)"),
        ({}, "int64[1,4] p, float l", "f = Cast<to=1>(p)"),
        ({"f": np.arange(4095, 4099, dtype=np.float32)[None]}, "int64[1,4] p, float l", "q = Identity(p)"),
    ):
        made = model(
            f"g (float[1,4] x, {inputs}) => (float[1,4] y) {{ {nodes}  m = {compare}(f, l)  y = Where(m, x, zero) }}",
            weights | {"zero": np.float32(0)},
        )
        length = {"n": np.int64(4097)} if "int64 n" in inputs else {"l": np.float32(4097)}
        cast = same(made, x=np.ones((1, 4), np.float32), p=np.arange(4095, 4099)[None], **length)
        assert "positions" in kept(cast)[compare]


def test_differences_and_quotients_of_counts() -> None:
    made = model("g (int64[4] p, float[4] q) => (float[4] y) { f = Cast<to=1>(p)  y = Sub(f, q) }", opset=20)
    same(made, p=ODD, q=np.float32([4090] * 4))
    mean = model(
        "g (float[400,300] x) => (float[400,300] y) { n = Size(x)  f = Cast<to=1>(n)  y = Div(x, f) }"
    )
    same(mean, x=np.full((400, 300), 6e4, np.float32))


def test_rounded_whole_numbers_are_counted() -> None:
    weight = np.diag(np.float32([1, 3001, 3.5, 2048]))
    cast = cast_model(model(f"{IO} {{ y = MatMul(x, w) }}", {"w": weight}), "fp16")
    assert cast.warnings == ("weights with whole numbers beyond 2,048 that float16 rounds: w 1 of 16",)
    found = narrowed(np.float32([2048, 2049, 2050, 3000.5, 70000, np.inf, np.nan]), "fp16")
    assert (found.rounded, found.whole) == (1, False)
    assert narrowed(np.float32([1, 257]), "bf16").whole


# --- numbers that are too small, or in the node -----------------------------------------------------------------------


def test_float64_stays_wide_when_it_comes_back() -> None:
    made = model(
        "g (double[4,4] d) => (float[4,4] y) { f = Cast<to=1>(d)  y = Mul(f, k) }", {"k": np.float32(1e-3)}
    )
    same(made, d=X.astype(np.float64) * 1e7)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_epsilon_is_there_when_all_else_is_zero(kind: Any) -> None:
    cast_it = "e = Cast<to=1>(eps)" if kind is np.float64 else "e = Identity(eps)"
    made = model(
        f"{IO} {{ {cast_it}  b = Abs(x)  s = Add(b, e)  q = Div(x, s)  y = Add(q, one) }}",
        {"eps": kind(1e-12), "one": np.float32(1)},
    )
    same(made, x=ZERO)


def test_a_divisor_that_becomes_zero() -> None:
    made = model(f"{IO} {{ y = Div(x, d) }}", {"d": np.float32([1, 1e-9, 1, 1])})
    assert "divides by" in kept(same(made, x=X))["Div"]


@pytest.mark.parametrize(
    ("nodes", "weights", "opset"),
    [
        ("m = Pad<pads = [0,0,0,0], value = -1e9>(x)  y = Softmax(m)", {}, 10),
        ("e = Elu<alpha = 1e9>(x)  y = Mul(e, k)", {"k": np.float32(1e-3)}, 20),
        ("c = Clip<min = 1e6, max = 2e6>(x)  d = Sub(c, k)  y = Abs(d)", {"k": np.float32(1.5e6)}, 10),
        ("p = Gemm<alpha = 1e6>(x, w)  y = Mul(p, k)", {"w": np.eye(4, dtype=np.float32), "k": np.float32(1e-3)}, 20),
        ("p = Gemm<alpha = 1e-9>(x, w)  y = Mul(p, k)", {"w": np.eye(4, dtype=np.float32), "k": np.float32(1e9)}, 20),
    ],
)  # fmt: skip
def test_numbers_in_attributes(nodes: str, weights: dict[str, Any], opset: int) -> None:
    cast = same(model(f"{IO} {{ {nodes} }}", weights, opset), x=X)
    assert any("its attribute" in reason for reason in kept(cast).values())


# --- sums ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ("y = ScatterElements<reduction = \"add\">(zero, i, a)", {"i": np.zeros(5000, np.int64)}),
        ("y = ScatterND<reduction = \"add\">(zero, i, a)", {"i": np.zeros((5000, 1), np.int64)}),
        ("s = Einsum<equation = \"i->\">(a)  y = Reshape(s, sh)", {"sh": np.int64([1])}),
    ],
)  # fmt: skip
def test_sums_that_an_attribute_asks_for(nodes: str, weights: dict[str, Any]) -> None:
    made = model(
        f"g (float[5000] x) => (float[1] y) {{ a = Mul(x, half)  {nodes} }}",
        weights | {"half": np.float32(0.5), "zero": np.zeros(1, np.float32)},
    )
    same(made, x=np.full(5000, 2, np.float32))


def test_a_product_of_matrices_as_einsum_is_cast() -> None:
    made = model(f'{IO} {{ y = Einsum<equation = "ij,jk->ik">(x, w) }}', {"w": np.float32(np.eye(4) + 0.3)})
    assert not same(made, x=X).kept
