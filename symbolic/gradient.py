"""The gradient of a declared operator, as torch's autograd wants it.

A backward function gets the gradient of every output, then the operator's own arguments, and returns one
gradient for each tensor argument, in order. Where none is declared, autograd runs through the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from .declared_functions import call_with

if TYPE_CHECKING:
    from .operator import Operator

__all__ = ["register"]


def register(op: Operator, backward: Callable[..., Any] | None) -> None:
    """Give the torch operator its gradient: `backward`, or autograd through the reference."""
    import torch

    names = op.interface.arguments
    tensor_names = [n for n in names if any(i.name == n for i in op.interface.inputs)]

    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: Any, keyword_only_inputs: Mapping[str, Any] | None = None
    ) -> None:
        values = dict(zip([n for n in names if n not in op.interface.keyword_only], inputs, strict=True))
        values |= keyword_only_inputs or {}
        # Tensors go through save_for_backward, or autograd would neither free them nor see them change.
        flat: list[torch.Tensor] = []
        ctx.layout = []
        for name in names:
            value = values[name]
            if isinstance(value, torch.Tensor):
                ctx.layout.append((name, "tensor", None))
                flat.append(value)
            elif name in tensor_names and isinstance(value, (list, tuple)):
                ctx.layout.append((name, "list", len(value)))
                flat.extend(value)
            else:
                ctx.layout.append((name, "value", value))
        ctx.save_for_backward(*flat)

    def run(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        values = {}
        for name, form, extra in ctx.layout:
            values[name] = (
                next(saved)
                if form == "tensor"
                else [next(saved) for _ in range(extra)]
                if form == "list"
                else extra
            )
        given = list(grads)
        if backward is None:
            results = _through_reference(op, given, values, tensor_names)
        else:
            results = _as_tuple(call_with(backward, given, values, op.interface.keyword_only))
            if len(results) != len(tensor_names):
                got = (
                    f"{len(results)} gradients" if results != (None,) else "nothing (is a `return` missing?)"
                )
                raise DeclarationError(
                    f"{op.name}: backward returned {got}; the operator has "
                    f"{len(tensor_names)} tensor arguments ({', '.join(tensor_names)}), "
                    "each needs one (None where there is none)"
                )
        fitted = {n: _fit(op, n, g, values[n]) for n, g in zip(tensor_names, results, strict=True)}
        # torch wants one entry per argument it was given (it leaves defaults out), an empty list for an
        # empty list.
        positional = [n for n in names if n not in op.interface.keyword_only][: len(ctx.needs_input_grad)]
        return tuple(fitted.get(n, [] if values[n] == [] else None) for n in positional)

    op.custom_op.register_autograd(run, setup_context=setup_context)


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _fit(op: Operator, name: str, gradient: Any, value: Any) -> Any:
    """A gradient has its argument's dtype and shape; a wrong shape is a wrong formula, never broadcast."""
    import torch

    if isinstance(value, (list, tuple)):
        if gradient is None:
            return [None] * len(value)
        if not isinstance(gradient, (list, tuple)):
            raise DeclarationError(
                f"{op.name}: backward gave {type(gradient).__name__} for `{name}`, which is a list of {len(value)}: "
                "return a list of gradients"
            )
        if len(gradient) != len(value):
            raise DeclarationError(
                f"{op.name}: backward gave {len(gradient)} gradients for `{name}`, a list of {len(value)}"
            )
        return [_fit(op, name, g, v) for g, v in zip(gradient, value, strict=True)]
    if gradient is None or not isinstance(value, torch.Tensor):
        return None
    if not isinstance(gradient, torch.Tensor):
        raise DeclarationError(
            f"{op.name}: backward gave {gradient!r} ({type(gradient).__name__}) for `{name}`; expected a tensor, or None "
            "where there is no gradient"
        )
    if gradient.shape != value.shape:
        raise DeclarationError(
            f"{op.name}: backward gave a gradient of shape {tuple(gradient.shape)} for `{name}`, "
            f"whose shape is {tuple(value.shape)}; sum over the broadcast dims"
        )
    return gradient.to(value.dtype)


def _through_reference(
    op: Operator, grads: Sequence[Any], values: dict[str, Any], tensor_names: Sequence[str]
) -> tuple[Any, ...]:
    """Gradients by autograd through the reference; differentiable again where that is asked for."""
    import torch

    again = torch.is_grad_enabled()
    leaves: list[torch.Tensor] = []

    def enter(v: Any) -> Any:
        if isinstance(v, (list, tuple)):
            return [enter(e) for e in v]
        if not isinstance(v, torch.Tensor) or not (v.is_floating_point() or v.is_complex()):
            return v
        # A view of the saved tensor keeps its history, which a second derivative needs; else start afresh.
        leaf = v.view_as(v) if again and v.requires_grad else v.detach().requires_grad_(v.requires_grad)
        if leaf.requires_grad:
            leaves.append(leaf)
        return leaf

    with torch.enable_grad():
        entered = {n: enter(values[n]) if n in tensor_names else values[n] for n in values}
        args = [entered[n] for n in op.interface.arguments if n not in op.interface.keyword_only]
        kwargs = {n: entered[n] for n in op.interface.keyword_only}
        outputs = op.flatten_outputs(op.reference(*args, **kwargs), {})
        flat_grads = [g for grad in grads for g in (grad if isinstance(grad, (list, tuple)) else [grad])]
        pairs = [
            (o, g) for o, g in zip(outputs, flat_grads, strict=True) if o.requires_grad and g is not None
        ]
        found = iter(
            torch.autograd.grad(
                [o for o, _ in pairs], leaves, [g for _, g in pairs], create_graph=again, allow_unused=True
            )
            if pairs and leaves
            else [None] * len(leaves)
        )

    def leave(v: Any) -> Any:
        if isinstance(v, (list, tuple)):
            return [leave(e) for e in v]
        return next(found) if isinstance(v, torch.Tensor) and any(v is leaf for leaf in leaves) else None

    return tuple(leave(entered[n]) for n in tensor_names)
