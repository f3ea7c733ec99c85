"""Operators that exist in torch already are adopted: schema, fake kernel and gradient stay where they are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from . import autograd_functions, registry
from .adopted_gradient import register_backward
from .declared_functions import checked_result
from .onnx_names import camel_case
from .operator import Operator
from .torch_schema import infer_schema
from .type_rules import DeclaredDtypes

if TYPE_CHECKING:
    import torch

__all__ = ["adopt"]


def adopt(
    target: Any,
    *,
    onnx: str | None = None,
    version: int = 1,
    dtypes: DeclaredDtypes = None,
    outputs: Sequence[str] | None = None,
    stateful: bool = False,
    name: str | None = None,
    schema: str | None = None,
) -> Operator:
    """Declare an operator that torch knows already.

    ::

        op = adopt("acme::nms", onnx="acme::NonMaximum", dtypes={"boxes, scores": ("float32",)})

        @op.samples
        def _(draw): ...

    Args:
        target: ``"ns::op"`` or ``"ns::op.overload"``; `torch.ops.ns.op` or an overload of it; what
            `torch.library.custom_op` or `triton_op` returned; or a `torch.autograd.Function` class. Libraries
            in C++ must have been loaded (`torch.ops.load_library`, on the command line `--load-library`).
        onnx: the ONNX operator, ``domain::Type``; by default the namespace and the name in CamelCase.
        dtypes: what the tensor inputs may be (see `operator`); None: anything, each input its own (checks then
            draw in those of float32, float64, float16 and bfloat16 that the operator takes).
        name, schema: for an `autograd.Function`: its torch name ``ns::op`` and, where `forward` has no
            annotations, its schema ``(Tensor x, float lam) -> Tensor``.

    Raises:
        DeclarationError: no such operator, several overloads, no fake kernel can be had, or a signature that
            ONNX cannot carry.
    """
    if isinstance(target, type):
        return _adopt_class(target, onnx, version, dtypes, outputs, stateful, name, schema)
    if name is not None or schema is not None:
        raise DeclarationError("adopt: `name` and `schema` are for autograd.Function classes only")
    overload = _find(target)
    qualname = str(overload.name())
    namespace, _, short = qualname.partition("::")
    if namespace in ("aten", "prims"):
        raise DeclarationError(f"{qualname} is an operator of torch itself, which torch.onnx translates")
    onnx_name = onnx or f"{namespace}::{camel_case(short.split('.')[0])}"
    source = _caller()
    registry.refuse_twice(qualname, onnx_name, source)
    op = Operator(
        qualname,
        onnx=onnx_name,
        version=version,
        overload=overload,
        reference=overload,
        dtypes=dtypes,
        outputs=outputs,
        stateful=stateful,
        source=source,
    )
    op.has_fake = has_fake(overload)
    op.has_backward = True
    registry.add(op)
    return op


def has_fake(overload: Any) -> bool:
    """Whether torch can tell the operator's output shapes without running it."""
    import torch
    from torch._library.custom_ops import _maybe_get_opdef
    from torch._library.simple_registry import singleton
    from torch._library.utils import can_generate_trivial_fake_impl

    name = str(overload.name())
    if can_generate_trivial_fake_impl(overload):  # it writes into its arguments and returns nothing
        return True
    definition = _maybe_get_opdef(overload)
    if definition is not None:  # torch.library.custom_op registers a fake kernel that only raises
        return definition._abstract_fn is not None
    entry = singleton.find(name)
    if entry is not None and entry.fake_impl.kernel is not None:
        return True
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):
        return True
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"))


def _find(target: Any) -> Any:
    import torch

    if isinstance(target, Operator):
        raise DeclarationError(f"{target.name} is declared already; there is nothing to adopt")
    if isinstance(target, torch._ops.OpOverload):
        return target
    packet = getattr(target, "_opoverload", None)  # torch.library.custom_op, triton_op
    if packet is not None:
        return packet
    overload = None
    if isinstance(target, str):
        match = re.fullmatch(r"(\w+)::(\w+)(?:\.(\w+))?", target)
        if not match:
            raise DeclarationError(f"adopt({target!r}): expected `ns::op`, or `ns::op.overload`")
        namespace, short, overload = match.groups()
        try:
            target = getattr(getattr(torch.ops, namespace), short)
        except AttributeError:
            raise DeclarationError(
                f"torch knows no operator {namespace}::{short}. Import the module that defines it, or load its library: "
                "torch.ops.load_library('lib.so'), on the command line --load-library lib.so"
            ) from None
    if not isinstance(target, torch._ops.OpOverloadPacket):
        raise DeclarationError(
            f"adopt({target!r}): expected a name `ns::op`, a torch operator, or an autograd.Function class"
        )
    overloads = target.overloads()
    if overload is None and len(overloads) > 1:
        raise DeclarationError(
            f"{target} has the overloads {', '.join(overloads)}: adopt each by its name, `ns::op.{overloads[0]}`"
        )
    chosen = overload or overloads[0]
    if chosen not in overloads:
        raise DeclarationError(f"{target} has no overload `{chosen}`; it has {', '.join(overloads)}")
    return getattr(target, chosen)


