"""The metrics agree with their formulas, written out independently in numpy and Python."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from deployops.validation.parity.metrics import CHUNK, float_type, measure, measure_exact

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
    assert m.worst is not None
    assert m.worst.got == got[m.worst.index]


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
    assert m.worst is not None
    assert m.worst.index == (1,)
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
    assert measure(np.float32(1).reshape(()), np.float32(2).reshape(())).worst.index == ()  # type: ignore[union-attr]


def test_zeros_have_no_angle_to_anything_but_zeros() -> None:
    assert measure(f32(0, 0), f32(1, 2)).cosine == 0.0
    assert measure(f32(0, 0), f32(0, 0)).cosine == 1.0
    assert measure(f32(-0.0), f32(0.0)).identical


def test_chunks_join() -> None:
    want = np.zeros(2 * CHUNK + 5, np.float32)
    got = want.copy()
    got[2 * CHUNK + 1], got[3] = 2.0, 1.0
    m = measure(got, want, atol=0.5)
    assert (m.mismatches, m.max_abs, m.worst.index) == (2, 2.0, (2 * CHUNK + 1,))  # type: ignore[union-attr]
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
