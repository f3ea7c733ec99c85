"""The original in a narrower floating type: that of the file, at its ends or inside alone.

Cast as a whole where that is as good: PyTorch's own rounding in the narrow type is then known. A file that was cast with
care keeps in float32 what the narrow type's range does not hold (sums, norms, exponentials); the whole cast overflows
there. Then the original computes in its own type, and every result is rounded to the narrow type's digits, not its range.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..export.buffers import buffers_kept
from .backends.torch import cast, outputs_of
from .original import Original, cloned
from .parity.budget import HOPELESS

if TYPE_CHECKING:
    import torch

__all__ = ["NarrowOriginal", "as_the_original_takes_it", "changed_copy"]

Array = npt.NDArray[Any]


class NarrowOriginal:
    """Called as the model is; floating results come in `dtype`.

    Args:
        model: the original in its `own` dtype.
        narrow: a copy of it cast to `dtype`; None where there is none that runs.
        notes: is told where every result is rounded instead.
    """

    def __init__(
        self, model: Any, own: torch.dtype, narrow: Any, dtype: torch.dtype, notes: dict[str, None]
    ) -> None:
        self._model, self._own, self._narrow, self._dtype = model, own, narrow, dtype
        self._notes = notes
        self._rounded: Any = None
        self._served: list[Any] | None = None  # the inputs on which the cast copy was last found to do
        self.written: set[str] = set()  # names of buffers that a run has written into

    @property
    def keeps_range(self) -> bool:
        """Whether the cast copy does not serve, so that every result is rounded instead."""
        return self._rounded is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch.utils import _pytree

        result = None
        if self._rounded is None and self._narrow is not None:
            with suppress(
                Exception
            ):  # it ran on the first sample; on this one it meets what does not go with its dtype
                result = self._kept(self._narrow, args, kwargs)
            if result is not None and not self._serves(result, args, kwargs):
                result = None
        if result is None:
            result = self._each_result_rounded(args, kwargs)
        return _pytree.tree_map(lambda v: cast(v, self._dtype), result)

    def _serves(self, result: Any, args: Any, kwargs: Any) -> bool:
        """Whether the cast copy is near enough to the original to say what rounding costs.

        The original is run for it once for each sample: not again where the sample is repeated or nudged, and stays finite.
        """
        from torch.utils import _pytree

        leaves = _pytree.tree_leaves((args, kwargs))
        if (
            self._served is not None
            and _within_nudges(leaves, self._served, self._dtype)
            and _all_finite(result)
        ):
            return True
        own_args, own_kwargs = self._in_own(args, kwargs)
        pairs = zip(
            outputs_of(result), outputs_of(self._kept(self._model, own_args, own_kwargs)), strict=False
        )
        if not all(_near(a, b) for a, b in pairs):
            return False
        self._served = cloned(leaves)
        return True

    def _in_own(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        from torch.utils import _pytree

        found: tuple[Any, Any] = _pytree.tree_map(
            lambda v: cast(v, self._own), (cloned(args), cloned(dict(kwargs)))
        )
        return found

    def _each_result_rounded(self, args: Any, kwargs: Any) -> Any:
        if self._rounded is None:
            self._rounded = changed_copy(self._model, lambda t: _digits(t, self._dtype))
            name = str(self._dtype).removeprefix("torch.")
            self._notes[
                f"cast to {name} as a whole the original is not the original any more: it overflows, or does not run. What "
                f"{name} costs is known from the original in {str(self._own).removeprefix('torch.')}, every result rounded "
                f"to the digits of {name}"
            ] = None
        args, kwargs = self._in_own(args, kwargs)
        with _rounding(self._dtype):
            return self._kept(self._rounded, args, kwargs)

    def _kept(self, model: Any, args: Any, kwargs: Any) -> Any:
        """What the model gives; its buffers stay as they are, as does what the caller gave it."""
        with buffers_kept(model) as written:
            result = cloned(model(*cloned(args), **cloned(kwargs)))
        self.written.update(written, getattr(model, "written", ()))
        return result


def changed_copy(model: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of a module with other parameters and buffers; what is no module has none, and is given back."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about copying its own exported modules
        copied = copy.deepcopy(model)
    return copied._apply(function)


def as_the_original_takes_it(original: Original, array: Array) -> Array:
    """An input in its own dtype, rounded where the original is cast to a narrower one and takes it so."""
    import torch

    if original.source is None or array.dtype != np.float32:
        return array
    rounded: Array = _digits(torch.from_numpy(array.copy()), original.deployed).numpy()
    return rounded


def _all_finite(result: Any) -> bool:
    import torch

    return all(bool(v.isfinite().all()) for v in outputs_of(result) if isinstance(v, torch.Tensor))


def _within_nudges(leaves: list[Any], others: list[Any], dtype: torch.dtype) -> bool:
    """Whether they are the others but for a few ULPs of `dtype`, as those of a sample that is run again are."""
    import torch

    few = 4 * torch.finfo(dtype).eps

    def alike(a: Any, b: Any) -> bool:
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return a is b or (type(a) is type(b) and bool(a == b))
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return torch.allclose(a, b, few, few) if a.is_floating_point() else torch.equal(a, b)

    return len(leaves) == len(others) and all(alike(a, b) for a, b in zip(leaves, others, strict=True))


def _near(narrow: Any, own: Any) -> bool:
    """Finite where the original is, and off by no more than a tenth of it, both root mean squares."""
    import torch

    if not isinstance(narrow, torch.Tensor) or not narrow.is_floating_point() or narrow.shape != own.shape:
        return True
    a, b = narrow.double(), own.double()
    finite = b.isfinite()
    if bool((~a.isfinite() & finite).any()):
        return False
    a, b = a[finite], b[finite]
    return not bool((a - b).square().sum() > HOPELESS**2 * b.square().sum())


def _digits(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A floating tensor rounded to the digits of `dtype`, in its own dtype; beyond the range of `dtype`, at both ends, as it is."""
    import torch

    if not value.is_floating_point() or value.itemsize <= dtype.itemsize:
        return value
    rounded = value.to(dtype).to(value.dtype)
    beyond = rounded.isinf() | (value.abs() < torch.finfo(dtype).smallest_normal)
    return torch.where(beyond, value, rounded)


def _rounding(dtype: torch.dtype) -> Any:
    """A dispatch mode that rounds what each operator gives, and what it writes into a tensor."""
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    def rounded(value: Any) -> Any:
        return _digits(value, dtype) if isinstance(value, torch.Tensor) else value

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            aliases = [r.alias_info for r in func._schema.returns]
            if any(a is not None and a.is_write for a in aliases):
                for value in _pytree.tree_leaves(result):
                    if isinstance(value, torch.Tensor) and value.is_floating_point():
                        value.copy_(_digits(value, dtype))
            elif all(a is None for a in aliases):  # a view must stay one: what is written into it counts
                result = _pytree.tree_map(rounded, result)
            return result

    return Mode()  # type: ignore[no-untyped-call,unused-ignore]
