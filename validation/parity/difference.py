"""What two arrays differ by, as data that a report keeps: no arrays, no judgement."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LADDER", "QUANTILES", "Binade", "Metrics", "Worst", "required_atol"]

LADDER = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class Worst:
    """One element where the two sides differ most (or whose NaN or Inf is lost)."""

    index: tuple[int, ...]
    got: float
    want: float


@dataclass(frozen=True, slots=True)
class Binade:
    """The differences of the elements whose `want` has one sign and about one magnitude.

    Attributes:
        sign: 1 or -1, that of `want`; a zero counts by its sign bit.
        exponent: 2**exponent <= |want|, up to the row above; one power of two, or more where fewer than eight elements
            lie in one. The lowest row holds everything below it too.
        size: root mean square of |want|, every element taken as 1.5 times its power of two.
        count: elements.
        distinct: how many of their values of `want` differ, as far as known: less than `count` where values repeat.
        excess: max of |got - want| - rtol * |want|, at least 0, with the rtol of the measurement.
        rms: of got - want.
        bias: mean of got - want, positive where the magnitude grows.
        more, less: elements whose magnitude is larger, smaller by more than two ULPs; not counted in float32 and wider.
    """

    sign: int
    exponent: int
    size: float
    count: int
    distinct: int
    excess: float
    rms: float
    bias: float
    more: int = 0
    less: int = 0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Differences of an output from its reference. Numbers cover the elements where both sides are finite.

    Attributes:
        count: elements of the output.
        compared: elements where both sides and the reference are finite.
        max_abs, mean_abs, rms: of |got - want|.
        max_rel: max of |got - want| / |want| over want != 0.
        max_ulp: max of |got - want| / ulp(want), in units of the output's dtype.
        cosine: of the angle between the two; 1.0 where both are zero, 0.0 where one is.
        snr: 10 log10(sum want**2 / sum (got - want)**2) in dB; None where either is zero.
        scale, scale_rms: max and root mean square of |want|.
        eps: spacing of the output's dtype at 1; 0 for integers.
        gain: the factor less 1 by which `got` is `want` on average: sum (got - want) want / sum want**2.
        gain_error: its standard error, were the differences independent.
        excess: max of |got - want| - rtol * |want|, at least 0: the absolute tolerance that would pass.
        over: the largest |got - want| in units of what it may be; above 1 is out of tolerance.
        mismatches: elements out of tolerance, those with a wrong NaN or Inf included.
        nan, inf: elements where exactly one side is NaN; is Inf, or Inf of the other sign.
        overflow: elements that are Inf on one side only, while the reference is finite and lies within a factor of two
            of the dtype's largest number: there the two may round to different sides. `overflow_gap` is how far the
            reference is from where it would have had to be: from the largest number, or from the finite side.
        overflowed: elements where the original is not finite although the wider run is.
        identical: every element has the same value (-0 equals 0, NaN equals NaN).
        equal: elements with no difference at all from the reference, of those compared.
        nonzero: elements of those compared whose reference is not 0.
        coarse: those of them whose budget allows over a tenth of the element itself, and more than is nothing beside
            values of order one (`FloatType.coarse`); not counted where the budget is the user's.
        quantiles: of |got - want| at 0.5, 0.9, 0.99, 0.999; estimated from a histogram with eight bins for each power
            of two, so within 6.3 % of the exact value.
        histogram: (k, n): n elements with 2**k <= |got - want| < 2**(k + 1); the first pair holds all below it too.
        required: (rtol, atol): with this rtol, this atol would have passed.
        binades: the same by sign and magnitude of `want`, at most 24 powers of two below the largest.
        worst: up to five elements, the worst first.
    """

    count: int
    compared: int = 0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    rms: float = 0.0
    max_rel: float = 0.0
    max_ulp: float = 0.0
    cosine: float = 1.0
    snr: float | None = None
    scale: float = 0.0
    scale_rms: float = 0.0
    eps: float = 0.0
    gain: float = 0.0
    gain_error: float = 0.0
    excess: float = 0.0
    over: float = 0.0
    mismatches: int = 0
    nan: int = 0
    inf: int = 0
    overflow: int = 0
    overflow_gap: float = 0.0
    overflowed: int = 0
    identical: bool = True
    equal: int = 0
    nonzero: int = 0
    coarse: int = 0
    quantiles: tuple[float, ...] = ()
    histogram: tuple[tuple[int, int], ...] = ()
    required: tuple[tuple[float, float], ...] = ()
    binades: tuple[Binade, ...] = ()
    worst: tuple[Worst, ...] = ()


def required_atol(metrics: Metrics, rtol: float) -> float:
    """The atol that certainly passes with this rtol: of the ladder's next lower step, so never too small."""
    found = metrics.max_abs
    for step, atol in metrics.required:
        if step <= rtol:
            found = atol
    return found
