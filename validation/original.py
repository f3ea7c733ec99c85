"""What the PyTorch original says of a sample: its outputs, the wider ones, and the budget of each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy.typing as npt

from ..export.buffers import buffers_kept
from .backends import Sample
from .backends.torch import Widened, arrays_of, cast, described, evaluating, narrowest, outputs_of
from .float16_range import first_beyond
from .own_error import Again, OwnError
from .own_runs import not_finite, scale_of, ties, unsteady
from .parity import budget as parity
from .parity.budget import Budget
from .parity.float_types import is_float
from .rounded import each_step_rounded

__all__ = ["Expected", "Original", "OriginalFailed", "callable_of", "cloned"]

Array = npt.NDArray[Any]


class OriginalFailed(Exception):
    """The original raised on a sample; the message says what."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One output of the original.

    Attributes:
        array: in the deployed dtype.
        wide: the same in the wider dtype; None if there is none, or for integers and booleans.
        budget: what a runtime may differ by.
        unsteady: why the output cannot serve as a reference; empty if it can.
        note: for the reader, such as near ties behind an integer output.
        undecided: of an integer output, what the wider run gives instead, where it differs: either may be.
        overflows: where the original leaves float16's range, in words, if it is deployed in it and suffers from that.
        again: a second, longer look at the budget, for an output that fails on the first; None if there is none.
        number: a Python number, which an exporter may make an output or leave out.
        apart: the file has another floating dtype than the original, and is judged in its own.
    """

    array: Array
    wide: Array | None
    budget: Budget
    unsteady: str = ""
    note: str = ""
    number: bool = False
    apart: bool = False
    undecided: Array | None = None
    overflows: str = ""
    again: Callable[[], Budget] | None = field(default=None, repr=False)


@dataclass
class Original:
    """The model, and the copies of it in other precisions, made when first needed.

    Where the file has another precision (`precision`): `source` is the original in its `own` dtype, `model` its
    copy in the `deployed` one, `apart` is set, and `unknown` says why there is no such copy.
    `written`: names of buffers that a run has written into.
    """

    model: Any
    atol: float | None = None
    rtol: float | None = None
    seed: int = 0
    notes: dict[str, None] = field(default_factory=dict)
    source: Any = None
    own: Any = None
    deployed: Any = None
    apart: bool = False
    unknown: str = ""
    written: set[str] = field(default_factory=set)
    _wide: Widened | None = None

    @property
    def computes_in(self) -> str:
        """Its own dtype, where the file has another; else empty."""
        return str(self.own).removeprefix("torch.") if self.source is not None else ""

    def call(self, sample: Sample) -> Callable[[], Any]:
        """The bare call, for timing, on copies of the tensors: the model may write into them."""
        from torch.utils import _pytree

        args, kwargs = cloned(sample.args), cloned(dict(sample.kwargs))
        if self.source is None:
            return lambda: self.model(*args, **kwargs)
        args, kwargs = _pytree.tree_map(lambda v: cast(v, self.own), (args, kwargs))
        return lambda: self.source(*args, **kwargs)

    def expected(self, sample: Sample) -> list[Expected]:
        """Run the original. Raises OriginalFailed if the model raises."""
        try:
            with self._buffers_kept() as written:
                # copied before buffers are put back, which an output may be
                leaves = cloned(outputs_of(self.model(*cloned(sample.args), **cloned(dict(sample.kwargs)))))
            self.written.update(written, getattr(self.model, "written", ()))
            arrays = arrays_of(leaves)
            again = self._arrays(sample.args, sample.kwargs)
        except Exception as error:
            raise OriginalFailed(described(error)) from error
        if any(hasattr(v, "is_complex") and v.is_complex() for v in leaves):
            self.notes["complex outputs are compared as pairs of real numbers (view_as_real)"] = None
        if self.atol is not None or self.rtol is not None:
            budget = parity.user(self.atol, self.rtol)
            wide: list[Array | None] = [None] * len(arrays)
            budgets = [budget if is_float(a) else parity.EXACT for a in arrays]
            look: Callable[[], list[Budget]] | None = None
        else:
            wide, budgets, look = self._derived(sample, arrays)
        beyond = self._overflows(sample, arrays, wide, budgets)
        return [
            Expected(
                a,
                w if is_float(a) else None,
                b,
                unsteady(a, c) or self.unknown,
                ties(a, w),
                not hasattr(v, "shape"),
                self.apart,
                None if w is None or is_float(a) or w.dtype != a.dtype or (w == a).all() else w,
                beyond if is_float(a) else "",
                Again(look, i) if look is not None and is_float(a) else None,
            )
            for i, (v, a, w, b, c) in enumerate(zip(leaves, arrays, wide, budgets, again, strict=True))
        ]

    def _overflows(
        self, sample: Sample, arrays: list[Array], wide: list[Array | None], budgets: list[Budget]
    ) -> str:
        """Where it leaves float16's range, if it is deployed in float16 and an output is not what it is in float64."""
        if not any(
            a.dtype.name == "float16" and (b.hopeless or not_finite(a, w))
            for a, w, b in zip(arrays, wide, budgets, strict=True)
        ):
            return ""
        beyond = first_beyond(self.source or self.model, sample)
        return "" if beyond is None else f"{beyond.text}, and overflows"

    def _buffers_kept(self) -> AbstractContextManager[list[str]]:
        """Of the module that runs: `model` itself, or the `source` within it."""
        import torch

        return buffers_kept(
            self.model if isinstance(self.model, torch.nn.Module) else self.source or self.model
        )

    def arrays(self, sample: Sample) -> list[Array]:
        """The outputs of one run, in the deployed dtype."""
        return self._arrays(sample.args, sample.kwargs)

    def _arrays(self, args: Any, kwargs: Any) -> list[Array]:
        with self._buffers_kept():
            return arrays_of(cloned(self.model(*cloned(args), **cloned(dict(kwargs)))))

    def _derived(
        self, sample: Sample, arrays: list[Array]
    ) -> tuple[list[Array | None], list[Budget], Callable[[], list[Budget]] | None]:
        import torch

        leaves = [*sample.args, *sample.kwargs.values()]
        deployed = self.deployed or narrowest(self.model, _tensors(leaves)) or torch.float32
        # nothing is wider than float64: the error of a float32 run tells, 2**29 times larger
        reverse = deployed == torch.float64
        targets = [torch.float32] if reverse else [torch.float64]
        if deployed.itemsize < 4:
            targets.append(torch.float32)
        why = ""
        for target in targets:
            wide = self._other(sample, target, deployed, arrays)
            if isinstance(wide, str):
                why = why or wide
                continue
            return self._budgets(sample, arrays, wide, target, deployed, reverse)
        if any(is_float(a) for a in arrays):
            self.notes[f"no wider reference: {why}"] = None
        blind = [
            parity.blind(scale_of(a), a.dtype, "no wider reference") if is_float(a) else parity.EXACT
            for a in arrays
        ]
        return [None] * len(arrays), blind, None

    def _budgets(
        self,
        sample: Sample,
        arrays: list[Array],
        wide: list[Array],
        target: Any,
        deployed: Any,
        reverse: bool,
    ) -> tuple[list[Array | None], list[Budget], Callable[[], list[Budget]]]:
        wider = self._wide

        def stepwise(args: Any, kwargs: Any) -> list[Array]:
            with each_step_rounded(deployed):
                return self._arrays(args, kwargs)

        own = OwnError(
            (sample.args, sample.kwargs),
            (arrays, wide),
            (
                self._arrays,
                lambda args, kwargs: (
                    arrays_of(wider.run(cloned(args), cloned(dict(kwargs)))) if wider else []
                ),
                None if reverse else stepwise,
            ),
            [i for i, a in enumerate(arrays) if is_float(a)],
            self.seed,
            reverse,
        )
        source = _source(target, reverse, wider.narrow_ops if wider else set())

        kinds = [a.dtype if is_float(a) else None for a in arrays]  # not the arrays: they may go to the disk

        def budgets(errors: list[Any], source: str, longer: bool = False) -> list[Budget]:
            return [
                parity.EXACT if kind is None else parity.derived(e, kind, source, longer)
                for e, kind in zip(errors, kinds, strict=True)
            ]

        @cache
        def second() -> list[Budget]:
            with evaluating(self.model):
                return budgets(own.second(), f"{source}; more runs, each step rounded", True)

        return ([None] * len(arrays) if reverse else list(wide)), budgets(own.first(), source), second

    def _other(self, sample: Sample, target: Any, deployed: Any, arrays: list[Array]) -> list[Array] | str:
        """The outputs in another precision, or why there are none."""
        if self._wide is None or self._wide.dtype != target:
            self._wide = Widened(self.source or self.model, target, deployed)
        result = self._wide.run(cloned(sample.args), cloned(dict(sample.kwargs)))
        if not self._wide.available:
            return self._wide.why_not
        wide = arrays_of(result)
        if [w.shape for w in wide] != [a.shape for a in arrays]:
            return f"in {str(target).removeprefix('torch.')} the model's outputs have other shapes"
        return wide