def _caller() -> str:
    """The file that called `adopt`: who declares twice is told where."""
    for frame in inspect.stack()[2:]:
        if frame.frame.f_globals.get("__name__") != __name__:
            return frame.filename
    return ""


def _adopt_class(
    cls: Any,
    onnx: str | None,
    version: int,
    dtypes: DeclaredDtypes,
    outputs: Sequence[str] | None,
    stateful: bool,
    name: str | None,
    schema: str | None,
) -> Operator:
    """An autograd.Function: a torch operator is made of its `forward`, and exports call that instead."""
    import torch

    if not issubclass(cls, torch.autograd.Function):
        raise DeclarationError(f"adopt({cls.__qualname__}): expected a subclass of torch.autograd.Function")
    takes_ctx = cls.setup_context is torch.autograd.Function.setup_context
    forward = cls.forward

    def run(*args: Any, **kwargs: Any) -> Any:
        result = forward(_NoContext(), *args, **kwargs) if takes_ctx else forward(*args, **kwargs)
        return checked_result(op.name, f"forward of {cls.__qualname__}", result, op.returns, torch.Tensor)

    if name is None:
        domain, _, op_type = (onnx or "").rpartition("::")
        if not domain or not re.fullmatch(r"[A-Za-z_]\w*", domain):
            raise DeclarationError(
                f"adopt({cls.__qualname__}): give onnx='domain::Type', or name='ns::op' where the domain is no identifier"
            )
        name = f"{domain}::{_snake_case(op_type)}"
    if schema is None:
        signature = inspect.signature(forward)
        parameters = list(signature.parameters.values())[1 if takes_ctx else 0 :]
        bare = [p.name for p in parameters if p.annotation is inspect.Parameter.empty]
        if bare or signature.return_annotation is inspect.Signature.empty:
            what = f"annotations for {', '.join(bare)}" if bare else "a return annotation"
            raise DeclarationError(
                f"adopt({cls.__qualname__}): its forward lacks {what}. Add them, or give the torch schema: "
                "schema='(Tensor x, float lam) -> Tensor'"
            )
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = forward.__annotations__
        run.__wrapped__ = forward  # type: ignore[attr-defined]  # where textual annotations are looked up
        schema = infer_schema(name, run, ())
        del run.__wrapped__  # type: ignore[attr-defined]
    onnx_name = onnx or f"{name.partition('::')[0]}::{camel_case(name.partition('::')[2])}"
    source = inspect.getsourcefile(cls) or ""
    registry.refuse_twice(name, onnx_name, source)
    custom_op = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    # forward itself is the shape rule, where it is made of torch operators; `op.fake` replaces it
    torch.library.register_fake(name, run)
    op = Operator(
        name,
        onnx=onnx_name,
        version=version,
        overload=custom_op._opoverload,
        reference=run,
        dtypes=dtypes,
        outputs=outputs,
        stateful=stateful,
        doc=inspect.getdoc(cls) or "",
        source=source,
    )
    op.has_backward = True  # the class's own
    register_backward(op, cls, forward, custom_op, takes_ctx)
    registry.add(op)
    autograd_functions.adopt_class(cls, op)
    return op


class _NoContext:
    """Stands for `ctx` outside autograd: takes whatever forward stores, keeps nothing of torch's."""

    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: torch.Tensor) -> None: ...

    def save_for_forward(self, *tensors: torch.Tensor) -> None: ...

    def mark_dirty(self, *tensors: torch.Tensor) -> None:
        raise DeclarationError(
            "forward writes into its argument (mark_dirty): declare it with @operator(mutates=...)"
        )

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
