"""How much difference is acceptable: the budget of an output.

**The budget.** Write p for PyTorch's result in the deployed dtype, w for the same model in a wider dtype
(float64), r for the runtime's result, eps for the spacing of the output's dtype at 1, S and S2 for the
maximum and the root mean square of |w|, n for the number of elements from which PyTorch's own error is
known. With

    own    = max(|p - w| - R eps |w|), at least 0       what rounding relative to the element does not explain
    own2   = rms(p - w)
    luck   = 1 + 8 / n                                  a few elements may be accurate by chance

an output passes when every element satisfies

    |r - w|  <=  K luck own + F eps S + R eps |w|

and, because a fault spread thinly over an output hides below the worst rounding, when the whole satisfies

    rms(r - w)  <=  K2 (luck own2 + F2 eps S2)

================  ====  ====  ====  ====  ==================================
dtype             K     F     R     K2    F2
================  ====  ====  ====  ====  ==================================
float32, float64  8     4     4     4     1
narrower          2     1     1     1.5   0.29 min(1, 16 / sqrt(n))
================  ====  ====  ====  ====  ==================================

**Where the constants come from.** Two correct programs differ in the order of summation, in fusing and in the
polynomials behind exp, erf and tanh. Measured on 17 kinds of sound models (dense, convolutional, recurrent,
attention, every activation; 94 runs on ONNX Runtime CPU 1.32, optimised and not), the runtime's error over
PyTorch's own was, at worst, 5.2 (max) and 3.0 (rms) in float32, where PyTorch's tanh is correctly rounded
and the runtime's is a rational approximation; and 1.44 and 1.27 in float16, where both compute in float32
and round. F, R are ULPs for outputs that PyTorch happens to compute exactly; 0.29 = 1/sqrt(12) is the rms of
one rounding in ULPs. Narrow types get the small factors: their own error is large, and a factor of 8 would
let a dropped bias pass.

**Margins.** 392 sound models used at most 67 % of it in float32 and 36 % in float16. GELU with tanh
instead of erf: 270 times over in float32; in float16 72 %, so not found, because the two differ by less than the
roundings of float16. LayerNorm with epsilon 1e-6 instead of 1e-5: 10 times over in float32 at unit variance. The
dropped bias of case 24 in float16: 1.9 times over.

The standard argument that rounding errors bound what may differ: N. Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., SIAM 2002, chapters 1 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from .metrics import FloatType, Metrics, float_type

__all__ = ["Budget", "blind", "derived", "own_rtol", "pooled", "user"]

# An original whose own rounding error exceeds this part of its output says nothing about a runtime.
HOPELESS = 0.1


@dataclass(frozen=True, slots=True)
class Budget:
    """What an output may differ by from its reference.

    Attributes:
        atol, rtol: per element, |got - want| <= atol + rtol * |want|.
        rms: of the whole output; infinity where only the elements count.
        source: where the numbers come from, for the report.
        own_max, own_rms: PyTorch's own error, where it is known.
        observations: the elements it is known from.
        exact: integers and booleans.
        hopeless: PyTorch's own error is too large a part of the output for a pass to mean anything.
    """

    atol: float
    rtol: float
    rms: float
    source: str
    own_max: float | None = None
    own_rms: float | None = None
    observations: int = 0
    exact: bool = False
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class _Factors:
    own: float
    floor: float
    relative: float
    own_rms: float
    floor_rms: float
    unknown: float  # ULPs of the scale where PyTorch's own error is unknown


_FULL = _Factors(own=8, floor=4, relative=4, own_rms=4, floor_rms=1, unknown=64)
_NARROW = _Factors(own=2, floor=1, relative=1, own_rms=1.5, floor_rms=1 / math.sqrt(12), unknown=8)

EXACT = Budget(0.0, 0.0, math.inf, "exact: integers and booleans", exact=True)


def own_rtol(dtype: Any) -> float:
    """R eps: the rtol with which PyTorch's own error is to be measured for `derived`."""
    kind = float_type(dtype)
    return _factors(kind).relative * kind.eps


def pooled(errors: list[Metrics], factor: float = 1.0) -> Metrics:
    """PyTorch's own error from several measurements of one output; `factor` scales it to its dtype."""
    count = sum(m.compared for m in errors)
    square = sum(m.rms**2 * m.compared for m in errors) / max(count, 1)
    return replace(
        errors[0],
        compared=count,
        max_abs=factor * max(m.max_abs for m in errors),
        rms=factor * math.sqrt(square),
        excess=factor * max(m.excess for m in errors),
    )


def derived(own: Metrics, dtype: Any, source: str) -> Budget:
    """The budget from PyTorch's own error, measured with `rtol=own_rtol(dtype)` against the wider run."""
    kind = float_type(dtype)
    f = _factors(kind)
    n = max(own.compared, 1)
    luck = 1 + 8 / n
    floor_rms = f.floor_rms * (min(1.0, 16 / math.sqrt(n)) if f is _NARROW else 1.0)
    return Budget(
        atol=f.own * luck * own.excess + f.floor * _ulp(kind, own.scale),
        rtol=f.relative * kind.eps,
        rms=f.own_rms * (luck * own.rms + floor_rms * _ulp(kind, own.scale_rms)),
        source=source,
        own_max=own.max_abs,
        own_rms=own.rms,
        observations=own.compared,
        hopeless=own.rms > HOPELESS * own.scale_rms + _ulp(kind, own.scale_rms),
    )


def blind(scale: float, dtype: Any, why: str) -> Budget:
    """The budget where PyTorch's own error is unknown: 64 ULPs of the output's scale (narrow types: 8)."""
    kind = float_type(dtype)
    f = _factors(kind)
    return Budget(
        atol=f.unknown * _ulp(kind, scale),
        rtol=f.relative * kind.eps,
        rms=math.inf,
        source=f"{f.unknown:g} ULPs of the output's scale ({why})",
    )


def user(atol: float | None, rtol: float | None) -> Budget:
    """The user's own tolerance, against the original as given."""
    source = f"user tolerance, atol {atol or 0.0:g}, rtol {rtol or 0.0:g}"
    return Budget(atol or 0.0, rtol or 0.0, math.inf, source)


def _factors(kind: FloatType) -> _Factors:
    return _FULL if kind.eps <= 2.0**-23 else _NARROW


def _ulp(kind: FloatType, scale: float) -> float:
    return max(kind.eps * scale, kind.smallest)
