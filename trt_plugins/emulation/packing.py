"""Between tensors and calls: arguments as plain bytes with their shapes, and outputs back as tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...native.data_sizes import data_sizes, size_names
from ...native.signature import kernel_rows
from ...symbolic import dtypes
from ...symbolic.bounded_outputs import bounded_outputs
from .calls import Call, Manner, Memory
from .faults import KernelFault, KernelRefusal

if TYPE_CHECKING:
    import torch

    from ...symbolic.interface import BoundCall
    from ...symbolic.operator import Operator

__all__ = ["Expected", "fake_outputs", "kernel_row", "packed", "unpacked"]

_INT32 = 6  # TensorProto.DataType


@dataclass(frozen=True, slots=True)
class Expected:
    """What comes out of a call: the outputs without data, and of each dim the number of the size that the data decides."""

    outputs: Sequence[torch.Tensor]
    sizes: Sequence[tuple[int | None, ...]]
    size_names: Sequence[str]


def packed(
    op: Operator,
    number: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    manner: Manner,
    like: Sequence[torch.Tensor] | None,
) -> tuple[Call, Expected]:
    interface = op.interface
    bound = interface.bind(args, kwargs)
    decided = data_sizes(op)
    if decided is not None or op.shape_inputs:
        shapes = _bounded_outputs(op, bound)
    else:
        shapes = list(like) if like is not None else fake_outputs(op, args, kwargs)
    sizes = size_names(op)
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
    outputs += [Memory(f"`{name}`", (), _INT32, 4, 4) for name in sizes]
    kinds = [(a.name, a.onnx_type) for a in interface.attributes]
    kinds += [(name, "INT") for name in interface.count_attributes]
    attributes = tuple((kind, bound.attributes.get(name)) for name, kind in kinds)
    call = Call(number, kernel_row(op, bound.tensors), manner, inputs, attributes, tuple(outputs))
    numbers = [() if decided is None else decided.numbers[o.name] for o in interface.outputs]
    return call, Expected(shapes, numbers, sizes)


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


def unpacked(op: Operator, contents: Sequence[bytes], expected: Expected) -> list[torch.Tensor]:
    """The outputs as tensors, with the sizes that the kernel wrote.

    Raises KernelFault where it wrote none that can be.
    """
    written = [int.from_bytes(c, "little", signed=True) for c in contents[len(expected.outputs) :]]
    made = []
    for output, content, like, numbers in zip(
        op.interface.outputs, contents, expected.outputs, expected.sizes, strict=False
    ):
        shape = list(like.shape)
        for dim, number in enumerate(numbers):
            if number is None:
                continue
            if not 0 <= written[number] <= shape[dim]:
                raise KernelFault(
                    f"{op.name}: the kernel leaves {written[number]} in `{expected.size_names[number]}`, which is dim {dim} of "
                    f"`{output.name}`; expected 0 to {shape[dim]}, its upper bound here"
                )
            shape[dim] = written[number]
        made.append(_tensor(content, like, shape))
    return made


def _tensor(content: bytes, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A dense tensor of this shape, from the beginning of the content."""
    import torch

    size = like.element_size() * math.prod(shape)
    if not size:
        return torch.empty(tuple(shape), dtype=like.dtype)
    flat = torch.frombuffer(bytearray(content[:size]), dtype=torch.uint8)
    return flat.view(like.dtype).reshape(tuple(shape))


def _bounded_outputs(op: Operator, bound: BoundCall) -> list[torch.Tensor]:
    """Tensors without data, with the sizes that the data decides at their upper bounds, and those that shape inputs say."""
    import torch

    return [
        torch.empty(o.dims or (), dtype=dtypes.torch_dtype(o.dtype or ""), device="meta")  # type: ignore[arg-type]
        for o in bounded_outputs(op, bound)
    ]


def fake_outputs(op: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
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
            f"{op.name}: the data decides the size of an output: declare its upper bound (@op.bound)"
        )
    return [torch.empty(sizes, dtype=dtype, device="meta") for sizes, dtype in shapes]


def kernel_row(op: Operator, tensors: Mapping[str, Any]) -> int:
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
