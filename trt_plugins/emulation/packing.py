"""Between tensors and calls: arguments as plain bytes with their shapes, and outputs back as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...native.signature import kernel_rows
from ...symbolic import dtypes
from .calls import Call, Memory
from .faults import KernelRefusal

if TYPE_CHECKING:
    import torch

    from ...symbolic.operator import Operator

__all__ = ["packed", "unpacked"]


def packed(
    op: Operator,
    number: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    how: tuple[int, int, int, int],
    like: Sequence[torch.Tensor] | None,
) -> tuple[Call, list[torch.Tensor]]:
    interface = op.interface
    bound = interface.bind(args, kwargs)
    shapes = list(like) if like is not None else _fake_outputs(op, args, kwargs)
    names = [i.name for i in interface.inputs]
    overwritten = [None if o.mutates is None else names.index(o.mutates) for o in interface.outputs]
    flat = interface.flat_inputs(bound)
    slots = [i.name for i in interface.inputs if i.form != "variadic"]
    inputs = tuple(
        None if t is None else _memory(slots[k] if k < len(slots) else f"input {k}", t, k in overwritten)
        for k, t in enumerate(flat)
    )
    outputs: list[Memory | int] = []
    for o, t, source in zip(interface.outputs, shapes, overwritten, strict=True):
        outputs.append(source if source is not None else _memory(o.name, t, content=False))
    kinds = [(a.name, a.onnx_type) for a in interface.attributes]
    kinds += [(name, "INT") for name in interface.count_attributes]
    attributes = tuple((kind, bound.attributes.get(name)) for name, kind in kinds)
    tactic, seed, workers, alignment = how
    call = Call(
        number,
        _row(op, bound.tensors),
        tactic,
        seed,
        workers,
        alignment,
        inputs,
        attributes,
        tuple(outputs),
    )
    return call, shapes


def _memory(name: str, t: torch.Tensor, overwritten: bool = False, content: bool = True) -> Memory:
    import torch

    data = None
    if content:
        plain = t.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        data = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    size = t.numel() * t.element_size()
    return Memory(
        f"`{name}`", tuple(t.shape), dtypes.onnx_number(t.dtype), t.element_size(), size, data, overwritten
    )


def unpacked(content: bytes, like: torch.Tensor) -> torch.Tensor:
    import torch

    if not content:
        return torch.empty(tuple(like.shape), dtype=like.dtype)
    flat = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return flat.view(like.dtype).reshape(tuple(like.shape))


def _fake_outputs(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Tensors with the outputs' shapes and dtypes, without data."""
    import torch
    from torch._subclasses import FakeTensorMode

    from ...symbolic.checking.sample_runs import map_tensors

    with FakeTensorMode() as mode:
        fakes = [map_tensors(a, lambda t: mode.from_tensor(t)) for a in args]
        named = {n: map_tensors(a, lambda t: mode.from_tensor(t)) for n, a in kwargs.items()}
        positional = [n for n in op.interface.arguments if n not in op.interface.keyword_only]
        result = op(*fakes, **named)
        outputs = op.flatten_outputs(result, dict(zip(positional, fakes, strict=False)) | named)
        shapes = [(tuple(o.shape), o.dtype) for o in outputs]
    if not all(isinstance(s, int) for sizes, _ in shapes for s in sizes):
        raise UsageError(
            f"{op.name}: the size of an output depends on the data: the emulation needs it before"
        )
    return [torch.empty(sizes, dtype=dtype, device="meta") for sizes, dtype in shapes]


def _row(op: Operator, tensors: Mapping[str, Any]) -> int:
    """The number of the kernel for these dtypes; an absent input goes with the others of its type."""
    types = op.types
    found: dict[str, str] = {}
    for name, value in tensors.items():
        for t in value if isinstance(value, (list, tuple)) else [value]:
            if t is None:
                continue
            dtype = dtypes.name_of(t.dtype)
            if found.setdefault(types.of_input[name], dtype) != dtype:
                raise KernelRefusal(
                    f"{op.name}: `{name}` is {dtype}; expected {found[types.of_input[name]]}, as the others"
                )
    wanted = {
        name: found.get(variable) or types.variables[variable][0] for name, variable in types.of_input.items()
    }
    for number, row in enumerate(kernel_rows(op)):
        if dict(row.inputs) == wanted:
            return number
    known = "; ".join(row.label for row in kernel_rows(op))
    raise KernelRefusal(
        f"{op.name} has no kernel for {', '.join(dict.fromkeys(wanted.values()))}; it has {known}"
    )
