"""The attention kernel against the formula in numpy's long double: every option, odd sizes, masks, NaN and infinities."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployops.errors import DeployOpsError
from deployops.symbolic.operators.attention import attention

Kernel = Callable[..., list[Tensor]]
Array = np.ndarray[Any, np.dtype[Any]]

HALVES = [torch.float16, torch.bfloat16]
DTYPES = [torch.float32, torch.float64, *HALVES]
INF, NAN = float("inf"), float("nan")

# Around the widths of vectors and tiles (16, 32), blocks of keys and of rows (64).
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 70, 127, 128, 129, 150]
WIDTHS = [1, 2, 3, 4, 5, 8, 15, 16, 17, 24, 32, 33, 64, 65, 100]

if np.finfo(np.longdouble).nmant < 63:
    pytest.skip("not checked: long double has no more digits than double here", allow_module_level=True)


def draw(*shape: int, dtype: torch.dtype, seed: int = 0, scale: float = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def exact(x: Tensor) -> Array:
    return x.numpy() if x.dtype == torch.bool else x.double().numpy().astype(np.longdouble)


class Expected:
    """The formula. The weights are rounded to the dtype that is computed in: what is 0 there is 0."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> None:
        groups = q.shape[1] // k.shape[1]
        queries, keys, values = exact(q), exact(k).repeat(groups, 1), exact(v).repeat(groups, 1)
        factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
        with np.errstate(all="ignore"):
            scores = queries @ keys.swapaxes(-2, -1) * factor
            if bias is not None:
                scores = scores + exact(bias)
            looks = np.ones(scores.shape[-2:], bool)
            if is_causal:
                looks = np.tril(looks)
            if mask is not None:
                looks = looks & exact(mask)
            scores = np.where(looks, scores, -INF)
            weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-INF))
            weights = weights / weights.sum(-1, keepdims=True)
            if bias is not None or mask is not None:
                weights = np.where((scores == -INF).all(-1, keepdims=True), 0, weights)
            weights = weights.astype(np.float64 if q.dtype == torch.float64 else np.float32).astype(
                np.longdouble
            )
            self.y = weights @ values
            # How much rounding can change: each product by an ULP, each weight by the rounding of its score.
            sizes = np.abs(np.nan_to_num(queries, nan=0, posinf=0, neginf=0))
            sizes = (
                sizes @ np.abs(np.nan_to_num(keys, nan=0, posinf=0, neginf=0)).swapaxes(-2, -1) * abs(factor)
            )
            score = sizes.max(-1, keepdims=True, initial=0)
            finite = np.where(np.isfinite(values), np.abs(values), 0)
            self.unit = np.nan_to_num(weights) @ finite * (4 + score)

    def check(self, got: Tensor) -> None:
        """Within 4 ULP and 1 for each unit of the scores, of Σ weight·|value|; halves are rounded on top of that."""
        assert got.shape == self.y.shape
        numbers = exact(got)
        computed = 2.0**-52 if got.dtype == torch.float64 else 2.0**-23
        half_ulp = 0.0
        limit = np.longdouble(torch.finfo(got.dtype).max)
        if got.dtype in HALVES:
            half_ulp = torch.finfo(got.dtype).eps / 2
        special = ~np.isfinite(self.y) | (np.abs(self.y) > limit)
        wanted = np.where(np.abs(self.y) > limit, np.copysign(np.longdouble(INF), self.y), self.y)
        np.testing.assert_array_equal(numbers[special], wanted[special])
        error = np.where(special, 0, np.abs(numbers - np.where(special, 0, self.y)))
        tiny = torch.finfo(got.dtype).smallest_normal
        allowed = self.unit * computed + np.where(special, 0, np.abs(self.y)) * half_ulp + tiny
        assert np.isfinite(numbers[~special]).all()
        assert (error <= allowed).all(), f"off by {(error / allowed).max():.2f} of what is allowed"


def check(kernel: Kernel, level: str, *arguments: Any, **how: Any) -> Tensor:
    got = kernel(attention, *arguments, level=level, **how)[0]
    Expected(*arguments).check(got)
    return got


# --- all options together -------------------------------------------------------------------------------------


def _broadcast(choose: random.Random, full: tuple[int, ...]) -> tuple[int, ...]:
    shape = tuple(choose.choice([1, size]) for size in full)
    return shape[choose.randint(0, 4) :]


