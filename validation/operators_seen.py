"""Every torch operator that a call of a model runs, with the module and the torch function that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Place", "operators_seen"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator runs.

    Attributes:
        path: of the innermost module, from the first module that is called; empty for that one, and outside of one.
        module: the innermost one; None outside of one.
        function: the torch function that the model's code calls, such as "torch.nn.functional.dropout"; may be empty.
    """

    path: str = ""
    module: Any = None
    function: str = ""


See = Callable[[Place, Any, Any, Any, Any], None]


@contextmanager
def operators_seen(see: See) -> Iterator[None]:
    """Call `see(place, operator, args, kwargs, result)` after each operator that runs inside."""
    import torch
    from torch.overrides import TorchFunctionMode, resolve_name
    from torch.utils._python_dispatch import TorchDispatchMode

    names: dict[int, str] = {}
    modules: list[Any] = []
    functions: list[str] = []

    def enter(module: Any, _: Any) -> None:
        if not names:
            names.update((id(m), n) for n, m in module.named_modules())
        if id(module) in names:
            modules.append(module)

    def leave(module: Any, _: Any, __: Any) -> None:
        if id(module) in names and modules:
            modules.pop()

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            functions.append(resolve_name(func) or str(func))
            try:
                return func(*args, **(kwargs or {}))
            finally:
                functions.pop()

    class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call,unused-ignore]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            module = modules[-1] if modules else None
            place = Place(names.get(id(module), ""), module, functions[-1] if functions else "")
            see(place, func, args, kwargs or {}, result)
            return result

    with ExitStack() as stacked:
        for hook in (
            torch.nn.modules.module.register_module_forward_pre_hook(enter),
            torch.nn.modules.module.register_module_forward_hook(leave, always_call=True),
        ):
            stacked.callback(hook.remove)
        stacked.enter_context(Functions())
        stacked.enter_context(Operators())  # type: ignore[no-untyped-call,unused-ignore]
        yield
