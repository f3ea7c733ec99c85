"""softmax, the norms and mean_pool: kernels against formulas in numpy's long double, at every level and many sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import DeployOpsError
from deployops.symbolic.operators.add_rms_norm import add_rms_norm
from deployops.symbolic.operators.layer_norm import layer_norm
from deployops.symbolic.operators.mean_pool import mean_pool
from deployops.symbolic.operators.rms_norm import rms_norm
from deployops.symbolic.operators.softmax import softmax

Kernel = Callable[..., list[Tensor]]
Exact = np.ndarray[Any, np.dtype[np.longdouble]]

HALVES = [torch.float16, torch.bfloat16]
DTYPES = [torch.float32, torch.float64, *HALVES]
INF, NAN = float("inf"), float("nan")

# Around every vector width from 2 to 32, and rows that are summed in several parts.
SIZES = [*range(1, 71), 100, 127, 128, 129, 1000, 1031, 4096, 4100, 9001]

_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_LOWEST = {torch.float16: -24, torch.bfloat16: -133, torch.float32: -149, torch.float64: -1074}

if np.finfo(np.longdouble).nmant < 63:
    pytest.skip("not checked: long double has no more digits than double here", allow_module_level=True)


# --- how far off ----------------------------------------------------------------------------------------------


def exact(x: Tensor) -> Exact:
    return x.double().numpy().astype(np.longdouble)


def spacing(want: Exact, dtype: torch.dtype) -> Exact:
    """The distance of neighbouring numbers of the dtype, at `want`."""
    exponent = np.frexp(np.where(np.isfinite(want), want, 0))[1] - _DIGITS[dtype]
    return np.ldexp(np.longdouble(1), np.maximum(exponent, _LOWEST[dtype]))


def assert_close(got: Tensor, want: Exact, ulps: Any, scale: Exact | None = None) -> None:
    """`got` is within so many ULP of `want`; of `scale`, where the result is a sum of numbers that large.

    A half may be off by its own rounding and 0.05 ULP more: it is computed in float32. NaN and ∞ are where they
    should be.
    """
    assert got.shape == want.shape
    if got.dtype in HALVES:
        ulps = 0.55
    largest = torch.finfo(got.dtype).max
    unit = spacing(want if scale is None else np.broadcast_to(scale, want.shape), got.dtype)
    allowed = ulps * unit + (0.5 * spacing(want, got.dtype) if scale is not None else 0)
    numbers = exact(got)
    # Beyond the largest number by less than half a spacing is rounded to it.
    limit = largest + spacing(np.longdouble(largest), got.dtype) / 2
    rounded = np.where(np.abs(want) >= limit, np.copysign(np.longdouble(INF), want), want)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(numbers[special], rounded[special])
    assert got.isfinite().numpy()[~special].all()
    excess = np.where(special, -1, np.abs(numbers - np.where(special, 0, want)) - allowed)
    if excess.size:
        k = np.unravel_index(int(excess.argmax()), excess.shape)
        assert excess[k] <= 0, f"{numbers[k]!r} where {want[k]!r} is right, at {k}"


def draw(*shape: int, dtype: torch.dtype, scale: float = 1, offset: float = 0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale + offset).to(dtype)


# --- formulas -------------------------------------------------------------------------------------------------


def rms_formula(x: Exact, weight: Exact | float, eps: float) -> Exact:
    y: Exact = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    return y


def layer_formula(x: Exact, weight: Exact | float, bias: Exact | float, eps: float) -> tuple[Exact, Exact]:
    """The result, and the size of the numbers that it was added up from: rows' largest."""
    d = x - x.mean(-1, keepdims=True)
    y = d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * weight
    scale = np.maximum(np.abs(y).max(-1, keepdims=True), np.abs(y + bias).max(-1, keepdims=True))
    return y + bias, scale


