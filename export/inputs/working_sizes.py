"""Where a model does not run at the sizes chosen for its variable dims: which sizes would it take?"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping

from .signature import Signature

__all__ = ["size_advice"]

_SECONDS = 10.0
_TRIED = (*range(1, 17), 32, 64, 128, 224, 256)


def size_advice(
    signature: Signature, runs: Callable[[Mapping[str, int]], bool], failed: Mapping[str, int] | None = None
) -> str | None:
    """What to write in `--input`, found by trying; None where no size helps.

    `runs` tells whether the model runs at these sizes. `failed`: where it does not, by default the example's.
    """
    symbols, at = signature.symbols, dict(failed or signature.example_sizes())
    end = time.monotonic() + _SECONDS

    def works(**changed: int) -> bool:
        return time.monotonic() < end and runs({**at, **changed})

    for one, other in itertools.permutations(symbols, 2):
        if symbols[other].allows(at[one]) and works(**{other: at[one]}):
            return (
                f"It runs where `{one}` and `{other}` are equal: give both dims the same name "
                f"(tried were {_text({n: at[n] for n in (one, other)})})"
            )
    for name in symbols:
        taken = [size for size in _candidates(signature, name) if works(**{name: size})]
        if taken:
            sizes = " or ".join(map(str, taken[:3])) + (", …" if len(taken) > 3 else "")
            return (
                f"`{name}` was {at[name]}; the model runs with {sizes}. Give `{name}` that number, or a range or "
                f"multiple that it takes ({name}=2..64, {name}%32)"
            )
    return None


def _candidates(signature: Signature, name: str) -> Iterator[int]:
    symbol = signature.symbols[name]
    fixed = {dim for spec in signature.specs for dim in spec.shape or () if isinstance(dim, int)}
    for size in sorted({*_TRIED, *fixed}):
        if symbol.allows(size):
            yield size


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
