"""Test inputs, declared with the operator and drawn in the dtype under test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from . import dtypes

if TYPE_CHECKING:
    import torch

__all__ = ["Draw", "Sample", "SampleFunction", "collect"]

_WHOLE = 8

SampleFunction = Callable[["Draw"], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Arguments for one call. `smooth`: the operator is differentiable there, numerically too."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    smooth: bool = True

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor among the arguments, lists flattened."""
        import torch

        found = []
        for value in (*self.args, *self.kwargs.values()):
            found += [
                v
                for v in (value if isinstance(value, (list, tuple)) else [value])
                if isinstance(v, torch.Tensor)
            ]
        return found


class Draw:
    """Draws tensors of the dtype under test, the same ones for the same seed.

    ::

        @swish.samples
        def _(draw):
            yield draw(3, 5), 1.0               # normal, shape (3, 5)
            yield draw(4, 4, low=0, high=2)     # uniform
            yield draw.edges()                  # 0, -0, inf, nan, huge, tiny
            yield draw.strided(3, 5)            # not contiguous
            yield draw.call(draw(8), beta=0.5)  # keywords
    """

    def __init__(self, dtype: str = "float32", seed: int = 0) -> None:
        import torch

        self.dtype: torch.dtype = dtypes.torch_dtype(dtype)
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(
        self, *shape: int, low: float | None = None, high: float | None = None, dtype: str | None = None
    ) -> torch.Tensor:
        """Normal(0, 1), or uniform in [low, high) where bounds are given; whole numbers need bounds.

        Where the dtype under test is one of whole numbers, and the sample names none, they lie in [-8, 8), or
        [0, 8) without sign: small enough that products stay exact.
        """
        import torch

        kind = dtypes.torch_dtype(dtype) if dtype else self.dtype
        if kind == torch.bool:
            return torch.randint(0, 2, shape, generator=self._generator).to(torch.bool)
        if not (kind.is_floating_point or kind.is_complex):
            first, last = self._whole_bounds(kind, low, high, asked=dtype is not None)
            return torch.randint(first, last, shape, generator=self._generator).to(kind)
        # Drawn in float64 and rounded once: every dtype sees the same numbers.
        if low is None and high is None:
            return torch.randn(shape, generator=self._generator, dtype=torch.float64).to(kind)
        a, b = 0.0 if low is None else low, 1.0 if high is None else high
        return (torch.rand(shape, generator=self._generator, dtype=torch.float64) * (b - a) + a).to(kind)

    def _whole_bounds(
        self, kind: torch.dtype, low: float | None, high: float | None, asked: bool
    ) -> tuple[int, int]:
        name = dtypes.name_of(kind)
        if high is None and low is None and not asked:
            return (-_WHOLE if kind.is_signed else 0), _WHOLE
        if high is None:
            raise DeclarationError(
                f"draw(..., dtype={name!r}) needs bounds, which whole numbers are meant to lie in: "
                f"draw(4, low=0, high=10, dtype={name!r}); `high` itself is not drawn"
            )
        if int(high) <= int(low or 0):
            raise DeclarationError(f"draw(low={low}, high={high}): there is no whole number in these bounds")
        return int(low or 0), int(high)

    def strided(self, *shape: int) -> torch.Tensor:
        """A view with reversed strides and gaps: what a transposed, sliced tensor looks like."""
        wide = self(*(2 * s for s in reversed(shape)))
        return wide[tuple(slice(None, None, 2) for _ in shape)].permute(*reversed(range(len(shape))))

    def values(self, *numbers: float) -> torch.Tensor:
        """These numbers, shape (len,)."""
        import torch

        return torch.tensor(numbers, dtype=torch.float64).to(self.dtype)

    def edges(self) -> torch.Tensor:
        """The numbers on which kernels differ: signed zeros, subnormals, limits, infinities, NaN."""
        import torch

        if self.dtype == torch.bool:
            return self.values(0, 1)
        if not self.dtype.is_floating_point:
            limits = torch.iinfo(self.dtype)
            return torch.tensor([0, 1, 2, limits.min, limits.max, limits.max - 1], dtype=self.dtype)
        info = torch.finfo(self.dtype)
        return self.values(
            0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 88.0, -88.0, 104.0, -104.0, info.tiny, -info.tiny,
            info.smallest_normal / 4, info.eps, info.max, -info.max,
            float("inf"), -float("inf"), float("nan"),
        )  # fmt: skip

    def call(self, *args: Any, smooth: bool = True, **kwargs: Any) -> Sample:
        """A sample with keyword arguments; `smooth=False` where there is no numerical derivative (a kink)."""
        return Sample(args, kwargs, smooth)


def collect(function: SampleFunction, dtype: str, seed: int = 0) -> list[Sample]:
    """Run a sample function: tuples, single tensors and `draw.call` become Samples."""
    import torch

    items = function(Draw(dtype, seed))
    if items is None or isinstance(items, torch.Tensor) or not isinstance(items, Iterable):
        got = "nothing (None)" if items is None else f"one {type(items).__name__}"
        raise DeclarationError(
            f"the samples function returned {got}; expected that it yields one call after another: "
            "`yield draw(3, 4)`, `yield draw(3, 4), 0.5`"
        )
    samples = []
    for item in items:
        if isinstance(item, Sample):
            sample = item
        elif isinstance(item, Sequence) and not isinstance(item, str):
            sample = Sample(tuple(item))
        else:
            sample = Sample((item,))
        finite = all(bool(torch.isfinite(t).all()) for t in sample.tensors() if t.is_floating_point())
        samples.append(sample if finite else Sample(sample.args, sample.kwargs, smooth=False))
    return samples
