"""The elementwise kernels against formulas in float64 (mpmath for float64): accuracy, shapes, edges, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor

from deployops.native.cpu_library import KernelError
from deployops.symbolic.operators.add_relu import add_relu
from deployops.symbolic.operators.cube_root import cube_root
from deployops.symbolic.operators.relu import relu
from deployops.symbolic.operators.scale_bias_act import scale_bias_act
from deployops.symbolic.operators.sigmoid import sigmoid
from deployops.symbolic.operators.swish import swish

Kernel = Callable[..., list[Tensor]]

HALVES = [torch.float16, torch.bfloat16]
DTYPES = [torch.float32, torch.float64, *HALVES]
INF, NAN = float("inf"), float("nan")

_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_LOWEST = {torch.float16: -24, torch.bfloat16: -133, torch.float32: -149, torch.float64: -1074}


# --- how far off ----------------------------------------------------------------------------------------------


def _spacing(want: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance of neighbouring numbers of a dtype, at numbers in float64."""
    exponent = torch.frexp(want)[1] - _DIGITS[dtype]
    return torch.ldexp(torch.ones_like(want), exponent.clamp(min=_LOWEST[dtype]))


def _assert_close(got: Tensor, want: Tensor, bound: float, slack: Tensor | None = None) -> None:
    """`got` is within `bound` ULP of `want`, which is in float64; `slack` comes on top. NaN, ∞ and the signs of zeros are what they
    should be."""
    assert got.shape == want.shape
    rounded = want.to(got.dtype)
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got[got.isinf()], rounded[rounded.isinf()])
    finite = rounded.isfinite()
    assert torch.equal(got.isfinite(), finite)
    zero = want == 0
    assert torch.equal(got.signbit()[zero], want.signbit()[zero]), "the sign of a zero"
    w, g = want[finite], got[finite].double()
    if not len(w):
        return
    allowed = bound * _spacing(w, got.dtype)
    if slack is not None:
        allowed = allowed + slack[finite]
    excess = (g - w).abs() - allowed
    k = int(excess.argmax())
    assert excess[k] <= 0, f"{float(g[k])!r} where {float(w[k])!r} is right"


def _assert_close_exactly(got: Tensor, want: Sequence[Any], bound: float) -> None:
    """The same for float64 results; `want` are mpmath's numbers."""
    with mpmath.workdps(60):
        for g, w in zip(got.flatten().tolist(), want, strict=True):
            ulp = mpmath.mpf(2) ** max(mpmath.frexp(w)[1] - 53, -1074)
            assert abs(mpmath.mpf(g) - w) <= bound * ulp, f"{g!r} where {mpmath.nstr(w, 20)} is right"


# --- formulas -------------------------------------------------------------------------------------------------

_K = float(2 * mpmath.sqrt(2 / mpmath.pi))


def _sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def _cube_root(x: Tensor) -> Tensor:
    root = x.abs() ** (1 / 3)
    root = torch.where(x.isfinite() & (x != 0), root - (root - x.abs() / (root * root)) / 3, root)
    return torch.copysign(root, x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda z: z,
    "relu": lambda z: torch.where(z < 0, torch.zeros_like(z), z),
    "leaky_relu": lambda z: torch.where(z > 0, z, z * 0.25),
    "sigmoid": _sigmoid,
    "tanh": torch.tanh,
    "silu": lambda z: z * _sigmoid(z),
    "gelu": lambda z: z * (torch.special.erfc(z * -(0.5**0.5)) / 2),
    "gelu_tanh": lambda z: z * _sigmoid(_K * (z * (1 + 0.044715 * (z * z)))),
}


def _mp_sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


_MP_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda z: z,
    "relu": lambda z: max(z, mpmath.mpf(0)),
    "leaky_relu": lambda z: z if z > 0 else z / 4,
    "sigmoid": _mp_sigmoid,
    "tanh": mpmath.tanh,
    "silu": lambda z: z * _mp_sigmoid(z),
    "gelu": lambda z: z * mpmath.erfc(-z / mpmath.sqrt(2)) / 2,
    "gelu_tanh": lambda z: (
        z * _mp_sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (z + mpmath.mpf("0.044715") * z**3))
    ),
}

