"""The metrics agree with their formulas, written out independently in numpy and Python."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from deployops.validation.parity import metrics as module
from deployops.validation.parity.metrics import CHUNK, float_type, measure, measure_exact, required_atol

RNG = np.random.default_rng(0)
NAN, INF = float("nan"), float("inf")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_formulas() -> None:
    want = RNG.standard_normal((7, 11)).astype(np.float32)
    got = (want + 1e-3 * RNG.standard_normal((7, 11))).astype(np.float32)
    m = measure(got, want, rtol=1e-3, atol=1e-3)
    error = np.abs(got.astype(np.float64) - want)
    assert m.max_abs == error.max()
    assert m.mean_abs == pytest.approx(error.mean())
    assert m.rms == pytest.approx(np.sqrt((error**2).mean()))
    assert m.max_rel == pytest.approx((error / np.abs(want)).max())
    assert m.scale == np.abs(want).max()
    assert m.mismatches == (~np.isclose(got, want.astype(np.float64), rtol=1e-3, atol=1e-3)).sum()
    a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    assert m.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert m.snr == pytest.approx(10 * np.log10((want.astype(np.float64) ** 2).sum() / (error**2).sum()))
    signed = got.astype(np.float64) - want
    assert m.gain == pytest.approx((signed * want).sum() / (want.astype(np.float64) ** 2).sum())
    over = error / (1e-3 + 1e-3 * np.abs(want.astype(np.float64)))
    assert m.over == pytest.approx(over.max())
    assert [over[w.index] for w in m.worst] == sorted(over.ravel(), reverse=True)[:5]
    assert all(w.got == got[w.index] for w in m.worst)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_ulp_is_numpys_spacing(dtype: type) -> None:
    want = np.array([1.0, 1.9, 3.5, 1000.0, 1e-4], dtype)
    for steps in (1, 3):
        got = want.copy()
        for _ in range(steps):
            got = np.nextafter(got, dtype(np.inf))
        assert measure(got, want).max_ulp == pytest.approx(steps)


def test_ulp_of_bfloat16() -> None:
    # 8 significant bits: the numbers after 1 and after 256 are 1 + 2**-7 and 258
    want = np.array([1.0, 256.0], ml_dtypes.bfloat16)
    got = np.array([1.0078125, 258.0], ml_dtypes.bfloat16)
    assert measure(got, want).max_ulp == 1.0
    assert float_type(ml_dtypes.bfloat16).eps == 2.0**-7


def test_a_lost_nan_is_not_hidden() -> None:
    m = measure(f32(1, 3, NAN), f32(1, NAN, NAN))
    assert (m.nan, m.inf, m.mismatches, m.identical) == (1, 0, 1, False)
    assert m.worst[0].index == (1,)
    assert measure(f32(NAN, 1), f32(NAN, 1)).identical


def test_infinities_by_sign() -> None:
    m = measure(f32(INF, INF, 5, INF), f32(INF, -INF, INF, 5))
    assert (m.nan, m.inf, m.mismatches) == (0, 3, 3)
    assert measure(f32(INF, -INF), f32(INF, -INF)).identical


def test_nan_for_inf_is_a_lost_inf_too() -> None:
    m = measure(f32(NAN), f32(INF))
    assert m.mismatches == 1
    assert m.nan == 1


def test_where_the_wider_run_is_not_finite_the_original_counts() -> None:
    m = measure(f32(1, 2), f32(1, 2), np.array([NAN, 2.0]))
    assert (m.compared, m.max_abs) == (2, 0.0)


def test_inf_is_decided_by_the_original_not_by_the_wider_run() -> None:
    m = measure(f32(INF), f32(INF), np.array([70000.0]))
    assert (m.mismatches, m.inf) == (0, 0)
    assert measure(f32(70000.0), f32(INF), np.array([70000.0])).inf == 1


def test_empty_and_scalar() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert measure(empty, empty).count == 0
    assert measure(np.float32(1).reshape(()), np.float32(2).reshape(())).worst[0].index == ()


def test_zeros_have_no_angle_to_anything_but_zeros() -> None:
    assert measure(f32(0, 0), f32(1, 2)).cosine == 0.0
    assert measure(f32(0, 0), f32(0, 0)).cosine == 1.0
    assert measure(f32(-0.0), f32(0.0)).identical


def test_chunks_join() -> None:
    want = np.zeros(2 * CHUNK + 5, np.float32)
    got = want.copy()
    got[2 * CHUNK + 1], got[3] = 2.0, 1.0
    m = measure(got, want, atol=0.5)
    assert (m.mismatches, m.max_abs) == (2, 2.0)
    assert [w.index for w in m.worst] == [(2 * CHUNK + 1,), (3,)]
    assert m.rms == pytest.approx(math.sqrt(5 / want.size))


def test_transposed_arrays_are_read_by_index() -> None:
    want = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = np.asfortranarray(want)
    assert measure(got, want).identical


def test_integers_are_compared_as_integers() -> None:
    # 2**53 + 1 and 2**53 are the same float64
    m = measure_exact(np.array([2**53 + 1]), np.array([2**53]))
    assert (m.mismatches, m.max_abs, m.identical) == (1, 1.0, False)
    low, high = np.array([-(2**63)]), np.array([2**63 - 1])
    assert measure_exact(low, high).max_abs == float(2**64 - 1)
    assert measure_exact(np.array([True, False]), np.array([True, True])).mismatches == 1
    assert measure_exact(high, high).identical


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        measure(np.zeros(2), np.zeros(3))


def noisy(count: int, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    want = (RNG.standard_normal(count) * np.exp(RNG.standard_normal(count))).astype(dtype)
    return (want * (1 + 1e-3 * RNG.standard_normal(count))).astype(dtype), want


def test_quantiles_are_within_the_stated_error() -> None:
    got, want = noisy(20_000)
    exact = np.quantile(np.abs(got.astype(np.float64) - want), module.QUANTILES, method="inverted_cdf")
    found = measure(got, want).quantiles
    assert np.all(np.abs(found / exact - 1) <= 0.063)


def test_quantiles_count_the_elements_without_error() -> None:
    want = np.zeros(100, np.float32)
    got = want.copy()
    got[:5] = 3.0
    m = measure(got, want)
    assert m.equal == 95
    assert m.quantiles[:2] == (0.0, 0.0)
    assert m.quantiles[2:] == pytest.approx((3.0, 3.0), rel=0.063)


def test_the_histogram_is_by_powers_of_two() -> None:
    want = np.zeros(8, np.float32)
    got = f32(0, 0.25, 0.3, 0.499, 1.0, 1.5, 2.0, 0)
    assert measure(got, want).histogram == ((-2, 3), (-1, 0), (0, 2), (1, 1))


def test_the_ladder_says_what_would_pass() -> None:
    got, want = noisy(5000)
    error, size = np.abs(got.astype(np.float64) - want), np.abs(want.astype(np.float64))
    m = measure(got, want)
    for rtol, atol in m.required:
        assert atol == pytest.approx(max((error - rtol * size).max(), 0))
    # between two steps: never less than is needed
    assert required_atol(m, 5e-4) >= (error - 5e-4 * size).max()
    assert required_atol(m, 0.0) == m.max_abs


def test_rows_by_sign_and_magnitude() -> None:
    got, want = noisy(5000)
    difference = got.astype(np.float64) - want
    power = np.floor(np.log2(np.abs(want)))
    m = measure(got, want, rtol=1e-3)
    assert sum(r.count for r in m.binades) == want.size
    checked = 0
    for sign in (1, -1):
        rows = [r for r in m.binades if r.sign == sign]
        assert [r.exponent for r in rows] == sorted((r.exponent for r in rows), reverse=True)
        above = 1000
        for row in rows:
            inside = (np.sign(want) == sign) & (power >= row.exponent) & (power < above)
            above = row.exponent
            if row is rows[-1]:
                continue
            d, w = difference[inside], want[inside].astype(np.float64)
            assert row.count == inside.sum() == row.distinct
            assert row.rms == pytest.approx(np.sqrt((d**2).mean()))
            assert row.bias == pytest.approx(sign * d.mean())
            assert row.excess == pytest.approx(max((np.abs(d) - 1e-3 * np.abs(w)).max(), 0))
            checked += 1
    assert checked > 8


def test_far_elements_are_counted_by_side() -> None:
    want = np.repeat(np.float16([1.0, -1.0]), 10)
    got = want.copy()
    eps = np.float16(2.0**-10)
    got[:3] += 3 * eps  # away from zero
    got[3] -= 3 * eps
    got[4] += eps  # within two ULPs
    got[10:12] += 3 * eps  # towards zero
    rows = {r.sign: r for r in measure(got, want).binades}
    assert (rows[1].more, rows[1].less) == (3, 1)
    assert (rows[-1].more, rows[-1].less) == (0, 2)


def test_equal_values_count_once() -> None:
    want = np.repeat(np.arange(1, 5, dtype=np.float32), 1000)
    m = measure(want + np.float32(1e-3), want)
    assert sum(r.count for r in m.binades) == 4000
    assert sum(r.distinct for r in m.binades) == 4


def test_zeros_stand_in_the_lowest_row() -> None:
    m = measure(f32(1e-9, 1, 2), f32(0, 1, 2))
    assert [r.sign for r in m.binades] == [1]
    assert measure(f32(0.5), f32(-0.0)).binades[0].sign == -1


def test_as_many_threads_as_you_like_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 2 * CHUNK)
    got, want = noisy(9 * CHUNK + 11)
    one = measure(got, want, threads=1)
    assert one == measure(got, want, threads=2) == measure(got, want, threads=5)


def test_rounding_at_the_largest_number_is_told_from_infinity() -> None:
    """65,519.9 rounds to 65,504 in float16 and 65,520 to Inf: two correct programs may differ there."""
    largest = np.float16(65504)
    got, original = np.array([largest, np.float16(1)]), np.array([np.float16(INF), np.float16(1)])
    m = measure(got, original, np.array([65520.5, 1.0]))
    assert (m.inf, m.overflow, m.mismatches) == (0, 1, 0)
    assert m.overflow_gap == pytest.approx(16.5)
    # far from the largest number, or of the other sign, an Inf is a fault
    assert measure(np.float16([10.0]), np.float16([INF]), np.array([10.0])).inf == 1
    assert measure(np.float16([-65504.0]), np.float16([INF]), np.array([65520.5])).inf == 1
    assert measure(np.float16([INF]), np.float16([100.0]), np.array([100.0])).inf == 1


def test_an_original_that_overflows_itself_is_counted() -> None:
    m = measure(np.float16([8.0]), np.float16([INF]), np.array([8.0]))
    assert (m.overflowed, m.inf) == (1, 1)
