"""Look-alikes: where an output fails, does the file compute a known variant of the original?

GELU with erf and with tanh differ by less than 5e-4: an attribute lost on the way swaps one for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy.typing as npt

from ..backends import Sample
from ..original import Expected, Original, is_float
from ..parity.judge import judge
from ..parity.metrics import measure

__all__ = ["followed_variant"]

Array = npt.NDArray[Any]


def followed_variant(
    original: Original, sample: Sample, got: Sequence[Array], expected: Sequence[Expected]
) -> str | None:
    """What the file follows instead of the original, if one of the known variants fits its outputs."""
    if len(got) != len(expected):
        return None
    for text, mode in (("GELU with the other `approximate` (erf for tanh, or tanh for erf)", _gelu_swapped),):
        try:
            with mode():
                arrays = original.arrays(sample)
        except Exception:  # the variant does not run: then it is not the explanation
            continue
        if len(arrays) == len(got) and all(
            _fits(g, a, e) for g, a, e in zip(got, arrays, expected, strict=True)
        ):
            return f"the outputs are those of {text}: the file follows that form, the original the other"
    return None


def _fits(got: Array, variant: Array, expected: Expected) -> bool:
    if got.shape != variant.shape or got.dtype != variant.dtype:
        return False
    if not is_float(got):
        return bool((got == variant).all())
    budget = expected.budget
    metrics = measure(got, variant, None, rtol=budget.rtol, atol=budget.atol)
    return judge(metrics, budget)[0] == "passed"


def _gelu_swapped() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Swap(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            if func is torch.ops.aten.gelu.default:
                kwargs["approximate"] = "none" if kwargs.get("approximate", "none") == "tanh" else "tanh"
            return func(*args, **kwargs)

    return Swap()  # type: ignore[no-untyped-call]
