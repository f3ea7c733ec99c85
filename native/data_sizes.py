"""Outputs whose size the data decides, for kernels that cannot allocate: memory for the largest, and a number that says
how much of it counts.

::

    template <class T>
    cudaError_t positives(Stream stream, In<T> x, Out<T> y, Out<int32_t> size);

`y` has its declared upper bound as its size (`@op.bound`). The kernel writes the real one, a single number in the device's
memory, into `size`; several sizes are `size0`, `size1`, in the order in which the fake kernel asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError
from ..symbolic.data_sizes import FORMULA_ADVICE, BoundError, size_number
from ..symbolic.data_sizes import DataSizes as SizesOf
from ..symbolic.fake_run import ShapeError, run_fake
from .observed_shapes import given_calls, tensor_infos
from .shape_rules import FromKernel, ShapeRule, shape_rules

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["DataSizes", "data_sizes", "expect_bounds", "size_names", "sized_by_kernel"]


@dataclass(frozen=True, slots=True)
class DataSizes:
    """Sizes that the data decides, numbered as the fake kernel asks for them.

    Attributes:
        count: how many there are.
        numbers: for each output and each of its dims the size that it is; None where shapes decide.
        bound: the rule of every output, with the sizes at their upper bound.
        usual: with the sizes that TensorRT tunes for, where they are declared.
    """

    count: int
    numbers: Mapping[str, tuple[int | None, ...]]
    bound: Mapping[str, ShapeRule]
    usual: Mapping[str, ShapeRule] | None

    def decided(self, output: str) -> bool:
        """Whether the data decides a dim of this output."""
        return any(n is not None for n in self.numbers[output])


def data_sizes(op: Operator) -> DataSizes | None:
    """The sizes that the data decides, with their bounds; None where there are none, or no bound is declared.

    Raises DeclarationError where they cannot be carried, with the reason.
    """
    if op.bound_function is None:
        if op.usual_function is not None:
            raise BoundError(
                f"{op.name}: @op.usual is declared without @op.bound: declare how large these sizes can be, too"
            )
        return None
    if op.shape_inputs:
        raise DeclarationError(
            f"{op.name}: it has shape inputs ({', '.join(op.shape_inputs)}), and sizes that the data decides: a plugin has one or "
            "the other, as it cannot tell an upper bound from values that it does not see when it runs"
        )
    numbers = _numbers(op)
    _hold_for_samples(op)
    bound = shape_rules(op, "bound")
    usual = None if op.usual_function is None else shape_rules(op, "usual")
    for what, rules in (("upper bound", bound), ("usual size", usual or {})):
        for name, rule in rules.items():
            if isinstance(rule, FromKernel) and any(n is not None for n in numbers[name]):
                raise DeclarationError(
                    f"{op.name}: the {what} of `{name}` is no formula of the inputs' sizes: {rule.reason}"
                    + (f". {FORMULA_ADVICE}" if "formula" in rule.reason else "")
                )
    return DataSizes(_count(numbers), numbers, bound, usual)


def _hold_for_samples(op: Operator) -> None:
    """Raises DeclarationError where what is declared refuses a sample: for varied shapes a refusal is none."""
    declared: tuple[SizesOf, ...] = ("bound",) if op.usual_function is None else ("bound", "usual")
    for which in declared:
        for shapes, attributes in given_calls(op, "bound"):
            try:
                run_fake(op, tensor_infos(op, shapes), attributes, {}, which)
            except BoundError:  # noqa: PERF203
                raise
            except ShapeError:  # the fake kernel refuses this sample: `ops check` says so
                continue


def sized_by_kernel(op: Operator) -> list[str]:
    """Outputs whose shapes are known only after the kernel ran, upper bounds neither. Raises as `data_sizes`."""
    sizes = data_sizes(op)
    rules = shape_rules(op, "bound") if sizes is None else sizes.bound
    return [name for name, rule in rules.items() if isinstance(rule, FromKernel)]


def size_names(op: Operator) -> tuple[str, ...]:
    """What the kernel's parameters for the sizes are called; none where no bound is declared."""
    if op.bound_function is None:
        return ()
    count = _count(_numbers(op))
    taken = {*op.interface.arguments, *(o.name for o in op.interface.outputs)}
    stem = "size"
    while any(stem == name.rstrip("0123456789") for name in taken):
        stem += "_"
    return (stem,) if count == 1 else tuple(f"{stem}{k}" for k in range(count))


def _count(numbers: Mapping[str, tuple[int | None, ...]]) -> int:
    return len({n for dims in numbers.values() for n in dims if n is not None})


def _numbers(op: Operator) -> dict[str, tuple[int | None, ...]]:
    """For each output and dim the number of its size. The same for every sample, or DeclarationError."""
    key: Any = "data sizes"
    if key not in op.shape_cache:
        op.shape_cache[key] = _read_numbers(op)
    found: dict[str, tuple[int | None, ...]] = op.shape_cache[key]
    return found


def _read_numbers(op: Operator) -> dict[str, tuple[int | None, ...]]:
    names = [o.name for o in op.interface.outputs]
    seen: dict[str, tuple[int | None, ...]] = {}
    for shapes, attributes in given_calls(op, "named"):
        try:
            outputs = run_fake(op, tensor_infos(op, shapes), attributes, {}, "named").outputs
        except ShapeError:
            continue
        for name, info in zip(names, outputs, strict=True):
            if None in (info.dims or ()):
                raise DeclarationError(
                    f"{op.name}: the data decides a dim of `{name}`, and the fake kernel does not ask for it: use "
                    "torch.library.get_ctx().new_dynamic_size()"
                )
            try:
                numbers = tuple(size_number(d) for d in info.dims or ())
            except DeclarationError as e:
                raise DeclarationError(f"{op.name}: of `{name}` {e}") from None
            decided = any(n is not None for n in (*numbers, *seen.get(name, ())))
            if seen.setdefault(name, numbers) != numbers and decided:
                raise DeclarationError(
                    f"{op.name}: for some samples the data decides other dims of `{name}` than for others; a plugin needs the "
                    "same ones always"
                )
    if not seen:
        raise DeclarationError(
            f"{op.name} has no samples, from which its shapes could be learnt (`@op.samples`)"
        )
    used = {n for dims in seen.values() for n in dims if n is not None}
    if not used or used != set(range(len(used))):
        raise DeclarationError(
            f"{op.name}: @op.bound is declared, and "
            + (f"size {min(set(range(len(used))) - used)}" if used else "no size")
            + " that the fake kernel asks for (torch.library.get_ctx().new_dynamic_size()) is a dim of an output"
        )
    return seen


def expect_bounds(op: Operator) -> None:
    """Raises DeclarationError where the size of an output is known only after the kernel ran, with no bound declared."""
    by_kernel = sized_by_kernel(op)
    if by_kernel:
        raise DeclarationError(
            f"{op.name}: the size of `{by_kernel[0]}` is known only after the kernel ran, and a launcher does not wait "
            "for it: declare its upper bound"
        )
