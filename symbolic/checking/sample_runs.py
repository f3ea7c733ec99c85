"""Running an operator on its declared samples, in one way for every check.

Arguments are cloned before each run, so that an operator that writes into one finds it fresh; the results are
the flat list of the exported node's outputs (overwritten arguments last).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import dtypes

if TYPE_CHECKING:
    import torch

    from ..operator import Operator
    from ..samples import Sample

__all__ = ["SampleRun", "map_tensors", "runs"]


@dataclass(frozen=True, slots=True)
class SampleRun:
    """One sample of an operator, drawn in one dtype."""

    op: Operator
    dtype: str
    index: int
    sample: Sample

    def __str__(self) -> str:
        return f"sample {self.index} in {self.dtype} ({self._described()})"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name, as the sample gives them: defaults are left out."""
        positional = (n for n in self.op.interface.arguments if n not in self.op.interface.keyword_only)
        return dict(zip(positional, self.sample.args, strict=False)) | dict(self.sample.kwargs)

    @property
    def undeclared(self) -> str | None:
        """What of this sample the declaration's dtypes do not allow."""
        for name, value in self.op.interface.bind((), self.arguments).tensors.items():
            for t in value if isinstance(value, (list, tuple)) else [value]:
                if t is not None and not self.op.types.accepts(name, dtypes.name_of(t.dtype)):
                    return f"`{name}` is {dtypes.name_of(t.dtype)}"
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
        import torch

        def fresh(t: torch.Tensor) -> torch.Tensor:
            # clone() would close the gaps of a strided tensor only where they are: the strides are the test.
            copy = (
                torch.empty_strided(t.size(), t.stride(), dtype=t.dtype).copy_(t) if _dense(t) else t.clone()
            )
            return copy if convert is None else convert(copy)

        args = [map_tensors(a, fresh) for a in self.sample.args]
        return args, {n: map_tensors(a, fresh) for n, a in self.sample.kwargs.items()}

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """The outputs of one call, flat, as the exported node has them."""
        result = function(*args, **kwargs)
        names = (n for n in self.op.interface.arguments if n not in self.op.interface.keyword_only)
        return self.op.flatten_outputs(result, dict(zip(names, args, strict=False)) | dict(kwargs))

    def reference(self) -> list[torch.Tensor]:
        """The outputs of the reference in the sample's own dtype."""
        return self.run(self.op.reference)

    def exact(self) -> list[torch.Tensor]:
        """The outputs of the reference in float64."""
        return self.run(self.op.reference, lambda t: t.double() if t.is_floating_point() else t)

    def _described(self) -> str:
        import torch

        def one(v: Any) -> str:
            if isinstance(v, torch.Tensor):
                text = f"[{','.join(map(str, v.shape))}]"
                own = dtypes.name_of(v.dtype)
                return text if own == self.dtype else f"{own}{text}"
            return f"[{', '.join(map(one, v))}]" if isinstance(v, (list, tuple)) else repr(v)

        return ", ".join(f"{n}: {one(v)}" for n, v in self.arguments.items())


def _dense(t: torch.Tensor) -> bool:
    """Whether no two elements share memory (an expanded tensor's do)."""
    return all(stride != 0 for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1)


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
    for dtype in names or op.types.drawn:
        for index, sample in enumerate(op.make_samples(dtype)):
            yield SampleRun(op, dtype, index, sample)
