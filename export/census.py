"""One run of the original model before it is traced: which operators it calls, and from which lines.

A trace stops at its first obstacle. The run lets every missing declaration be reported at once, and finds
what a trace hides: random operators, and modules that compute with the statistics of the batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import ExportError
from .branches import compiled_apart, run_watched
from .buffers import buffers_kept
from .promises import Promises, is_custom
from .user_code import user_line

__all__ = ["Census", "draws", "take_census"]

_WIDTHS = ("bfloat16", "float16", "float32", "float64")
_CHECK_INPUT = "Check the inputs (--input): dtypes, sizes and their order"


@dataclass(slots=True)
class Census:
    """What one run showed. Operators by overload, with the user's line that called each first."""

    outputs: Any = None
    custom: dict[Any, str | None] = field(default_factory=dict)
    random: dict[str, str | None] = field(default_factory=dict)  # torch's own, by name
    promises: Promises = field(default_factory=Promises)
    narrowest: str = "float64"  # of the floating point types it computes in
    has_branches: bool = False  # torch.cond and the like
    branch_functions: dict[str, None] = field(
        default_factory=dict
    )  # autograd.Functions in them with a `symbolic`
    failed_branches: list[str | None] = field(default_factory=list)  # lines that a branch not chosen fails at
    written_buffers: list[str] = field(default_factory=list)
    # Places among the leaves of the call, of those whose changed tensor is not returned.
    written_inputs: list[int] = field(default_factory=list)

    @property
    def is_random(self) -> bool:
        """Whether two runs of the model differ."""
        return bool(self.random or self.promises.random)


def take_census(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    advise: Callable[[], str | None] = lambda: None,
) -> Census:
    """Run `model` once without gradient. Its buffers are put back as they were.

    Raises ExportError where the model itself fails on these inputs, with what `advise` has to say, and where a
    custom operator breaks what it promises (see `Promises`).
    """
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    census = Census()

    class Watch(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not isinstance(func, torch._ops.OpOverload):
                census.has_branches = True
                return run_watched(
                    self, func, args, kwargs or {}, census.failed_branches.append, census.branch_functions
                )
            if is_custom(func):
                if func not in census.custom:
                    census.custom[func] = user_line()
                result = census.promises.call(func, args, kwargs or {})
            else:
                if torch.Tag.nondeterministic_seeded in func.tags and draws(func, args):
                    census.random.setdefault(str(func).split(".")[1], user_line())
                result = func(*args, **(kwargs or {}))
            for value in result if isinstance(result, (tuple, list)) else (result,):
                dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
                if dtype in _WIDTHS and _WIDTHS.index(dtype) < _WIDTHS.index(census.narrowest):
                    census.narrowest = dtype
            return result

    leaves, spec = pytree.tree_flatten((args, kwargs))
    leaves = [v.clone() if isinstance(v, torch.Tensor) else v for v in leaves]
    versions = [getattr(v, "_version", 0) for v in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    with (
        compiled_apart(lambda: census.has_branches),
        torch.no_grad(),
        buffers_kept(model) as census.written_buffers,
        Watch(),  # type: ignore[no-untyped-call]
    ):
        try:
            outputs = model(*args, **kwargs)
            results = [v for v in pytree.tree_leaves(outputs) if isinstance(v, torch.Tensor)]
            returned = {
                k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor) and _is_among(v, results)
            }
            # copied before buffers are put back, which an output may be
            census.outputs = pytree.tree_map(
                lambda v: v.clone() if isinstance(v, torch.Tensor) else v, outputs
            )
        except ExportError:
            raise
        except Exception as e:
            where = user_line(e)
            reason = (str(e).strip().splitlines() or [""])[0]
            raise ExportError(
                f"the model itself fails on these inputs: {type(e).__name__}: {reason}"
                + (f"\n  at {where}" if where else "")
                + f"\n  {_unknown_operator(e) or advise() or _CHECK_INPUT}"
            ) from e
    census.written_inputs = [
        k
        for k, v in enumerate(leaves)
        if isinstance(v, torch.Tensor) and v._version != versions[k] and k not in returned
    ]
    return census


def _is_among(tensor: Any, results: list[Any]) -> bool:
    """Whether a result is `tensor` itself, or lies in the same memory in the same order."""
    return any(
        r is tensor
        or (
            r.layout == tensor.layout == _strided()
            and (r.data_ptr(), r.dtype, r.shape, r.stride())
            == (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        )
        for r in results
    )


def _strided() -> Any:
    import torch

    return torch.strided


def _unknown_operator(error: Exception) -> str | None:
    found = re.search(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'", str(error))
    if found is None:
        return None
    return (
        f"torch knows no operator {found[1]}::{found[2]}: give its library with --load-library LIB.so "
        "(torch.ops.load_library), or the Python module that defines it with --ops MODULE (import it)"
    )


def draws(func: Any, args: Any) -> bool:
    """Whether a random operator really draws: dropout in eval mode and with p = 0 does not."""
    name = str(func)
    if "dropout" in name and len(args) > 2:
        return bool(args[2]) and args[1] != 0
    if "scaled_dot_product" in name:  # its dropout_p is 0 in eval mode
        return any(isinstance(a, float) and a > 0 for a in args[4:6])
    if "rrelu" in name:
        return len(args) > 4 and bool(args[4])
    return True