def softmax_formula(x: Exact, dim: int) -> tuple[Exact, Exact]:
    """The result, and the bound: the rounding of d = x − max(x) changes exp(d) by up to |d| ULP."""
    d = x - x.max(dim, keepdims=True)
    e = np.exp(d)
    return e / e.sum(dim, keepdims=True), 8 + np.abs(d)


# --- rms_norm and add_rms_norm --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_of_every_size(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for n in SIZES:
        x, weight = draw(3, n, dtype=dtype), draw(n, dtype=dtype)
        for w, factor in ((weight, exact(weight)), (None, 1.0)):
            for eps in (1e-6, 0.5):
                got = cpu_kernel(rms_norm, x, w, eps, level=level)[0]
                assert_close(got, rms_formula(exact(x), factor, eps), 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm_where_squares_leave_the_range(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    largest = torch.finfo(dtype).max
    for n in (4, 40):
        x = torch.zeros(6, n, dtype=dtype)
        x[0, :3] = torch.tensor([1, NAN, 2])
        x[1, :3] = torch.tensor([INF, 1, 2])
        x[2, :3] = torch.tensor([-INF, INF, 0])
        x[4] = largest
        x[5, 1] = -largest
        got = cpu_kernel(rms_norm, x, None, 1e-6, level=level)[0]
        assert got[0].isnan().all()
        assert torch.equal(got[1].isnan(), x[1].isinf())
        assert torch.equal(got[2].isnan(), x[2].isinf())
        assert not got[1:4].nan_to_num(0).any()
        if dtype == torch.float16:  # its squares are float32
            assert_close(got[4:], rms_formula(exact(x[4:]), 1.0, 1e-6), 4)
        else:
            assert not got[4:].any()
    zeros = cpu_kernel(rms_norm, torch.zeros(2, 5, dtype=dtype), None, 1e-12, level=level)[0]
    assert torch.equal(zeros, torch.zeros(2, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm_is_the_addition_and_then_the_norm(
    dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    for n in SIZES:
        x, residual = draw(4, n, dtype=dtype), draw(4, n, dtype=dtype, scale=30, seed=1)
        weight = draw(n, dtype=dtype, seed=2)
        y, total = cpu_kernel(add_rms_norm, x, residual, weight, 1e-6, level=level)
        assert torch.equal(total, (x.double() + residual.double()).to(dtype))
        assert torch.equal(y, cpu_kernel(rms_norm, total, weight, 1e-6, level=level)[0])
        assert_close(y, rms_formula(exact(total), exact(weight), 1e-6), 4)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms_that_are_written_past_the_caches(
    dtype: torch.dtype, threads: int, level: str, cpu_kernel: Kernel
) -> None:
    # Rows that are measured ahead, rows that are too long for it, rows that are not aligned. Of each tensor's rows the
    # first ones are looked at by the other tests.
    how = {"threads": threads, "level": level}
    for n in (64, 1024, 1027, 4096, 5000, 20000):
        few = 37
        times = (1 << 25) // (dtype.itemsize * n * few) + 1
        x, residual = draw(few, n, dtype=dtype), draw(few, n, dtype=dtype, seed=1)
        weight, bias = draw(n, dtype=dtype, seed=2), draw(n, dtype=dtype, seed=3)
        for op, tensors, rest in (
            (rms_norm, (x,), (weight, 1e-6)),
            (add_rms_norm, (x, residual), (weight, 1e-6)),
            (layer_norm, (x,), (weight, bias, 1e-5)),
        ):
            of_few = cpu_kernel(op, *tensors, *rest, level=level)
            of_all = cpu_kernel(op, *[t.repeat(times, 1) for t in tensors], *rest, **how)
            for a, b in zip(of_few, of_all, strict=True):
                assert torch.equal(a.repeat(times, 1), b), (op.name, n)


def test_add_rms_norm_of_infinities_that_cancel(level: str, cpu_kernel: Kernel) -> None:
    x, residual = torch.tensor([INF, 1.0]), torch.tensor([-INF, 1.0])
    y, total = cpu_kernel(add_rms_norm, x, residual, torch.ones(2), 1e-6, level=level)
    assert total[0].isnan()
    assert total[1] == 2
    assert y.isnan().all()


# --- layer_norm -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_of_every_size(dtype: torch.dtype, offset: float, level: str, cpu_kernel: Kernel) -> None:
    for n in SIZES:
        x = draw(3, n, dtype=dtype, offset=offset)
        weight, bias = draw(n, dtype=dtype, seed=1), draw(n, dtype=dtype, seed=2)
        for w in (weight, None):
            for b in (bias, None):
                got = cpu_kernel(layer_norm, x, w, b, 1e-5, level=level)[0]
                want, scale = layer_formula(
                    exact(x), 1.0 if w is None else exact(w), 0.0 if b is None else exact(b), 1e-5
                )
                assert_close(got, want, 3, scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_row_gives_the_bias(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    # n times 0.1 is not the sum of n of them.
    for n in (1, 3, 7, 16, 100, 1031, 5000):
        for number in (0.1, -3e4):
            x = torch.full((2, n), number, dtype=dtype)
            weight, bias = draw(n, dtype=dtype), draw(n, dtype=dtype, seed=1)
            for eps in (1e-5, 1e-12):
                got = cpu_kernel(layer_norm, x, weight, bias, eps, level=level)[0]
                assert torch.equal(got, bias.expand(2, n))
                assert not cpu_kernel(layer_norm, x, weight, None, eps, level=level)[0].any()


def test_layer_norm_where_the_mean_cannot_be_told_from_the_numbers(level: str, cpu_kernel: Kernel) -> None:
    # The deviations are of the size of the mean's rounding, or far below it.
    for n in (8, 1000, 100_000):
        for eps in (0.0, 1e-30):
            x = torch.ones(5, n)
            x[0, 1] += 2**-23
            x[1, ::2] += 2**-23
            x[2] = 1e6 + 0.0625 * (torch.arange(n) % 5 == 0)
            x[3] = 0.1 + 2**-27 * (torch.arange(n) % 5 == 0)  # their sum is rounded again and again
            x[4] = 1.7 + 2**-23 * (torch.arange(n) % 2 == 0)
            got = cpu_kernel(layer_norm, x, None, None, eps, level=level)[0]
            want, scale = layer_formula(exact(x), 1.0, 0.0, eps)
            assert_close(got, want, 4, scale)


def test_layer_norm_with_a_first_number_far_from_the_others(level: str, cpu_kernel: Kernel) -> None:
    x = draw(4, 257, dtype=torch.float32)
    x[0, 0], x[1, 0], x[2, 256], x[3, 0] = 1e6, -1e6, 1e6, 1e15
    got = cpu_kernel(layer_norm, x, None, None, 1e-5, level=level)[0]
    want, scale = layer_formula(exact(x), 1.0, 0.0, 1e-5)
    assert_close(got, want, 3, scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_beyond_the_range(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    largest = torch.finfo(dtype).max
    for n in (4, 40, 600):
        x = draw(6, n, dtype=dtype)
        x[0, 1], x[1, 0], x[2, n - 1] = NAN, INF, -INF
        x[3, 0], x[3, 1] = -INF, INF
        x[4, ::2], x[4, 1::2] = largest, -largest
        x[5] = largest / 2  # the sum is no number, the mean is
        bias = draw(n, dtype=dtype)
        got = cpu_kernel(layer_norm, x, None, bias, 1e-5, level=level)[0]
        assert got[:4].isnan().all()
        if dtype == torch.float16:
            want, scale = layer_formula(exact(x[4:]), 1.0, exact(bias), 1e-5)
            assert_close(got[4:], want, 3, scale)
        else:
            assert torch.equal(got[4:], bias.expand(2, n))


# --- softmax --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_every_size(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for n in SIZES:
        for rows in (1, 2, 5):
            x = draw(rows, n, dtype=dtype, scale=5)
            assert_close(cpu_kernel(softmax, x, -1, level=level)[0], *softmax_formula(exact(x), -1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_along_every_dim(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    shapes = [
        (2, 3, 4),
        (1, 5, 1),
        (3, 7, 2),
        (2, 9, 17),
        (2, 300, 33),
        (1, 19, 1000),
        (3, 2, 600),
        (2, 3, 5, 7),
    ]
    for shape in shapes:
        x = draw(*shape, dtype=dtype, scale=5)
        for dim in range(-len(shape), len(shape)):
            assert_close(cpu_kernel(softmax, x, dim, level=level)[0], *softmax_formula(exact(x), dim))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_rows_with_infinities_and_nan(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for n in (3, 19, 40, 2500):
        x = draw(7, n, dtype=dtype)
        x[0, 1], x[1, n - 1], x[2, 0], x[3] = INF, NAN, -INF, INF
        x[4] = -INF
        x[5, :2] = torch.tensor([INF, -INF])
        for got in (
            cpu_kernel(softmax, x, 1, level=level)[0],
            cpu_kernel(softmax, x.t().contiguous(), 0, level=level)[0].t(),
        ):
            assert got[[0, 1, 3, 4, 5]].isnan().all()
            assert_close(got[[2, 6]], *softmax_formula(exact(x[[2, 6]]), 1))
            assert got[2, 0] == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_large_numbers(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    largest = torch.finfo(dtype).max
    rows = [[largest, -largest, largest], [1e4, 9e3, 0], [-largest, -largest, 0]]
    got = cpu_kernel(softmax, torch.tensor(rows, dtype=torch.float64).to(dtype), 1, level=level)[0]
    assert got.tolist() == [[0.5, 0, 0.5], [1, 0, 0], [0, 0, 1]]


# --- mean_pool ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_pool_of_every_size(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for n in SIZES:
        x = draw(3, n, dtype=dtype)
        assert_close(cpu_kernel(mean_pool, x, level=level)[0], exact(x).mean(1), 2, np.abs(exact(x)).mean(1))
    for shape in ((2, 3, 7, 7), (1, 1, 64, 64), (2, 3, 1, 1), (20, 5, 3, 2), (0, 3, 4, 5), (2, 0, 4, 5)):
        x = draw(*shape, dtype=dtype)
        got = cpu_kernel(mean_pool, x, level=level)[0]
        assert_close(got, exact(x).mean((2, 3)), 2, np.abs(exact(x)).mean((2, 3)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_pool_of_nothing_and_of_special_numbers(
    dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    for shape in ((3, 0), (2, 3, 0, 5), (2, 3, 5, 0)):
        got = cpu_kernel(mean_pool, torch.empty(shape, dtype=dtype), level=level)[0]
        assert got.shape == shape[: len(shape) // 2]
        assert got.isnan().all()
    x = torch.tensor([[1, NAN, 0], [INF, 1, 0], [-INF, INF, 1], [-INF, 2, 3]]).to(dtype)
    for n in (3, 50):
        got = cpu_kernel(mean_pool, torch.cat([x, torch.zeros(4, n - 3, dtype=dtype)], 1), level=level)[0]
        assert got[[0, 2]].isnan().all()
        assert got[1] == INF
        assert got[3] == -INF
    # 4096 times 3e4 is no float16.
    got = cpu_kernel(mean_pool, torch.full((1, 1, 64, 64), 3e4, dtype=dtype), level=level)[0]
    assert got.item() == torch.tensor(3e4, dtype=dtype).item()


# --- long rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_million_numbers_are_added_up_to_a_few_ulp(
    dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    # Equal numbers as well: their roundings do not cancel.
    n = 1_000_003
    for x in (draw(1, n, dtype=dtype).abs() + 0.5, torch.full((1, n), 0.1, dtype=dtype)):
        numbers = exact(x)
        assert_close(cpu_kernel(mean_pool, x, level=level)[0], numbers.mean(1), 4)
        assert_close(cpu_kernel(rms_norm, x, None, 1e-6, level=level)[0], rms_formula(numbers, 1.0, 1e-6), 4)
        assert_close(cpu_kernel(softmax, x, 1, level=level)[0], *softmax_formula(numbers, 1))
    columns = draw(n // 4, 4, dtype=dtype)
    assert_close(cpu_kernel(softmax, columns, 0, level=level)[0], *softmax_formula(exact(columns), 0))
    x = draw(1, n, dtype=dtype, offset=3)
    want, scale = layer_formula(exact(x), 1.0, 0.0, 1e-5)
    assert_close(cpu_kernel(layer_norm, x, None, None, 1e-5, level=level)[0], want, 3, scale)


# --- threads, shapes, refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_nothing(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    weight = draw(1003, dtype=dtype)
    x, other = draw(150, 1003, dtype=dtype), draw(150, 1003, dtype=dtype, seed=1)
    calls: list[tuple[Any, ...]] = [
        (rms_norm, x, weight),
        (add_rms_norm, x, other, weight),
        (layer_norm, x, weight, weight),
        (softmax, x, -1),
        (softmax, draw(40, 2999, dtype=dtype), -1),
        (softmax, x, 0),
        (softmax, x.reshape(10, 15, 1003), 1),
        (mean_pool, x),
        (mean_pool, draw(2, 200_001, dtype=dtype)),
    ]
    for op, *arguments in calls:
        one = cpu_kernel(op, *arguments, level=level, threads=1)
        two = cpu_kernel(op, *arguments, level=level, threads=2)
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True)), op.name
        assert all(torch.isfinite(a).all() for a in one)


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_tensors(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for shape in ((0, 7), (7, 0), (2, 0, 3), (0,)):
        x, weight = torch.empty(shape, dtype=dtype), torch.empty(shape[-1], dtype=dtype)
        assert cpu_kernel(rms_norm, x, weight, level=level)[0].shape == shape
        assert cpu_kernel(layer_norm, x, weight, weight, level=level)[0].shape == shape
        assert [t.shape for t in cpu_kernel(add_rms_norm, x, x, weight, level=level)] == [shape, shape]
        for dim in range(len(shape)):
            assert cpu_kernel(softmax, x, dim, level=level)[0].shape == shape


def test_tensors_of_many_dimensions(level: str, cpu_kernel: Kernel) -> None:
    x = draw(2, 1, 3, 1, 2, 5, dtype=torch.float32)
    weight = draw(5, dtype=torch.float32)
    assert_close(
        cpu_kernel(rms_norm, x, weight, 1e-6, level=level)[0], rms_formula(exact(x), exact(weight), 1e-6), 4
    )
    want, scale = layer_formula(exact(x), exact(weight), 0.0, 1e-5)
    assert_close(cpu_kernel(layer_norm, x, weight, None, 1e-5, level=level)[0], want, 3, scale)


def test_shapes_that_do_not_fit_are_refused(cpu_kernel: Kernel) -> None:
    x = torch.zeros(2, 8)
    scalar, seven, square = torch.zeros(()), torch.zeros(7), torch.zeros(8, 8)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((rms_norm, scalar, None), "no dimension"),
        ((rms_norm, x, seven), "7"),
        ((rms_norm, x, square), "2 dimensions"),
        ((layer_norm, scalar, None, None), "no dimension"),
        ((layer_norm, x, None, seven), "bias"),
        ((layer_norm, x, square, None), "weight"),
        ((add_rms_norm, x, seven, torch.zeros(8)), "residual"),
        ((add_rms_norm, x, torch.zeros(3, 8), torch.zeros(8)), "one shape"),
        ((softmax, x, 2), "dim = 2"),
        ((softmax, x, -3), "dim = -3"),
        ((softmax, scalar, 0), "0 dimensions"),
        ((mean_pool, torch.zeros(2, 3, 4)), "dimensions"),
    ]
    for call, said in wrong:
        with pytest.raises(DeployOpsError, match=said):
            cpu_kernel(*call)
