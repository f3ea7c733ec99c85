"""What custom operators promise, held against what they do: shapes and dtypes of their fake kernels, no writes
and no random numbers that are not declared.

A wrong promise passes silently otherwise: the trace believes it, and a later operator may hide it from the outputs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ExportError
from ..symbolic import registry
from .branches import run_watched
from .graph.logs import FAKE_LOGGER, quiet
from .user_code import user_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Promises", "custom_operators", "is_custom"]

_TORCHS = ("aten", "prims", "prim", "profiler", "onnx", "onnx_symbolic")
_COPIED = 1 << 24  # elements; of larger arguments every so-many-th row is compared


def custom_operators(program: ExportedProgram) -> list[Any]:
    """The overloads of somebody's that a traced program calls, in branches too."""
    import torch

    found = [
        node.target
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and is_custom(node.target)
    ]
    return list(dict.fromkeys(found))


def is_custom(overload: Any) -> bool:
    """Whether the operator is somebody's: neither torch's own nor a placeholder of its exporter."""
    return overload.namespace not in _TORCHS


@dataclass(slots=True)
class Promises:
    """Calls of custom operators, each kind of call (operator, shapes, dtypes, constants) looked at once.

    `random` collects those that give other results for the same arguments, with the user's line.
    """

    random: dict[Any, str | None] = field(default_factory=dict)
    _seen: set[Any] = field(default_factory=set)

    def call(self, overload: Any, args: Any, kwargs: Any) -> Any:
        """Call the operator. Raises ExportError where it breaks what it or its fake kernel promises."""
        import torch
        from torch.utils import _pytree as pytree

        leaves = pytree.tree_leaves((args, kwargs))
        key = (overload, *(_kind(v) for v in leaves))
        if key in self._seen:
            return overload(*args, **kwargs)
        self._seen.add(key)
        promised = _promised(overload, args, kwargs)
        before = _copies(leaves)
        result = overload(*args, **kwargs)
        if not overload._schema.is_mutable:
            _refuse_writes(overload, args, kwargs, leaves, before)
        if promised is not None:
            _compare(overload, promised[0], pytree.tree_leaves(result))
        if not overload._schema.is_mutable and overload not in self.random:
            again = pytree.tree_leaves(overload(*args, **kwargs))
            pairs = zip(pytree.tree_leaves(result), again, strict=False)
            if any(isinstance(a, torch.Tensor) and not _close(a, b) for a, b in pairs):
                self.random[overload] = user_line()
        return result

    def unproved(self, operators: Iterable[Any]) -> list[Any]:
        """Those that no run has called: they stand in a branch that none took."""
        called = {key[0] for key in self._seen}
        return [op for op in operators if op not in called]

    def watch(self) -> Any:
        """A mode under which every call of a custom operator is looked at."""
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        promises = self

        class Watch(TorchDispatchMode):
            supports_higher_order_operators = True

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if hasattr(func, "namespace") and hasattr(func, "_schema") and is_custom(func):
                    return promises.call(func, args, kwargs or {})
                if not isinstance(func, torch._ops.OpOverload):
                    return run_watched(self, func, args, kwargs or {})
                return func(*args, **(kwargs or {}))

        return Watch()  # type: ignore[no-untyped-call]


def _kind(value: Any) -> Any:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else (tuple(shape), value.dtype, tuple(value.stride()))


def _promised(overload: Any, args: Any, kwargs: Any) -> tuple[list[Any]] | None:
    """What the fake kernel returns for these arguments; None where there is none, or it raises."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils import _pytree as pytree

    mode = FakeTensorMode(shape_env=ShapeEnv())
    mode.cache_enabled = False

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return mode.from_tensor(value.detach(), static_shapes=True)

    try:
        args, kwargs = pytree.tree_map(fake, (args, kwargs))
        with mode, quiet(FAKE_LOGGER, level=logging.CRITICAL):
            return (pytree.tree_leaves(overload(*args, **kwargs)),)
    except Exception:  # the trace meets it too, and says where
        return None


def _compare(overload: Any, promised: list[Any], real: list[Any]) -> None:
    import torch

    fault = None
    if len(promised) != len(real):
        fault = f"{len(real)} results; its fake kernel promises {len(promised)}"
    for k, (f, r) in enumerate(zip(promised, real, strict=False)):
        if fault or not (isinstance(f, torch.Tensor) and isinstance(r, torch.Tensor)):
            continue
        # a size that the data decide is a symbol, and fits any
        fits = f.dim() == r.dim() and all(
            not isinstance(a, int) or a == b for a, b in zip(f.shape, r.shape, strict=True)
        )
        if f.dtype != r.dtype or not fits:
            which = f" as result {k}" if len(real) > 1 else ""
            fault = f"{_text(r)}{which}; its fake kernel promises {_text(f)} for the same inputs"
    if fault:
        raise ExportError(
            f"{overload.name()} returns {fault}{_at(user_line())}. The exported file would hold the wrong one: correct the "
            "fake kernel, or the operator"
        )


def _text(tensor: Any) -> str:
    sizes = ", ".join(str(s) if isinstance(s, int) else "?" for s in tensor.shape)
    return f"{str(tensor.dtype).removeprefix('torch.')}[{sizes}]"


def _copies(leaves: list[Any]) -> list[Any]:
    import torch

    return [_sample(v).clone() if isinstance(v, torch.Tensor) else None for v in leaves]


def _sample(tensor: Any) -> Any:
    if tensor.layout is not _strided() or tensor.numel() <= _COPIED:
        return tensor
    return tensor[:: -(-tensor.numel() // _COPIED)]


def _strided() -> Any:
    import torch

    return torch.strided


def _refuse_writes(overload: Any, args: Any, kwargs: Any, leaves: list[Any], before: list[Any]) -> None:
    from torch.utils import _pytree as pytree

    written = {
        id(v) for v, old in zip(leaves, before, strict=True) if old is not None and not _same(_sample(v), old)
    }
    if not written:
        return
    given = dict(zip((a.name for a in overload._schema.arguments), args, strict=False)) | dict(kwargs)
    names = [n for n, v in given.items() if any(id(leaf) in written for leaf in pytree.tree_leaves(v))]
    declared = "mutates" if registry.by_overload(overload) is not None else "mutates_args"
    raise ExportError(
        f"{overload.name()} writes into its argument {', '.join(f'`{n}`' for n in names)} without declaring it"
        f"{_at(user_line())}: a trace loses such a write. Let it work on a copy (`.clone()`), or declare it: "
        f"{declared}=({', '.join(repr(n) for n in names)},)"
    )


def _same(a: Any, b: Any) -> bool:
    """Equal, NaN to NaN; what cannot be compared counts as equal."""
    try:
        return bool(((a == b) | ((a != a) & (b != b))).all())
    except (RuntimeError, NotImplementedError):
        return True


def _close(a: Any, b: Any) -> bool:
    """Equal but for the order of a sum."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if _same(a, b):
        return True
    try:
        return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True))
    except (RuntimeError, NotImplementedError):
        return False


def _at(where: str | None) -> str:
    return f", at {where}" if where else ""
