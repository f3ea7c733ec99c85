"""The PyTorch original: run as given, run twice, run wider."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from ...export.buffers import buffers_kept
from ...ort_ops.arrays import to_array

if TYPE_CHECKING:
    import torch

__all__ = [
    "Widened",
    "arrays_of",
    "cast",
    "evaluating",
    "narrowest",
    "nudged",
    "outputs_of",
]

Array = npt.NDArray[Any]


def outputs_of(result: Any) -> list[Any]:
    """The leaves of a model's result as exporters flatten them: tensors and numbers, no None."""
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(result) if leaf is not None]


def arrays_of(result: Any) -> list[Array]:
    """The leaves as arrays. Exporters make a Python number a tensor of no dims (int64, float32 or bool)."""
    import torch

    return [to_array(v if isinstance(v, torch.Tensor) else torch.as_tensor(v)) for v in outputs_of(result)]


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Eval mode, no gradients; every submodule's own mode is restored at the end."""
    import torch

    modes: list[tuple[Any, bool]] = []
    if isinstance(model, torch.nn.Module):
        modes = [(m, m.training) for m in model.modules()]
        if any(training for _, training in modes):
            try:
                model.eval()
            except NotImplementedError:  # the module of an ExportedProgram: its mode was fixed at export
                modes = []
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training


def narrowest(model: Any, values: Sequence[Any]) -> torch.dtype | None:
    """The narrowest floating dtype among parameters, buffers and inputs: the one the model is deployed in."""
    import torch

    found = [v.dtype for v in values if isinstance(v, torch.Tensor)]
    if isinstance(model, torch.nn.Module):
        found += [t.dtype for t in (*model.parameters(), *model.buffers())]
    floats = [_real(d) for d in found if d.is_floating_point or d.is_complex]
    return min(floats, key=lambda d: d.itemsize, default=None)


class Widened:
    """The model in another precision.

    `how` says which way worked; None with `why_not` set means that no way did.
    """

    def __init__(self, model: Any, dtype: torch.dtype, deployed: torch.dtype) -> None:
        self.dtype, self.deployed = dtype, deployed
        self.why_not = ""
        self.narrow_ops: set[str] = set()
        self._model: Any = None
        self._converting = False
        self._prepare(model)

    def _prepare(self, model: Any) -> None:
        import torch

        if not isinstance(model, torch.nn.Module):
            self._model = model
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's own, about copying its own exported modules
                self._model = copy.deepcopy(model)
            self._model._apply(lambda t: cast(t, self.dtype))
        except Exception as error:
            self.why_not = f"the model cannot be copied to {_name(self.dtype)}: {described(error)}"

    @property
    def available(self) -> bool:
        return self._model is not None

    def run(self, args: Any, kwargs: Any) -> Any:
        """The result of the call, every floating input cast; None if no way works: see `why_not`."""
        import torch
        from torch.utils import _pytree

        args, kwargs = _pytree.tree_map(lambda v: cast(v, self.dtype), (args, kwargs))
        with buffers_kept(self._model):
            result = self._run(args, kwargs)
            # copied before buffers are put back, which an output may be
            return _pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, result)

    def _run(self, args: Any, kwargs: Any) -> Any:
        if self._model is not None and not self._converting:
            try:
                with trusted_alone(self.dtype, self.deployed):
                    return self._model(*args, **kwargs)
            except Exception as error:
                self._failed(error)
                # dtypes are written into the forward (x.float(), a traced cast): convert operator by operator
                self._converting = True
        if self._model is not None:
            try:
                with widened(self.dtype, self.deployed, self.narrow_ops):
                    return self._model(*args, **kwargs)
            except Exception as error:
                self._failed(error, final=True)
        return None

    def _failed(self, error: Exception, final: bool = False) -> None:
        narrowing = self.dtype.itemsize < self.deployed.itemsize
        if final or narrowing:
            self.why_not = f"the model does not run in {_name(self.dtype)}: {described(error)}"
            self._model = None


