"""A side that differs from itself: two runs on the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..parity.float_types import is_float
from ..record import Finding

__all__ = ["differs_from_itself"]

Array = npt.NDArray[Any]

KIND = "nondeterminism"


def differs_from_itself(
    first: Sequence[Array], again: Sequence[Array], names: Sequence[str], backend: str, sample: str
) -> Iterator[Finding]:
    """A finding for each output of a backend whose second run gave other values."""
    for name, a, b in zip(names, first, again, strict=True):
        if a.shape != b.shape:
            text = f"shape {list(a.shape)}, then {list(b.shape)}"
        else:
            x, y = (v.astype(np.float64) if is_float(v) else v for v in (a, b))
            with np.errstate(all="ignore"):
                same = (x == y) | ((x != x) & (y != y))  # NaN equals NaN here
                count = int((~same).sum())
                if not count:
                    continue
                gap = np.abs(np.where(same, 0.0, x.astype(np.float64) - y.astype(np.float64)))
            text = f"{count} of {a.size} elements, by up to {float(np.nanmax(gap)):.2g}"
        yield Finding(
            KIND,
            "note",
            f"{backend} differs from itself in {name} on {sample}: {text}",
            where=f"{backend}, {name}",
            advice="its difference from the original is no smaller than that; look for random nodes and atomic additions",
        )
