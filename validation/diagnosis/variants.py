"""Look-alikes: where an output fails, does the file compute a known variant of the original?

Attributes get lost on the way, and another form, epsilon or rounding takes the place of the one that was meant. Each
variant runs the original with one kind of operator replaced; where the file's outputs fit that, the reader is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ..backends import Sample
from ..original import Expected, Original
from ..parity.float_types import is_float
from ..parity.judge import budget_used, judge
from ..parity.metrics import measure
from .residual import Elsewhere, nowhere

__all__ = ["Variant", "followed_variant", "variants"]

_OTHER_ROUNDING = 4.0  # times the budget
_EXPLAINED = 20.0  # how much smaller the difference must become

Array = npt.NDArray[Any]
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Variant:
    """`replace` gets an ATen operator, its arguments and keywords, and returns those to call instead; None leaves it."""

    text: str
    replace: Callable[[Any, tuple[Any, ...], dict[str, Any]], Call | None]


def followed_variant(
    original: Original,
    sample: Sample,
    got: Sequence[Array],
    expected: Sequence[Expected],
    elsewhere: Elsewhere = nowhere,
) -> str | None:
    """What the file follows instead of the original, if one of the known variants fits its outputs on every sample."""
    if len(got) != len(expected):
        return None
    for variant in _concerned(original, sample):
        if not _explains(variant, original, sample, got, expected):
            continue
        if all(_explains(variant, original, s, g, e) for s, g, e in elsewhere()):
            return (
                f"the outputs are those of {variant.text}: the file follows that form, the original the other"
            )
    return None


def _concerned(original: Original, sample: Sample) -> list[Variant]:
    """The variants that replace anything in this model: found in one run."""
    from torch.utils._python_dispatch import TorchDispatchMode

    waiting = list(variants())
    found: set[int] = set()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            for k, variant in enumerate(waiting):
                if k not in found and variant.replace(func, tuple(args), kwargs) is not None:
                    found.add(k)
            return func(*args, **kwargs)

    try:
        with Watching():  # type: ignore[no-untyped-call]
            original.arrays(sample)
    except Exception:  # a model that does not run under a mode of torch
        return []
    return [waiting[k] for k in sorted(found)]


def _explains(
    variant: Variant, original: Original, sample: Sample, got: Sequence[Array], expected: Sequence[Expected]
) -> bool:
    mode = _replacing(variant)
    try:
        with mode:
            arrays = original.arrays(sample)
    except Exception:  # the variant does not run: then it is not the explanation
        return False
    return len(arrays) == len(got) and all(
        _fits(g, a, e) for g, a, e in zip(got, arrays, expected, strict=True)
    )


def _fits(got: Array, variant: Array, expected: Expected) -> bool:
    if got.shape != variant.shape or got.dtype != variant.dtype:
        return False
    if not is_float(got):
        return bool((got == variant).all())
    budget = expected.budget
    metrics = measure(got, variant, tolerance=budget.tolerance())
    verdict = judge(metrics, budget)[0]
    if verdict == "passed":
        return True
    before = measure(got, expected.array, tolerance=budget.tolerance())
    if verdict == "not checked":  # agreement proves nothing there, so that it explains no failure
        return judge(before, budget)[0] != "failed"
    # The budget is of the original's arithmetic; that of the variant rounds otherwise, by little beside what it explains.
    left = budget_used(metrics, budget)
    return left <= min(_OTHER_ROUNDING, budget_used(before, budget) / _EXPLAINED)


def _replacing(variant: Variant) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Replacing(TorchDispatchMode):
        hits = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            call = variant.replace(func, tuple(args), kwargs)
            if call is None:
                return func(*args, **kwargs)
            self.hits += 1
            instead, new_args, new_kwargs = call
            return instead(*new_args, **new_kwargs)

    return Replacing()  # type: ignore[no-untyped-call]


def variants() -> Iterator[Variant]:
    """The known ones, the likeliest first."""
    import torch

    aten = torch.ops.aten

    def keyword(op: Any, name: str, values: dict[Any, Any]) -> Any:
        """Another value of a keyword of `op`; `values` maps what is given (None: nothing) to what takes its place."""

        def replace(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
            given = kwargs.get(name)
            return (func, args, {**kwargs, name: values[given]}) if func is op and given in values else None

        return replace

    def argument(ops: tuple[Any, ...], place: int, value: Callable[[Any], Any], missing: Any) -> Any:
        """Another value of a positional argument; `missing` is its default, which may have been left out."""

        def replace(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
            if func not in ops or (len(args) <= place and missing is None):
                return None
            full = list(args)
            names = [a.name for a in func._schema.arguments]
            defaults = [a.default_value for a in func._schema.arguments]
            while len(full) <= place:
                full.append(kwargs.get(names[len(full)], defaults[len(full)]))
            new = value(full[place])
            if new == full[place]:
                return None
            full[place] = new
            return func, tuple(full), {k: v for k, v in kwargs.items() if k not in names[: len(full)]}

        return replace

    def other(op: Any, instead: Callable[..., Any]) -> Any:
        def replace(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
            return (instead, args, {}) if func is op else None

        return replace

    def always(value: float) -> Callable[[Any], Any]:
        return lambda _: value

    def away(x: Any) -> Any:
        return torch.sign(x) * torch.floor(x.abs() + 0.5)

    # one way at a time, so that the reader is told which side has which
    by_tanh, by_erf = {None: "tanh", "none": "tanh"}, {"tanh": "none"}
    yield Variant(
        "GELU by tanh (`approximate='tanh'`), where the original's is by erf",
        keyword(aten.gelu.default, "approximate", by_tanh),
    )
    yield Variant(
        "GELU by erf (`approximate='none'`), where the original's is by tanh",
        keyword(aten.gelu.default, "approximate", by_erf),
    )
    yield Variant(
        "GELU as x sigmoid(1.702 x)", other(aten.gelu.default, lambda x: x * torch.sigmoid(1.702 * x))
    )
    norms = (aten.native_layer_norm.default,)
    batch = (aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default)
    for eps in (1e-5, 1e-6, 1e-12, 1e-3):
        yield Variant(f"layer normalisation with epsilon {eps:g}", argument(norms, 4, always(eps), None))
    for eps in (1e-5, 1e-3):
        for i, op in enumerate(batch):
            yield Variant(
                f"batch normalisation with epsilon {eps:g}", argument((op,), 7 - i, always(eps), None)
            )
    yield Variant("rounding halves away from zero", other(aten.round.default, away))
    for kind in ("Tensor", "Scalar"):
        remainder, fmod = getattr(aten.remainder, kind), getattr(aten.fmod, kind)
        yield Variant("a remainder with the sign of the dividend", other(remainder, fmod))
        yield Variant("a remainder with the sign of the divisor", other(fmod, remainder))
    yield Variant(
        "average pooling that counts the padding differently",
        argument((aten.avg_pool2d.default, aten.avg_pool3d.default), 5, lambda v: not v, True),
    )
    yield Variant(
        "bilinear resizing with the other `align_corners`",
        argument((aten.upsample_bilinear2d.default,), 2, lambda v: not v, None),
    )
    yield Variant("ELU with alpha 1", argument((aten.elu.default,), 1, lambda _: 1.0, 1.0))
    yield Variant("leaky ReLU with slope 0.01", argument((aten.leaky_relu.default,), 1, lambda _: 0.01, 0.01))
    yield Variant("softplus with beta 1", argument((aten.softplus.default,), 1, lambda _: 1.0, 1.0))