# ULP of float32 and of float64; what the headers state.
_BOUNDS = {
    "none": (0.5, 0.5), "relu": (0.5, 0.5), "leaky_relu": (0.5, 0.5), "sigmoid": (2.5, 2.5), "tanh": (2.7, 2.7),
    "silu": (2.5, 2.5), "gelu": (4.5, 5.5), "gelu_tanh": (12, 25),
}  # fmt: skip
_PORTABLE_BOUNDS = _BOUNDS | {"gelu": (4.5, 7), "gelu_tanh": (50, 400)}


def _bound(activation: str, dtype: torch.dtype, level: str) -> float:
    if dtype in HALVES:
        return 0.55
    bounds = _PORTABLE_BOUNDS if level == "portable" else _BOUNDS
    return bounds[activation][dtype == torch.float64]


def _draw(*shape: int, dtype: torch.dtype, scale: float = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def _edges(dtype: torch.dtype) -> Tensor:
    info = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1.0, -1.0, 88.0, -88.0, -100.0, info.tiny, -info.tiny, info.smallest_normal / 4]
    numbers += [info.eps, info.max, -info.max, INF, -INF, NAN]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


# --- sizes ----------------------------------------------------------------------------------------------------

_UNARY: dict[str, tuple[Any, Callable[[Tensor], Tensor], str]] = {
    "relu": (relu, _ACTIVATIONS["relu"], "relu"),
    "sigmoid": (sigmoid, _sigmoid, "sigmoid"),
    "cube_root": (cube_root, _cube_root, ""),
    "swish": (lambda kernel, x, **k: kernel(swish, x, torch.tensor(1.0, dtype=x.dtype), **k),
              _ACTIVATIONS["silu"], "silu"),
}  # fmt: skip


def _run_unary(kernel: Kernel, name: str, x: Tensor, **how: Any) -> Tensor:
    op = _UNARY[name][0]
    return (kernel(op, x, **how) if name != "swish" else op(kernel, x, **how))[0]


def _assert_unary(name: str, x: Tensor, got: Tensor, level: str) -> None:
    formula, bound = _UNARY[name][1], _UNARY[name][2]
    # What the formula itself is off in float64 counts here, not the float64 bound: that one is tested with mpmath.
    slack = 4.0 if x.dtype == torch.float64 else 0.0
    limit = 0.5001 if name == "cube_root" else _bound(bound, x.dtype, level)
    _assert_close(got, formula(x.double()), limit + slack)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _UNARY)
def test_every_size_around_the_vectors(name: str, dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    numbers = _draw(1100, dtype=dtype)
    for n in [*range(71), 127, 128, 129, 1000, 1023]:
        # From the second element on: not aligned to a vector.
        for x in (numbers[:n], numbers[1 : n + 1]):
            _assert_unary(name, x, _run_unary(cpu_kernel, name, x, level=level), level)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _UNARY)
def test_sizes_that_are_divided_among_threads(
    name: str, dtype: torch.dtype, threads: int, level: str, cpu_kernel: Kernel
) -> None:
    for shape in ((70_001,), (3, 5, 7, 1001)):
        x = _draw(*shape, dtype=dtype, scale=20)
        got = _run_unary(cpu_kernel, name, x, level=level, threads=threads)
        _assert_unary(name, x, got, level)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (4, 0), (1,), (1, 1, 1), (2,) * 10, (1,) * 15 + (3,)])
