"""Sizes that are no multiples of anything: odd heights and widths, each its own.

A model that halves its input, pools it or folds it into windows is right at 64 x 96 whatever was made of its remainders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from .input_spec import Symbol
from .signature import Signature

__all__ = ["odd_sizes", "with_odd_sizes"]

_STEPS = (1, 2, 4, 8, 16)
_FEW = 128  # beyond, sizes below the example's: larger ones cost too much


def with_odd_sizes(
    signature: Signature, sizes: Mapping[str, int], runs: Callable[[Mapping[str, int]], bool]
) -> Mapping[str, int]:
    """`sizes` with heights, widths and lengths that have as few factors as the original takes, told by `runs`.

    `sizes` itself where it takes none but those, or there is no such dim.
    """
    return next((found for found in odd_sizes(signature, sizes) if runs(found)), sizes)


def odd_sizes(signature: Signature, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """`sizes` with other spatial dims: odd ones first, then odd multiples of 2, 4, 8, 16. A declared multiple is kept."""
    spatial = {n: s for n, s in signature.symbols.items() if signature.is_spatial(n)}
    example, seen = signature.example_sizes(), []
    for step in _STEPS:
        found: dict[str, int] = {}
        for name, symbol in spatial.items():
            size = _odd(symbol, example[name], step, {*found.values(), example[name]})
            if size is not None:
                found[name] = size
        if found and found not in seen:
            seen.append(found)
            yield {**sizes, **found}


def _odd(symbol: Symbol, example: int, step: int, taken: set[int]) -> int | None:
    """An odd multiple of `step`, or of the declared multiple, near the example and not among `taken`."""
    if symbol.multiple > 1:
        step = symbol.multiple
    start = (example * 9 // 8 if example <= _FEW else example * 7 // 8) // step | 1
    for k in range(24):
        for multiple in (start + 2 * k, start - 2 * k):
            size = multiple * step
            if multiple > 0 and size > 1 and symbol.allows(size) and size not in taken:
                return size
    return None
