"""Running an operator on its declared samples, in one way for every check.

Arguments are cloned before each run, so that an operator that writes into one finds it fresh; the results are
the flat list of the exported node's outputs (overwritten arguments last).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import dtypes
from ..memory_layouts import copied

if TYPE_CHECKING:
    import torch

    from ..operator import Operator
    from ..samples import Sample
    from .tally import Tally

__all__ = [
    "MoreThanATenthOff",
    "SampleRun",
    "accepted_dtypes",
    "map_tensors",
    "runs",
    "same_values",
    "sound_runs",
]


class MoreThanATenthOff(Exception):
    """A reference that gives other values in float64: it cannot judge what anything else gives."""


@dataclass(frozen=True, slots=True)
class SampleRun:
    """One sample of an operator, drawn in one dtype."""

    op: Operator
    dtype: str
    index: int
    sample: Sample

    def __str__(self) -> str:
        return f"sample {self.index} in {self.dtype} ({self.described()})"

    @property
    def positional(self) -> list[str]:
        """The arguments that can be given by position."""
        return [n for n in self.op.interface.arguments if n not in self.op.interface.keyword_only]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as the sample gives them: defaults are left out."""
        return dict(zip(self.positional, self.sample.args, strict=False)) | dict(self.sample.kwargs)

    @property
    def misfit(self) -> str | None:
        """What of this sample the declaration does not allow, and what to do."""
        interface = self.op.interface
        surplus = len(self.sample.args) > len(self.positional)
        unknown = [n for n in self.sample.kwargs if n not in interface.arguments]
        if surplus or unknown:
            given = f"{len(self.sample.args)} arguments" + "".join(f", {n}=" for n in self.sample.kwargs)
            return f"the sample has {given}; the operator takes ({', '.join(interface.arguments)})"
        for name, value in interface.bind((), self.arguments).tensors.items():
            for t in value if isinstance(value, (list, tuple)) else [value]:
                if t is not None and not self.op.types.accepts(name, dtypes.name_of(t.dtype)):
                    return (
                        f"`{name}` is {dtypes.name_of(t.dtype)}, which `dtypes` does not list: "
                        "list it, or draw it as `draw(..., dtype=...)`"
                    )
        return None

    def run(
        self, function: Callable[..., Any], convert: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> list[torch.Tensor]:
        """Call `function` with copies of the arguments, converted first where `convert` is given."""
        return self.call(function, *self.copies(convert))

    def copies(
        self, convert: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments, every tensor a copy."""

        def fresh(t: torch.Tensor) -> torch.Tensor:
            copy = t.clone() if _repeated(t) else copied(t)  # strides and all: they are the test
            return copy if convert is None else convert(copy)

        args = [map_tensors(a, fresh) for a in self.sample.args]
        return args, {n: map_tensors(a, fresh) for n, a in self.sample.kwargs.items()}

    def changed(self, function: Callable[[torch.Tensor], torch.Tensor]) -> SampleRun:
        """The run on other tensors."""
        args = tuple(map_tensors(a, function) for a in self.sample.args)
        kwargs = {n: map_tensors(a, function) for n, a in self.sample.kwargs.items()}
        return replace(self, sample=replace(self.sample, args=args, kwargs=kwargs))

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """The outputs of one call, flat, as the exported node has them."""
        result = function(*args, **kwargs)
        return self.op.flatten_outputs(result, dict(zip(self.positional, args, strict=False)) | dict(kwargs))

    def reference(self) -> list[torch.Tensor]:
        """The outputs of the reference in the sample's own dtype."""
        return self.run(self.op.reference)

    def exact(self) -> list[torch.Tensor]:
        """The outputs of the reference in float64.

        Raises `MoreThanATenthOff` where they are not the rounded ones: a kernel that reads bytes takes those of float64 for
        its own dtype's, and gives anything; and where rounding itself costs a tenth, a budget from it allows anything.
        """
        exact = self.run(self.op.reference, lambda t: t.double() if t.is_floating_point() else t)
        for k, (own, wide) in enumerate(zip(self.reference(), exact, strict=True)):
            if not _near(own, wide):
                raise MoreThanATenthOff(
                    f"in float64 the reference gives output {k} more than a tenth off the one in {self.dtype}: it reads "
                    "bytes as those of another dtype, or rounding costs it as much, so it cannot judge"
                )
        return exact

    def described(self) -> str:
        """The arguments, tensors as their shapes."""
        import torch

        def one(v: Any) -> str:
            if isinstance(v, torch.Tensor):
                text = f"[{','.join(map(str, v.shape))}]"
                own = dtypes.name_of(v.dtype)
                return text if own == self.dtype else f"{own}{text}"
            return f"[{', '.join(map(one, v))}]" if isinstance(v, (list, tuple)) else repr(v)

        surplus = self.sample.args[len(self.positional) :]
        return ", ".join([*(f"{n}: {one(v)}" for n, v in self.arguments.items()), *map(one, surplus)])


def _near(own: torch.Tensor, wide: torch.Tensor) -> bool:
    """Off by a tenth at most, and what is nothing beside one; both root mean squares. Whole numbers may be near ties."""
    import torch

    if own.shape != wide.shape or not (own.is_floating_point() and wide.is_floating_point()):
        return own.shape == wide.shape
    noise = 16 * torch.finfo(own.dtype).eps
    own, wide = own.detach().double(), wide.detach().double()
    # what overflows in the narrow dtype is the budget's; float64 has room for all that is finite there
    if (own.isfinite() & ~wide.isfinite()).sum() > 0.1 * own.numel():
        return False
    finite = own.isfinite() & wide.isfinite()
    own, wide = own[finite], wide[finite]
    size = max(1.0, own.abs().amax().item()) if own.numel() else 1.0  # or the square of a large number is Inf
    off, whole = ((own - wide) / size).square().sum().sqrt(), (own / size).square().sum().sqrt()
    return bool(off <= 0.1 * whole + noise / size * own.numel() ** 0.5)


def _repeated(t: torch.Tensor) -> bool:
    """Whether elements share memory, as an expanded tensor's do: nothing can be written into it."""
    return any(stride == 0 and size > 1 for stride, size in zip(t.stride(), t.shape, strict=True))


def same_values(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """The same numbers in the same dtypes and shapes, NaN where NaN is."""
    return len(a) == len(b) and all(
        s.shape == t.shape and s.dtype == t.dtype and bool(((s == t) | ((s != s) & (t != t))).all())
        for s, t in zip(a, b, strict=True)
    )


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """An argument with its tensors replaced, lists of tensors too."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return [map_tensors(v, function) for v in value]
    return value


def runs(op: Operator, names: Sequence[str] | None = None) -> Iterator[SampleRun]:
    """Every sample in every dtype it is declared for (or in `names`)."""
    for dtype in names or accepted_dtypes(op):
        for index, sample in enumerate(op.make_samples(dtype)):
            yield SampleRun(op, dtype, index, sample)


def sound_runs(
    op: Operator, tally: Tally, names: Sequence[str] | None = None
) -> Iterator[tuple[SampleRun, list[torch.Tensor]]]:
    """The runs that the reference accepts, with its results; the others are noted as not checked."""
    every: list[SampleRun] = []
    for dtype in names or accepted_dtypes(op):
        try:
            every += runs(op, (dtype,))
        except Exception:  # noqa: PERF203
            tally.unchecked.append(f"{dtype}: the samples cannot be drawn")
    for run in every:
        if run.misfit:
            continue  # the declaration check says so
        try:
            real = run.reference()
        except Exception as e:
            tally.unchecked.append(f"the reference fails ({type(e).__name__})")
            continue
        yield run, real


def accepted_dtypes(op: Operator) -> tuple[str, ...]:
    """The dtypes to check in: the declared ones; where none are, those that the operator takes."""
    if not op.types.unspecified:
        return op.types.drawn
    found = [d for d in op.types.drawn if _takes(op, d)]
    return tuple(found) or op.types.drawn


def _takes(op: Operator, dtype: str) -> bool:
    for index, sample in enumerate(op.make_samples(dtype)):
        try:
            SampleRun(op, dtype, index, sample).reference()
        except Exception:
            continue
        return True
    return False