def test_shapes_of_any_rank(shape: tuple[int, ...], cpu_kernel: Kernel) -> None:
    x = _draw(*shape, dtype=torch.float32)
    for name in _UNARY:
        got = _run_unary(cpu_kernel, name, x)
        assert got.shape == shape
        _assert_unary(name, x, got, "avx512")
    y = _draw(*shape, dtype=torch.float32, seed=1)
    got = cpu_kernel(add_relu, x, y)[0]
    _assert_close(got, torch.relu(x.double() + y.double()), 0.5001)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_outputs_that_are_written_past_the_caches(
    dtype: torch.dtype, threads: int, level: str, cpu_kernel: Kernel
) -> None:
    n = (1 << 25) // dtype.itemsize + 1003
    x = _draw(1 << 16, dtype=dtype).repeat(n // (1 << 16) + 1)[:n]
    how = {"threads": threads, "level": level}
    assert torch.equal(cpu_kernel(relu, x, **how)[0], torch.relu(x))
    assert torch.equal(cpu_kernel(add_relu, x, x.flip(0), **how)[0], torch.relu(x + x.flip(0)))
    # A number is the same wherever it stands, so that the activations of a few are those of all.
    few = cpu_kernel(cube_root, x[: 1 << 16], level=level)[0].repeat(n // (1 << 16) + 1)[:n]
    assert torch.equal(cpu_kernel(cube_root, x, **how)[0], few)
    # Short rows, and long ones, neither aligned.
    for channels, inner in ((7, 131), (3, n // 9 - 1)):
        whole = n // (channels * inner)
        z = x[: whole * channels * inner].reshape(whole, channels, inner)
        scale = 2.0 ** torch.arange(channels, dtype=torch.float64).to(dtype)
        got = cpu_kernel(scale_bias_act, z, scale, None, "none", 1, **how)[0]
        assert torch.equal(got, z * scale.reshape(-1, 1))


# --- accuracy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
def test_cube_root_of_every_half_is_rounded_correctly(
    dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    _assert_close(cpu_kernel(cube_root, x, level=level)[0], _cube_root(x.double()), 0.5 + 1e-9)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_activations_of_every_half(
    activation: str, dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype).reshape(-1, 1)
    one = torch.ones(1, dtype=dtype)
    got = cpu_kernel(scale_bias_act, x, one, None, activation, slope=0.25, level=level)[0]
    _assert_close(got, _ACTIVATIONS[activation](x.double()), _bound(activation, dtype, level))


def test_cube_root_of_floats_is_rounded_correctly(level: str, cpu_kernel: Kernel) -> None:
    # Every exponent, subnormals among them; the mantissas go with the bits.
    x = torch.arange(-(1 << 31), 1 << 31, 4099, dtype=torch.int64).to(torch.int32).view(torch.float32)
    _assert_close(cpu_kernel(cube_root, x, level=level)[0], _cube_root(x.double()), 0.5 + 1e-6)
    # The number that comes closest to a tie: 1.8e-8 ULP.
    closest = torch.tensor([float.fromhex("0x1.06a76ap+1")])
    assert cpu_kernel(cube_root, closest, level=level)[0].item() == float.fromhex("0x1.454f78p+0")


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_activations_of_floats(activation: str, level: str, cpu_kernel: Kernel) -> None:
    spread = torch.arange(-(1 << 31), 1 << 31, 40009, dtype=torch.int64).to(torch.int32).view(torch.float32)
    x = torch.cat([spread, *(_draw(20_000, dtype=torch.float32, scale=s) for s in (0.1, 1, 5, 40))])
    one = torch.ones(1)
    got = cpu_kernel(scale_bias_act, x.reshape(1, 1, -1), one, None, activation, slope=0.25, level=level)[0]
    want = _ACTIVATIONS[activation](x.double())
    _assert_close(got.flatten(), want, _bound(activation, torch.float32, level))


@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_activations_of_doubles(activation: str, level: str, cpu_kernel: Kernel) -> None:
    x = torch.cat([_draw(100, dtype=torch.float64, scale=s) for s in (1e-3, 1, 8, 200)])
    one = torch.ones(1, dtype=torch.float64)
    got = cpu_kernel(scale_bias_act, x.reshape(-1, 1), one, None, activation, slope=0.25, level=level)[0]
    with mpmath.workdps(60):
        want = [_MP_ACTIVATIONS[activation](mpmath.mpf(v)) for v in x.tolist()]
    _assert_close_exactly(got, want, _bound(activation, torch.float64, level))


def test_sigmoid_swish_and_cube_root_of_doubles(level: str, cpu_kernel: Kernel) -> None:
    x = torch.cat([_draw(100, dtype=torch.float64, scale=s) for s in (1e-300, 1e-3, 1, 8, 200)])
    numbers = [mpmath.mpf(v) for v in x.tolist()]
    beta = mpmath.mpf(0.7)
    with mpmath.workdps(60):
        _assert_close_exactly(cpu_kernel(sigmoid, x, level=level)[0], [_mp_sigmoid(v) for v in numbers], 2.5)
        got = cpu_kernel(swish, x, torch.tensor(0.7, dtype=torch.float64), level=level)[0]
        _assert_close_exactly(got, [v * _mp_sigmoid(beta * v) for v in numbers], 2.5)
        roots = [mpmath.sign(v) * mpmath.cbrt(abs(v)) for v in numbers]
        _assert_close_exactly(cpu_kernel(cube_root, x, level=level)[0], roots, 0.5001)


@pytest.mark.parametrize("beta", [1.0, -2.5, 0.3, 1e-3, 30.0])
def test_swish_keeps_its_digits_where_the_product_is_large(
    beta: float, level: str, cpu_kernel: Kernel
) -> None:
    x = _draw(20_000, dtype=torch.float32, scale=90 / max(1, abs(beta)))
    b = torch.tensor(beta)
    got = cpu_kernel(swish, x, b, level=level)[0]
    _assert_close(got, x.double() * _sigmoid(b.double() * x.double()), 2.5)


def test_swish_of_huge_numbers_with_a_tiny_beta(level: str, cpu_kernel: Kernel) -> None:
    # sigmoid(beta·x) alone would be 0 in float32.
    x = torch.tensor([-3e38, -3e38, -1e38, 3e38])
    for beta in (4e-37, 5.5e-37, 6.2e-37):
        b = torch.tensor(beta)
        got = cpu_kernel(swish, x, b, level=level)[0]
        _assert_close(got, x.double() * _sigmoid(b.double() * x.double()), 2.5)


def test_small_sigmoids_are_not_zero(level: str, cpu_kernel: Kernel) -> None:
    got = cpu_kernel(sigmoid, torch.tensor([-100.0, -103.0]), level=level)[0]
    _assert_close(got, _sigmoid(torch.tensor([-100.0, -103.0], dtype=torch.float64)), 1)
    assert (got > 0).all()


# --- edges ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", _UNARY)
def test_edges(name: str, dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    x = _edges(dtype)
    for reps in (1, 5):  # alone in a vector, and in whole ones
        many = x.repeat(reps)
        _assert_unary(name, many, _run_unary(cpu_kernel, name, many, level=level), level)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cube_root_keeps_the_sign_of_zero(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    got = cpu_kernel(cube_root, torch.tensor([0.0, -0.0], dtype=dtype), level=level)[0]
    assert got.tolist() == [0.0, 0.0]
    assert got.signbit().tolist() == [False, True]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_edges_of_activations(activation: str, dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    x = _edges(dtype)
    got = cpu_kernel(
        scale_bias_act,
        x.reshape(-1, 1),
        torch.ones(1, dtype=dtype),
        None,
        activation,
        slope=0.25,
        level=level,
    )[0]
    # float64's own formula overflows and loses digits at its edges; a few ULP more.
    more = 60 if dtype == torch.float64 else 0
    want = _ACTIVATIONS[activation](x.double())
    _assert_close(got.flatten(), want, _bound(activation, dtype, level) + more)


def test_add_relu_of_opposite_infinities_is_nan(level: str, cpu_kernel: Kernel) -> None:
    x = torch.tensor([INF, -INF, INF, NAN, 1.0, -INF])
    y = torch.tensor([-INF, INF, INF, 1.0, NAN, -INF])
    want = torch.tensor([NAN, NAN, INF, NAN, NAN, 0.0], dtype=torch.float64)
    _assert_close(cpu_kernel(add_relu, x, y, level=level)[0], want, 0)


@pytest.mark.parametrize("slope", [0.0, -2.0, 0.01, INF, NAN])
def test_any_slope_of_leaky_relu(slope: float, level: str, cpu_kernel: Kernel) -> None:
    x = torch.tensor([[-2.0], [0.0], [3.0], [NAN], [-INF]])
    got = cpu_kernel(scale_bias_act, x, torch.ones(1), None, "leaky_relu", slope=slope, level=level)[0]
    z = x.double()
    _assert_close(got, torch.where(z > 0, z, z * slope), 1)


# --- broadcasting and channels --------------------------------------------------------------------------------

_PAIRS = [
    ((), ()), ((5,), ()), ((), (5,)), ((1,), (5,)), ((70,), (70,)), ((3, 5), (5,)), ((5,), (3, 5)), ((3, 1), (1, 5)),
    ((3, 5), (3, 1)), ((2, 3, 4), (3, 1)), ((2, 3, 1), (4,)), ((2, 1, 4), (3, 1)), ((1, 3, 1, 5), (2, 1, 4, 1)),
    ((4, 1, 6, 1, 3), (5, 1, 2, 1)), ((0, 5), (1, 5)), ((0, 5), (5,)), ((1, 0), (3, 1)), ((3, 300), (300,)),
    ((3, 300), (3, 1)), ((2, 1, 300), (2, 7, 300)), ((2, 7, 1), (2, 7, 300)), ((64, 1), (1, 1000)), ((9, 1, 40), (33, 1)),
    ((2000, 3), (3,)), ((2000, 3), (2000, 1)), ((2, 3, 129), (3, 1)), ((30, 64, 49), (64, 1)), ((2, 1500), (1500,)),
    ((2, 1500, 2), (1500, 1)), ((1, 2) * 7, (2, 1) * 7), ((2,) * 12, (1, 2) * 6), ((40, 1, 50), (40, 60, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), _PAIRS)
def test_add_relu_broadcasts(a: tuple[int, ...], b: tuple[int, ...], level: str, cpu_kernel: Kernel) -> None:
    for dtype, threads in itertools.product(DTYPES, (1, 2)):
        x, y = _draw(*a, dtype=dtype), _draw(*b, dtype=dtype, seed=1)
        got = cpu_kernel(add_relu, x, y, level=level, threads=threads)[0]
        total = x.double() + y.double()
        assert got.shape == torch.broadcast_shapes(a, b)
        assert torch.equal(got, torch.relu(total).to(dtype)), (dtype, threads)


_CHANNELS = [
    (outer, channels, inner)
    for outer in (1, 3)
    for channels in (1, 2, 5, 64, 1300)
    for inner in (1, 2, 3, 7, 16, 31, 64, 65, 127, 128, 129, 200, 600)
    if outer * channels * inner < 300_000
]


def _whole(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Small whole numbers, whose products and sums are exact."""
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_channels_of_every_layout(dtype: torch.dtype, threads: int, level: str, cpu_kernel: Kernel) -> None:
    how = {"threads": threads, "level": level}
    for outer, channels, inner in _CHANNELS:
        x = _whole(outer, channels, inner, dtype=dtype, seed=0)
        scale, bias = _whole(channels, dtype=dtype, seed=1), _whole(channels, dtype=dtype, seed=2)
        got = cpu_kernel(scale_bias_act, x, scale, bias, "none", 1, **how)[0]
        assert torch.equal(got, x * scale.reshape(-1, 1) + bias.reshape(-1, 1)), (outer, channels, inner)
        got = cpu_kernel(scale_bias_act, x, scale, None, "relu", -2, **how)[0]
        assert torch.equal(got, torch.relu(x * scale.reshape(-1, 1))), (outer, channels, inner)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -2, -3, -4])
def test_any_axis(axis: int, level: str, cpu_kernel: Kernel) -> None:
    x = _whole(3, 4, 5, 6, dtype=torch.float32, seed=0)
    scale = _whole(x.shape[axis], dtype=torch.float32, seed=1)
    aligned = scale.reshape([-1 if d == axis % 4 else 1 for d in range(4)])
    got = cpu_kernel(scale_bias_act, x, scale, scale, "none", axis, level=level)[0]
    assert torch.equal(got, x * aligned + aligned)
    got = cpu_kernel(swish, x, scale, axis, level=level)[0]
    _assert_close(got, x.double() * _sigmoid(aligned.double() * x.double()), 2.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", _ACTIVATIONS)
def test_scale_bias_act_with_fractions(
    activation: str, dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    x = _draw(2, 40, 57, dtype=dtype, scale=2)
    scale, bias = _draw(40, dtype=dtype, scale=1, seed=1), _draw(40, dtype=dtype, scale=1, seed=2)
    got = cpu_kernel(scale_bias_act, x, scale, bias, activation, slope=0.25, level=level)[0]
    product = x.double() * scale.double().reshape(-1, 1)
    z = product + bias.double().reshape(-1, 1)
    # z is rounded, once or twice, before the activation.
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rounding = _spacing(z, wide) + _spacing(product, wide)
    formula = _ACTIVATIONS[activation]
    want = formula(z)
    slack = torch.maximum((formula(z + rounding) - want).abs(), (formula(z - rounding) - want).abs())
    # With float64, the formula is as inexact as the kernel.
    _assert_close(got, want, (2 if dtype == torch.float64 else 1) * _bound(activation, dtype, level), slack)


@pytest.mark.parametrize(
    ("x", "beta", "axis"),
    [
        ((2, 3, 4), (3,), 1), ((2, 3, 4), (1,), 1), ((2, 3, 4), (), 1), ((2, 3, 4), (4,), -1), ((2, 3, 4), (2,), 0),
        ((5,), (5,), 1), ((5,), (1,), 7), ((), (), 1), ((0, 3, 2), (3,), 1), ((2, 0), (0,), 1), ((1, 1, 1), (1,), 1),
        ((4, 70), (70,), 1), ((3, 5, 700), (5,), 1),
    ],
)  # fmt: skip
def test_swish_with_each_kind_of_beta(
    x: tuple[int, ...], beta: tuple[int, ...], axis: int, level: str, cpu_kernel: Kernel
) -> None:
    for dtype in DTYPES:
        a, b = _draw(*x, dtype=dtype), _draw(*beta, dtype=dtype, scale=1, seed=1)
        got = cpu_kernel(swish, a, b, axis, level=level)[0]
        z, beta_z = a.double(), b.double()
        if b.dim() == 1 and a.dim() > 1:
            beta_z = beta_z.reshape(-1, *[1] * (a.dim() - 1 - axis % a.dim()))
        _assert_close(got, z * _sigmoid(beta_z * z), 0.55 if dtype in HALVES else 6)


# --- refusals -------------------------------------------------------------------------------------------------


def test_refusals_say_what_was_expected(level: str, cpu_kernel: Kernel) -> None:
    x, three, two = torch.ones(2, 3), torch.ones(3), torch.ones(2)
    cases: list[tuple[tuple[Any, ...], str]] = [
        ((swish, x, two), r"beta holds 2 numbers; x has 3 channels \(dimension 1\)"),
        ((swish, x, x), r"beta has 2 dimensions and x has 2; expected one number"),
        ((swish, x, three, 5), r"axis = 5, but x has 2 dimensions"),
        ((scale_bias_act, x, two), r"scale holds 2 numbers; x has 3 channels \(dimension 1\)"),
        ((scale_bias_act, x, x), r"scale has 2 dimensions; expected 1, one number per channel"),
        ((scale_bias_act, x, three, two), r"bias holds 2 numbers; x has 3 channels \(dimension 1\)"),
        ((scale_bias_act, x, three, three, "relu", -3), r"axis = -3, but x has 2 dimensions"),
        ((scale_bias_act, x, three, three, "elu"), r"activation = 'elu' is not known; known are none, relu, .*gelu_tanh"),
        ((add_relu, x, two), r"(broadcast|size)"),
    ]  # fmt: skip
    for arguments, message in cases:
        with pytest.raises(KernelError, match=message):
            cpu_kernel(*arguments, level=level)
