"""Every torch operator that a call of a model runs, with the path of the module it runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

__all__ = ["operators_seen"]

See = Callable[[str, Any, Any, Any, Any], None]


@contextmanager
def operators_seen(see: See) -> Iterator[None]:
    """Call `see(module path, operator, args, kwargs, result)` after each operator that runs inside.

    The path is that of the innermost module, from the first module that is called; empty outside of one.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    names: dict[int, str] = {}
    stack: list[str] = []

    def enter(module: Any, _: Any) -> None:
        if not names:
            names.update((id(m), n) for n, m in module.named_modules())
        if id(module) in names:
            stack.append(names[id(module)])

    def leave(module: Any, _: Any, __: Any) -> None:
        if id(module) in names and stack:
            stack.pop()

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            see(stack[-1] if stack else "", func, args, kwargs or {}, result)
            return result

    with ExitStack() as stacked:
        for hook in (
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ):
            stacked.callback(hook.remove)
        stacked.enter_context(Mode())  # type: ignore[no-untyped-call,unused-ignore]
        yield
