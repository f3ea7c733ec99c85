"""The gradient of an adopted operator: whether torch has one, and an autograd.Function's own `backward` as one.

A Function keeps in `ctx` what its `forward` calculated. The torch operator that is made of it has no ctx while
it runs, so `forward` is run a second time, with the real one, where a gradient is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError

if TYPE_CHECKING:
    from .operator import Operator

__all__ = ["register_backward", "why_no_gradient"]


def why_no_gradient(op: Operator) -> str | None:
    """Why there is no gradient of this operator to speak of; None where there is one."""
    import torch
    from torch._library.custom_ops import _maybe_get_opdef

    if op.stateful:
        return "stateful"
    if op.interface.mutates:
        return "it writes into an argument: torch allows it no gradient"
    if op.no_gradient is not None:
        return op.no_gradient
    if op.custom_op is not None:
        return None
    definition = _maybe_get_opdef(op.overload)
    if definition is not None:
        return None if definition._backward_fn is not None else "it has no gradient"
    # A library in C++, or torch.library.define: its gradient is a kernel of its own.
    name = str(op.overload.name())
    keys = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys):
        return None
    return "it has no gradient"


def register_backward(
    op: Operator, cls: Any, forward: Callable[..., Any], definition: Any, takes_ctx: bool
) -> None:
    """Make `cls.backward` the gradient of the operator adopted from `cls`; notes in `op` where that cannot be.

    `definition` is what `torch.library.custom_op` made of it.
    """
    import torch

    if cls.backward is torch.autograd.Function.backward:
        op.no_gradient = "it has no gradient: the class has no `backward`"
    elif op.interface.variadics:
        op.no_gradient = "an autograd.Function gives no gradient to lists of tensors"
    elif op.stateful and takes_ctx:
        op.no_gradient = "stateful: its forward cannot be run a second time for its `backward`"
    if op.no_gradient is not None:
        return
    names = op.interface.arguments

    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: Any, keyword_only_inputs: Mapping[str, Any] | None = None
    ) -> None:
        if takes_ctx:
            with torch.no_grad():
                forward(ctx, *inputs)
        else:
            cls.setup_context(ctx, inputs, output)

    def run(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        result = cls.backward(ctx, *grads)
        result = result if isinstance(result, tuple) else (result,)
        if len(result) < len(names) or any(r is not None for r in result[len(names) :]):
            raise DeclarationError(
                f"{op.name}: {cls.__qualname__}.backward returned {len(result)} gradients; its forward has "
                f"{len(names)} arguments ({', '.join(names)}), each needs one (None where there is none)"
            )
        return result[: len(ctx.needs_input_grad)]

    definition.register_autograd(run, setup_context=setup_context)