def _call(choose: random.Random, dtype: torch.dtype) -> list[Any]:
    key_heads, groups = choose.choice([1, 1, 2, 3]), choose.choice([1, 1, 2, 4])
    batch, heads = choose.choice([1, 2]), key_heads * groups
    queries, keys = choose.choice(LENGTHS), choose.choice(LENGTHS)
    width, value_width = choose.choice(WIDTHS), choose.choice([*WIDTHS, 0])
    seed = choose.randint(0, 10**6)
    full = (batch, heads, queries, keys)
    bias = mask = None
    if choose.random() < 0.4:
        bias = draw(*_broadcast(choose, full), dtype=dtype, seed=seed + 1)
    if choose.random() < 0.4:
        mask = draw(*_broadcast(choose, full), dtype=torch.float32, seed=seed + 2) > 0.2
    return [
        draw(batch, heads, queries, width, dtype=dtype, seed=seed + 3),
        draw(batch, key_heads, keys, width, dtype=dtype, seed=seed + 4),
        draw(batch, key_heads, keys, value_width, dtype=dtype, seed=seed + 5),
        bias,
        mask,
        choose.random() < 0.4,
        choose.choice([None, None, 0.3, -1.0]),
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_sizes_and_options(dtype: torch.dtype, seed: int, level: str, cpu_kernel: Kernel) -> None:
    choose = random.Random(f"{dtype} {seed}")
    for _ in range(15):
        check(cpu_kernel, level, *_call(choose, dtype), threads=choose.choice([1, 2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_sizes_and_options_with_special_numbers(
    dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    choose = random.Random(str(dtype))
    seen = 0
    for _ in range(40):
        call = _call(choose, dtype)
        for tensor in call[:4]:
            if tensor is None or choose.random() < 0.5:
                continue
            flat = tensor.view(-1)
            for _ in range(min(choose.choice([1, 3]), flat.numel())):
                flat[choose.randrange(flat.numel())] = choose.choice([INF, -INF, NAN])
        if call[3] is not None and choose.random() < 0.5:
            call[3][call[3] < 0] = -INF
        got = check(cpu_kernel, level, *call)
        seen += int(got.isnan().any() and got.isfinite().any())
    assert seen >= 5


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_of_queries(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    # One way of computing for few queries, one for many; 70 is more than a block of either.
    for queries in range(1, 71):
        q, k = draw(1, 2, queries, 16, dtype=dtype), draw(1, 1, 37, 16, dtype=dtype)
        check(cpu_kernel, level, q, k, draw(1, 1, 37, 9, dtype=dtype, seed=1))


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width(dtype: torch.dtype, queries: int, level: str, cpu_kernel: Kernel) -> None:
    for width in range(1, 71):
        q, k = draw(1, 1, queries, width, dtype=dtype), draw(1, 1, 19, width, dtype=dtype)
        check(cpu_kernel, level, q, k, draw(1, 1, 19, 71 - width, dtype=dtype, seed=1))


# --- nothing to look at ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_that_see_nothing_give_zeros(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for queries, keys in ((3, 5), (70, 130)):
        q, k, v = (draw(1, 2, n, 8, dtype=dtype, seed=i) for i, n in enumerate((queries, keys, keys)))
        mask = torch.rand(queries, keys, generator=torch.Generator().manual_seed(0)) > 0.5
        mask[1] = False
        bias = torch.zeros(queries, keys, dtype=dtype)
        bias[2] = -INF
        for is_causal in (False, True):
            assert not check(cpu_kernel, level, q, k, v, None, mask, is_causal)[:, :, 1].any()
            assert not check(cpu_kernel, level, q, k, v, bias, None, is_causal)[:, :, 2].any()
            assert not check(cpu_kernel, level, q, k, v, bias, mask, is_causal)[:, :, 1:3].any()


def test_scores_that_are_all_minus_infinity_are_nan_without_a_mask(level: str, cpu_kernel: Kernel) -> None:
    for queries in (1, 40):
        q = torch.ones(1, 1, queries, 4)
        q[:, :, 0, 0] = -INF
        k, v = torch.ones(1, 1, 70, 4), draw(1, 1, 70, 4, dtype=torch.float32)
        got = check(cpu_kernel, level, q, k, v)
        assert got[0, 0, 0].isnan().all()
        assert got[0, 0, 1:].isfinite().all()
        with_mask = check(cpu_kernel, level, q, k, v, None, torch.ones(1, 1, dtype=torch.bool))
        assert not with_mask[0, 0, 0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_tensors(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    def call(batch: int, heads: int, queries: int, keys: int, width: int) -> Tensor:
        q = draw(batch, heads, queries, 4, dtype=dtype)
        k, v = draw(batch, 2, keys, 4, dtype=dtype), draw(batch, 2, keys, width, dtype=dtype)
        bias, mask = torch.zeros(queries, keys, dtype=dtype), torch.ones(1, keys, dtype=torch.bool)
        got = cpu_kernel(attention, q, k, v, level=level)[0]
        assert torch.equal(got, cpu_kernel(attention, q, k, v, bias, mask, level=level)[0])
        assert got.shape == (batch, heads, queries, width)
        return got

    assert not call(1, 2, 3, 0, 5).any()
    assert not call(1, 4, 100, 0, 5).any()
    call(0, 2, 3, 5, 4)
    call(1, 2, 0, 5, 4)
    call(1, 2, 3, 5, 0)
    call(1, 0, 3, 5, 4)


# --- what is skipped, and what may not be ---------------------------------------------------------------------


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_that_are_not_finite_reach_queries_that_may_not_look_at_them(
    dtype: torch.dtype, number: float, level: str, cpu_kernel: Kernel
) -> None:
    # 0 · NaN and 0 · ∞ are NaN, however far in the future of a query, and behind a mask.
    for queries, keys, at in ((3, 5, 4), (3, 200, 199), (150, 150, 149), (150, 150, 0), (150, 300, 299)):
        q, k, v = (draw(1, 1, n, 8, dtype=dtype, seed=i) for i, n in enumerate((queries, keys, keys)))
        v[0, 0, at, 2] = number
        got = check(cpu_kernel, level, q, k, v, None, None, True)
        assert got[0, 0, :, [0, 1, 3]].isfinite().all()
        assert got[0, 0, 0, 2].isnan() == (at > 0 or math.isnan(number))
        mask = torch.ones(keys, dtype=torch.bool)
        mask[at] = False
        assert check(cpu_kernel, level, q, k, v, None, mask)[0, 0, :, 2].isnan().all()
        mask[:] = False
        nothing = check(cpu_kernel, level, q, k, v, None, mask)
        assert nothing[0, 0, :, 2].isnan().all()
        assert not nothing[0, 0, :, [0, 1, 3]].any()


def test_an_infinite_value_whose_weight_is_too_small_for_a_number(level: str, cpu_kernel: Kernel) -> None:
    # In one pass the weight is not yet 0 when the value comes, because the large score comes after it.
    for queries in (1, 40):
        q = torch.ones(1, 1, queries, 1)
        k = torch.zeros(1, 1, 200, 1)
        k[0, 0, 0] = -60
        k[0, 0, 150] = 60
        v = torch.zeros(1, 1, 200, 2)
        v[0, 0, 0, 0] = INF  # weight exp(−120), 0 in float32
        v[0, 0, 150, 1] = INF
        got = check(cpu_kernel, level, q, k, v)
        assert got[0, 0, :, 0].isnan().all()
        assert (got[0, 0, :, 1] == INF).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_whose_sum_is_beyond_the_range(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    largest = torch.finfo(dtype).max
    for queries in (1, 40):
        q, k = draw(1, 1, queries, 4, dtype=dtype), draw(1, 1, 100, 4, dtype=dtype)
        v = torch.full((1, 1, 100, 3), largest / 2, dtype=dtype)
        assert check(cpu_kernel, level, q, k, v).isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_masked_score_is_ignored_whatever_it_holds(
    dtype: torch.dtype, level: str, cpu_kernel: Kernel
) -> None:
    for queries in (2, 40):
        q, k, v = (draw(1, 1, n, 8, dtype=dtype, seed=i) for i, n in enumerate((queries, 90, 90)))
        mask = torch.ones(queries, 90, dtype=torch.bool)
        mask[:, [3, 70, 71, 89]] = False
        want = cpu_kernel(attention, q, k, v, None, mask, level=level)[0]
        for number, at in ((NAN, 3), (INF, 70), (-INF, 71), (NAN, 89)):
            k[0, 0, at] = number
        assert torch.equal(cpu_kernel(attention, q, k, v, None, mask, level=level)[0], want)
        assert want.isfinite().all()


# --- size of the numbers, sizes of the tensors ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_of_thousands(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    # exp would overflow without the maximum subtracted; q·k is no float16.
    for queries in (3, 40):
        q, k, v = (
            draw(1, 1, n, 16, dtype=dtype, seed=i, scale=s)
            for i, (n, s) in enumerate(((queries, 60), (100, 60), (100, 1)))
        )
        check(cpu_kernel, level, q, k, v)
        check(cpu_kernel, level, q, k, v, None, None, True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_keys_give_the_mean_of_many_values(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for queries in (1, 40):
        q, k = torch.ones(1, 1, queries, 8, dtype=dtype), torch.ones(1, 1, 20_000, 8, dtype=dtype)
        v = draw(1, 1, 20_000, 2, dtype=dtype).abs() + 1
        got = cpu_kernel(attention, q, k, v, level=level)[0].double()
        want = v.double().mean(2, keepdim=True)
        ulp = torch.finfo(dtype).eps
        assert ((got - want).abs() <= (0.55 if dtype in HALVES else 8) * ulp * want).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_nothing(dtype: torch.dtype, level: str, cpu_kernel: Kernel) -> None:
    for heads, key_heads, queries, keys in ((4, 4, 200, 150), (8, 2, 1, 3000), (2, 1, 300, 300)):
        q = draw(2, heads, queries, 32, dtype=dtype)
        k, v = (draw(2, key_heads, keys, 32, dtype=dtype, seed=s) for s in (1, 2))
        for is_causal in (False, True):
            one = cpu_kernel(attention, q, k, v, None, None, is_causal, level=level, threads=1)[0]
            two = cpu_kernel(attention, q, k, v, None, None, is_causal, level=level, threads=2)[0]
            assert torch.equal(one, two)
            assert one.isfinite().all()


def test_no_matrix_of_all_scores_is_kept(cpu_kernel: Kernel) -> None:
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        pytest.skip("not checked: this system does not tell the largest memory of a process since a moment")

    def kilobytes(name: str) -> int:
        return int(next(line for line in status.read_text().splitlines() if line.startswith(name)).split()[1])

    length = 12_000
    q, k, v = (draw(1, 1, length, 4, dtype=torch.float32, seed=i) for i in range(3))
    reset.write_text("5")
    before = kilobytes("VmRSS")
    cpu_kernel(attention, q, k, v)
    # The scores are 576 MB.
    assert kilobytes("VmHWM") - before < 50_000


def test_shapes_that_do_not_fit_are_refused(cpu_kernel: Kernel) -> None:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape)

    q, k, v = zeros(2, 4, 3, 8), zeros(2, 2, 5, 8), zeros(2, 2, 5, 6)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((q, zeros(1, 2, 5, 8), v), "batch"),
        ((q, k, zeros(1, 2, 5, 6)), "batch"),
        ((q, zeros(2, 2, 5, 7), v), "width"),
        ((zeros(2, 4, 3, 0), zeros(2, 2, 5, 0), v), "width"),
        ((q, k, zeros(2, 2, 4, 6)), "length"),
        ((q, k, zeros(2, 1, 5, 6)), "heads"),
        ((q, zeros(2, 3, 5, 8), zeros(2, 3, 5, 6)), "heads"),
        ((q, zeros(2, 0, 5, 8), zeros(2, 0, 5, 6)), "heads"),
        ((q, k, v, zeros(3, 4)), "broadcast"),
        ((q, k, v, zeros(2, 2, 3, 5)), "broadcast"),
        ((q, k, v, None, torch.ones(3, 5, 5, dtype=torch.bool)), "broadcast"),
        ((q, k, v, None, torch.ones(2, 5, dtype=torch.bool)), "broadcast"),
    ]
    for arguments, said in wrong:
        with pytest.raises(DeployOpsError, match=said):
            cpu_kernel(attention, *arguments)
    for arguments in ((q[0], k, v), (q, k[0], v), (q, k, v[0]), (q, k, v, zeros(1, 2, 4, 3, 5))):
        with pytest.raises(DeployOpsError):
            cpu_kernel(attention, *arguments)