def callable_of(model: Any) -> Any:
    """What to call: a module, or the module of an `ExportedProgram` or of a loaded model file."""
    import torch

    for attribute in ("module", "program"):  # export.load.LoadedModel
        inner = getattr(model, attribute, None)
        if inner is not None and hasattr(model, "example_args"):
            return callable_of(inner)
    if isinstance(model, torch.export.ExportedProgram):
        return model.module()
    return model


def _source(target: Any, reverse: bool, narrow_ops: set[str]) -> str:
    name = str(target).removeprefix("torch.")
    label = (
        "the model's own error in float32, times 2**-29"
        if reverse
        else f"the original's own error against {name}"
    )
    if narrow_ops:
        label += f" (no {name} kernel, so run in the deployed dtype: {', '.join(sorted(narrow_ops))})"
    return label


def _tensors(values: Any) -> list[Any]:
    from torch.utils import _pytree

    return list(_pytree.tree_leaves(values))


def cloned(values: Any) -> Any:
    """The same with every tensor copied, strides and all, so that a model writing into its inputs cannot spoil the sample."""
    import torch
    from torch.utils import _pytree

    from ..symbolic.memory_layouts import copied

    return _pytree.tree_map(lambda v: copied(v) if isinstance(v, torch.Tensor) else v, values)
