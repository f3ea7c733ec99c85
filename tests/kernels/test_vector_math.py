"""The mathematical functions of vectors: how far they are off, at every instruction-set level, and what they do at the edges.

A small library of their own is compiled, as the functions have no entry in the kernels' library.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import deployops.kernels
from deployops.errors import NotCheckedError
from deployops.native.compilers import find_cxx
from deployops.native.levels import levels_for

Array = np.ndarray[Any, Any]
Function = Callable[[str, Array], Array]

_FLAGS = [
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
]

# Each function three times: its result rounded to float, to double, and to a half (here given as float).
_SOURCE = """
#include "deployops/vector_math.h"
using namespace deployops;

template <class T, class F>
void apply(F f, const T* x, T* y, int64_t n) {
  constexpr int L = lanes<T>;
  for (int64_t i = 0; i < n; i += L) {
    const int left = n - i < L ? int(n - i) : L;
    if (left == L) store<T>(y + i, f(load(x + i)));
    else store<T>(y + i, f(load(x + i, left)), left);
  }
}

#define ENTRY(name, kind, Number, Result, formula)                                  \\
  extern "C" void name##_##kind(const Number* x, Number* y, int64_t n) {            \\
    using T = Result;                                                               \\
    apply([](vec<wide_t<T>> v) { return formula; }, x, y, n);                       \\
  }
#define FUNCTION(name, formula)                  \\
  ENTRY(name, float32, float, float, formula)    \\
  ENTRY(name, float64, double, double, formula)  \\
  ENTRY(name, half, float, float16, formula)

FUNCTION(logistic, logistic<T>(v))
FUNCTION(times_logistic, times_logistic<T>(v, v))
FUNCTION(tanh, deployops::tanh<T>(v))
FUNCTION(gelu, gelu<T>(v))
FUNCTION(gelu_tanh, gelu_tanh<T>(v))
FUNCTION(cbrt, cbrt<T>(v))
ENTRY(exp, float32, float, float, deployops::exp(v))
ENTRY(exp, float64, double, double, deployops::exp(v))
ENTRY(exp_nonpositive, float32, float, float, exp_nonpositive(v))
ENTRY(exp_nonpositive, float64, double, double, exp_nonpositive(v))
"""

_HEADERS = Path(deployops.kernels.__path__[0]) / "include"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Instruction-set level -> the functions compiled for it, whether or not this processor runs them."""
    try:
        compiler = find_cxx()
    except NotCheckedError as e:
        pytest.skip(f"not checked: {e}")
    folder = tmp_path_factory.mktemp("vector_math")
    source = folder / "functions.cpp"
    source.write_text(_SOURCE)

    def compiled(level: str, flags: tuple[str, ...]) -> Path:
        out = folder / f"{level}.so"
        command = [str(compiler.path), *_FLAGS, *flags, f"-I{_HEADERS}", str(source), "-o", str(out)]
        subprocess.run(command, check=True)
        return out

    levels = levels_for(compiler.target)
    with ThreadPoolExecutor(2) as pool:
        paths = pool.map(lambda level: compiled(level.name, level.flags), levels)
        return {level.name: path for level, path in zip(levels, paths, strict=True)}


@pytest.fixture(params=["portable", "avx2", "avx512"])
def function(request: pytest.FixtureRequest, libraries: dict[str, Path]) -> Iterator[Function]:
    """``function("gelu", x)``, at each level: `x` as the dtype that the entry takes. "gelu for half" rounds to a half."""
    # What this processor has is asked of torch, not of our own library.
    capability = torch.backends.cpu.get_cpu_capability()
    runs = {"portable": True, "avx2": capability != "DEFAULT", "avx512": capability == "AVX512"}
    if request.param not in libraries or not runs[request.param]:
        pytest.skip(f"not checked: this processor does not run the level {request.param}")
    library = ctypes.CDLL(str(libraries[request.param]))

    def call(name: str, x: Array) -> Array:
        short = name.removesuffix(" for half")
        y = np.empty_like(x)
        entry = getattr(library, f"{short}_{'half' if short != name else x.dtype.name}")
        entry(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(len(x)))
        return y

    return call


# --- what they should give ------------------------------------------------------------------------------------


def _torch(formula: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    def evaluate(x: Array) -> Array:
        return formula(torch.from_numpy(x.astype(np.float64))).numpy()

    return evaluate


def _gelu_tanh(z: Any, sigmoid: Callable[[Any], Any]) -> Any:
    return z * sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (z + z**3 * mpmath.mpf("0.044715")))


_2_SQRT_2_OVER_PI = float(2 * mpmath.sqrt(2 / mpmath.pi))