def widened(dtype: torch.dtype, deployed: torch.dtype, narrow_ops: set[str]) -> Any:
    """A mode in which every operator computes in `dtype`, whatever dtypes are written into the model.

    Dtypes narrower than the deployed one stay: there the rounding is meant. An operator without a kernel for
    `dtype` runs in the deployed dtype instead, and its name goes to `narrow_ops`.
    """
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    def wide(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            ours = value.is_floating_point and deployed.itemsize <= value.itemsize < dtype.itemsize
            return dtype if ours else value
        if isinstance(value, torch.Tensor) and wide(value.dtype) != value.dtype:
            return value.to(dtype)
        return value

    def narrow(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(deployed) if value.dtype == dtype else value
        return value

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            wide_args, wide_kwargs = _pytree.tree_map(wide, (args, kwargs))
            try:
                result = func(*wide_args, **wide_kwargs)
                _expect_trusted(func, wide_args, wide_kwargs, result, dtype, deployed)
            except Exception:  # no kernel for the dtype: C++ and Python kernels say so in many ways
                if func._schema.is_mutable:
                    raise  # the mutation would go to a copy
                narrow_args, narrow_kwargs = _pytree.tree_map(narrow, (args, kwargs))
                result = func(*narrow_args, **narrow_kwargs)
                narrow_ops.add(str(func.name()))
            if func._schema.is_mutable:
                return result
            return _pytree.tree_map(wide, result)

    return Mode()  # type: ignore[no-untyped-call,unused-ignore]


class _Untrusted(Exception):
    """What an operator gives in the wider dtype is no result."""


def trusted_alone(dtype: torch.dtype, deployed: torch.dtype) -> Any:
    """A mode that raises at an operator whose results in `dtype` are not those of the deployed one: see `widened`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            _expect_trusted(func, args, kwargs or {}, result, dtype, deployed)
            return result

    return Mode() if any(True for _ in _without(dtype)) else nullcontext()  # type: ignore[no-untyped-call,unused-ignore]


def _without(dtype: torch.dtype) -> Iterator[Any]:
    """The declared operators that do not take the dtype."""
    from ...symbolic import registry

    for op in registry.all_operators():
        if not any(_name(dtype) in types for types in op.types.variables.values()):
            yield op


def _expect_trusted(
    func: Any, args: Any, kwargs: Any, result: Any, dtype: torch.dtype, deployed: torch.dtype
) -> None:
    """Raises `_Untrusted` for an operator that is declared without `dtype`, takes it, and gives what is more than a tenth off.

    A kernel that reads memory by address takes the bytes for those of its own dtype.
    """
    import torch
    from torch.utils import _pytree

    if (
        dtype.itemsize <= deployed.itemsize
        or getattr(func, "namespace", "aten") in ("aten", "prims")
        or func._schema.is_mutable
    ):
        return
    if not any(op.overload == func for op in _without(dtype)):
        return

    def narrow(value: Any) -> Any:
        return cast(value, deployed) if isinstance(value, torch.Tensor) and value.dtype == dtype else value

    narrow_args, narrow_kwargs = _pytree.tree_map(narrow, (args, kwargs))
    own = _pytree.tree_leaves(func(*narrow_args, **narrow_kwargs))
    if any(_off(a, b) for a, b in zip(own, _pytree.tree_leaves(result), strict=True)):
        raise _Untrusted(f"{func.name()} does not take {_name(dtype)}")


def _off(own: Any, wide: Any) -> bool:
    """Whether two results are more than a tenth apart, root mean squares of what is finite in the first."""
    import torch

    if not (isinstance(own, torch.Tensor) and isinstance(wide, torch.Tensor) and own.is_floating_point()):
        return False
    if own.shape != wide.shape:
        return True
    finite = own.isfinite()
    own, wide = own[finite].double(), wide[finite].double()
    return not bool((own - wide).square().sum() <= 0.01 * own.square().sum())


def nudged(args: Any, kwargs: Any, seed: int) -> tuple[Any, Any] | None:
    """The same call with every floating input moved by at most two units in its last place.

    The values stay what they were; the roundings inside the model fall anew. None if there is no such input.
    """
    import torch
    from torch.utils import _pytree

    generator = torch.Generator().manual_seed(seed)
    anything = False

    def move(value: Any) -> Any:
        nonlocal anything
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.itemsize < 2:
            return value
        anything = True
        noise = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 4 - 2
        step = torch.finfo(value.dtype).eps
        return (value.double() * (1 + noise * step)).to(value.dtype)

    moved: tuple[Any, Any] = _pytree.tree_map(move, (args, dict(kwargs)))
    return moved if anything else None


def cast(value: Any, dtype: torch.dtype) -> Any:
    """A floating or complex tensor in another precision; anything else as it is."""
    import torch

    if isinstance(value, torch.Tensor) and value.is_complex():
        return value.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return value


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def described(error: BaseException) -> str:
    """The type and the message on one line, cut where it gets long."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
