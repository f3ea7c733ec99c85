"""Ranges of the variable dims at which a traced model is right: the answer to conditions that wider ones break."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

from ...errors import UsageError
from .dim_guards import evaluated
from .input_spec import Symbol
from .signature import Signature

__all__ = ["spatial_narrowing", "sufficient_ranges"]

_LOWS = (*range(1, 34), 48, 64, 96, 128, 192, 224, 256)
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 3, 5, 6, 7, 10, 12, 14, 24)
_TINY = 32  # pixels; a model that needs more than this has another reason than its strides
_SECONDS = 3.0


def sufficient_ranges(signature: Signature, conditions: Sequence[str]) -> dict[str, Symbol]:
    """The dims to narrow, with the widest range found within the declared ones that meets all conditions.

    Searched are lower bounds and multiples, by evaluating the conditions alone. Empty where nothing is found.
    """
    symbols = signature.symbols
    names = _involved(symbols, conditions)
    end = time.monotonic() + _SECONDS
    for multiple in _MULTIPLES:
        for low in _LOWS:
            if time.monotonic() > end:
                return {}
            found = {n: s for n in names if (s := _narrowed(symbols[n], low, multiple)) is not None}
            if len(found) == len(names) and _met({**symbols, **found}, conditions):
                return _widened(symbols, found, conditions)
    return {}


def spatial_narrowing(signature: Signature, ranges: Mapping[str, Symbol]) -> Signature | None:
    """The signature with `ranges`, where these only raise the low of spatial dims with no declared range a little.

    None otherwise: a declared range is never narrowed without being asked.
    """
    for name, symbol in ranges.items():
        declared = signature.symbols[name]
        bare = (declared.low, declared.high, declared.multiple) == (1, None, 1)
        if not bare or not signature.is_spatial(name) or symbol.multiple != 1 or symbol.low > _TINY:
            return None
    return signature.with_symbols(ranges) if ranges else None


def _involved(symbols: Mapping[str, Symbol], conditions: Sequence[str]) -> list[str]:
    broken = [c for text in conditions if (c := evaluated(text, symbols)) is not None and c.is_grave]
    return [n for n in symbols if any(n in c.breaks_at for c in broken)]


def _met(symbols: Mapping[str, Symbol], conditions: Sequence[str]) -> bool:
    return all((c := evaluated(text, symbols)) is None or not c.is_grave for text in conditions)


def _widened(
    symbols: Mapping[str, Symbol], found: dict[str, Symbol], conditions: Sequence[str]
) -> dict[str, Symbol]:
    """What is found for all dims alike, taken back for each one that does not need it."""
    for name in list(found):
        for wider in _wider(symbols[name], found[name]):
            if _met({**symbols, **found, name: wider}, conditions):
                found[name] = wider
                break
    return {n: s for n, s in found.items() if s != symbols[n]}


def _wider(declared: Symbol, found: Symbol) -> Iterator[Symbol]:
    yield declared
    for low in _LOWS:
        if low >= found.low:
            return
        if (symbol := _narrowed(declared, low, found.multiple)) is not None:
            yield symbol


def _narrowed(symbol: Symbol, low: int, multiple: int) -> Symbol | None:
    """None where nothing, or one size only, is left."""
    multiple = multiple if symbol.multiple % multiple else symbol.multiple
    if multiple % symbol.multiple:
        return None
    try:
        return dataclasses.replace(symbol, low=max(symbol.low, low), multiple=multiple)
    except UsageError:
        return None