# In float64, where exp overflows no earlier than the result is 0 in float32.
_WANT: dict[str, Callable[[Array], Array]] = {
    "exp": _torch(torch.exp),
    "exp_nonpositive": _torch(torch.exp),
    "logistic": _torch(lambda x: 1 / (1 + torch.exp(-x))),
    "times_logistic": _torch(lambda x: x * (1 / (1 + torch.exp(-x)))),
    "tanh": _torch(torch.tanh),
    "gelu": _torch(lambda z: z * torch.special.erfc(z * -(0.5**0.5)) / 2),
    "gelu_tanh": _torch(
        lambda z: z * (1 / (1 + torch.exp(-_2_SQRT_2_OVER_PI * (z * (1 + 0.044715 * (z * z))))))
    ),
    "cbrt": lambda x: np.cbrt(x.astype(np.float64)),
}


def _mp_sigmoid(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


# With 60 digits.
_WANT_EXACTLY: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp,
    "exp_nonpositive": mpmath.exp,
    "logistic": _mp_sigmoid,
    "times_logistic": lambda x: x * _mp_sigmoid(x),
    "tanh": mpmath.tanh,
    # mpmath's erfc takes no huge numbers; from 200 on it is 0 or 2 as far as float64 goes.
    "gelu": lambda z: z * mpmath.erfc(max(min(-z / mpmath.sqrt(2), 200), -200)) / 2,
    "gelu_tanh": lambda z: _gelu_tanh(z, _mp_sigmoid),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}

# In ULP: of a float32 result, of a float64 result, and of the float16 that "for half" is rounded to.
_BOUNDS = {
    "exp": (1.1, 1.1, None),
    "exp_nonpositive": (1.1, 1.1, None),
    "logistic": (2.5, 2.5, 0.05),
    "times_logistic": (2.5, 2.5, 0.05),
    "tanh": (2.7, 2.7, 0.05),
    "gelu": (4.5, 5.5, 0.05),
    "gelu_tanh": (12, 25, 0.05),
    "cbrt": (0.500001, 0.5001, 0.05),
}
# Without fma the argument of exp is less exact.
_PORTABLE_BOUNDS = {"gelu": (5, 7, 0.05), "gelu_tanh": (50, 400, 0.05)}


def _bound(name: str, kind: int, request: pytest.FixtureRequest) -> float:
    portable = request.node.callspec.params["function"] == "portable"
    bound = (_PORTABLE_BOUNDS if portable else {}).get(name, _BOUNDS[name])[kind]
    assert bound is not None
    return bound


def _spacing(want: Array, digits: int, lowest: int) -> Array:
    """The distance of neighbouring numbers: `digits` binary digits, and 2**lowest where they are subnormal."""
    exponent = np.frexp(want)[1] - digits
    return np.ldexp(1.0, np.maximum(exponent, lowest))


def _samples(name: str) -> Array:
    """Floats of every exponent, and more of them where the functions change."""
    step = 8191
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    everywhere = bits.view(np.float32)
    draw = np.random.default_rng(0)
    ranges = [draw.uniform(-r, r, 200_000).astype(np.float32) for r in (0.5, 4, 20, 110)]
    x = np.concatenate([everywhere, *ranges])
    x = x[np.isfinite(x)]
    return -np.abs(x) if name == "exp_nonpositive" else x


@pytest.mark.parametrize("name", _BOUNDS)
def test_float32_is_within_the_stated_bound(
    name: str, function: Function, request: pytest.FixtureRequest
) -> None:
    x = _samples(name)
    with np.errstate(all="ignore"):
        want = _WANT[name](x)
        got = function(name, x)
        infinite = np.isinf(want.astype(np.float32))
        assert np.array_equal(np.isinf(got), infinite)
        error = np.abs(got - want)[~infinite] / _spacing(want[~infinite], 24, -149)
    worst = int(error.argmax())
    assert error[worst] <= _bound(name, 0, request), f"{name}({x[~infinite][worst]!r})"


@pytest.mark.parametrize("name", [n for n, bounds in _BOUNDS.items() if bounds[2] is not None])
def test_what_is_rounded_to_a_half_is_exact_enough_for_it(
    name: str, function: Function, request: pytest.FixtureRequest
) -> None:
    # Any half is a float of this kind: 11 digits.
    x = np.unique(_samples(name).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    with np.errstate(all="ignore"):
        want = _WANT[name](x)
        error = np.abs(function(f"{name} for half", x) - want) / _spacing(want, 11, -(10**6))
    normal = np.abs(want) >= 2.0**-126
    worst = int(np.where(normal, error, 0).argmax())
    assert error[worst] <= _bound(name, 2, request), f"{name}({x[worst]!r})"


@pytest.mark.parametrize("name", _BOUNDS)
def test_float64_is_within_the_stated_bound(
    name: str, function: Function, request: pytest.FixtureRequest
) -> None:
    draw = np.random.default_rng(1)
    ranges = [draw.uniform(-r, r, 150) for r in (0.5, 4, 40, 745)]
    scattered = draw.choice([-1.0, 1.0], 150) * np.ldexp(
        draw.uniform(0.5, 1, 150), draw.integers(-1074, 1020, 150)
    )
    x = np.concatenate([*ranges, scattered])
    if name == "exp_nonpositive":
        x = -np.abs(x)
    got = function(name, x)
    worst, at = 0.0, 0.0
    with mpmath.workdps(60):
        for number, result in zip(x, got, strict=True):
            want = _WANT_EXACTLY[name](mpmath.mpf(float(number)))
            if abs(want) >= mpmath.mpf(2) ** 1024:
                assert np.isinf(result)
                continue
            ulp = mpmath.mpf(2) ** max(mpmath.frexp(want)[1] - 53, -1074)
            error = float(abs(mpmath.mpf(float(result)) - want) / ulp)
            if error > worst:
                worst, at = error, float(number)
    assert worst <= _bound(name, 1, request), f"{name}({at!r})"


# --- edges ----------------------------------------------------------------------------------------------------

_INF, _NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp", [-_INF, _INF, _NAN, 0.0, -0.0, -1e30, 1e30], [0.0, _INF, _NAN, 1.0, 1.0, 0.0, _INF]),
        ("exp_nonpositive", [-_INF, _NAN, 0.0, -0.0, -1e30], [0.0, _NAN, 1.0, 1.0, 0.0]),
        ("logistic", [-_INF, _INF, _NAN, 0.0, -0.0, -1e30, 1e30], [0.0, 1.0, _NAN, 0.5, 0.5, 0.0, 1.0]),
        (
            "times_logistic",
            [-_INF, _INF, _NAN, 0.0, -0.0, -1e30, 1e30],
            [_NAN, _INF, _NAN, 0.0, -0.0, -0.0, 1e30],
        ),
        ("tanh", [-_INF, _INF, _NAN, 0.0, -0.0, -1e30, 1e30], [-1.0, 1.0, _NAN, 0.0, -0.0, -1.0, 1.0]),
        ("gelu", [-_INF, _INF, _NAN, 0.0, -0.0, -1e30, 1e30], [_NAN, _INF, _NAN, 0.0, -0.0, -0.0, 1e30]),
        ("gelu_tanh", [-_INF, _INF, _NAN, 0.0, -0.0, -1e30, 1e30], [_NAN, _INF, _NAN, 0.0, -0.0, -0.0, 1e30]),
        ("cbrt", [-_INF, _INF, _NAN, 0.0, -0.0, -27.0, 0.125], [-_INF, _INF, _NAN, 0.0, -0.0, -3.0, 0.5]),
    ],
)
def test_edges(name: str, x: list[float], want: list[float], dtype: Any, function: Function) -> None:
    variants = [name] if name.startswith("exp") or dtype is np.float64 else [name, f"{name} for half"]
    for variant in variants:
        got = function(variant, np.array(x, dtype))
        expected = np.array(want, dtype)
        # The coefficients for halves leave a few of float's digits wrong.
        np.testing.assert_allclose(got, expected, rtol=1e-4 if variant != name else 0, err_msg=variant)
        there = ~np.isnan(expected)
        assert np.array_equal(np.signbit(got)[there], np.signbit(expected)[there]), variant


def test_tiny_numbers_give_what_the_function_is_there(function: Function) -> None:
    tiny = np.array([1e-45, -1e-45, 1e-40, -1.1754944e-38], np.float32)
    assert np.array_equal(function("tanh", tiny), tiny)
    assert np.array_equal(function("exp", tiny), np.ones(4, np.float32))
    root = function("cbrt", tiny).astype(np.float64)
    np.testing.assert_allclose(root**3, tiny.astype(np.float64), rtol=1e-6)


def test_the_largest_numbers(function: Function) -> None:
    top = np.finfo(np.float32).max
    x = np.array([top, -top], np.float32)
    assert np.array_equal(function("times_logistic", x), np.array([top, -0.0], np.float32))
    assert np.array_equal(function("gelu", x), np.array([top, -0.0], np.float32))
    assert np.array_equal(function("gelu_tanh", x), np.array([top, -0.0], np.float32))
    np.testing.assert_allclose(function("cbrt", x), [6.981463e12, -6.981463e12], rtol=1e-7)


def test_small_results_are_subnormal_numbers_and_not_zero(function: Function) -> None:
    x = np.array([-100.0, -103.5, -88.0], np.float32)
    with mpmath.workdps(30):
        want = np.array([float(mpmath.exp(float(v))) for v in x]).astype(np.float32)
    assert np.all(want > 0)
    assert np.array_equal(function("exp", x), want)
    assert np.array_equal(function("logistic", x), want)
