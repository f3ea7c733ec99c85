"""The plan of a plugin library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..native.cuda_plan import CudaPlan, CudaUnit, cuda_unit

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["make_plan"]


def make_plan(
    operators: Sequence[Operator], begin: Callable[[Sequence[CudaUnit]], None] | None = None
) -> CudaPlan:
    """The plan for these operators. Raises UsageError and DeclarationError with what stands in the way.

    `begin`: called with the kernels as soon as they are known, before the shape rules, which take longer, are derived.
    """
    from ..native.kernel_files import find_kernel, kernel_places
    from .carried import carried_by_tensorrt, plugin_shapes
    from .generated import kernel_source, launcher_symbol, plugin_table
    from .plugin_entry import describe

    carried = [carried_by_tensorrt(op) for op in operators]
    files = [find_kernel(op, ".cuh") for op in operators]
    units = tuple(
        cuda_unit(op, file, kernel_source(op, file.name), launcher_symbol(op))
        for op, file in zip(carried, files, strict=True)
    )
    if begin is not None:
        begin(units)
    shapes = {op.name: plugin_shapes(op) for op in carried}
    return CudaPlan(
        units,
        tuple(op.onnx_name for op in carried),
        plugin_table(carried, shapes),
        tuple(describe(op, shapes[op.name]) for op in carried),
        tuple(str(place) for op in operators for place in kernel_places(op, ".cuh") if not place.is_file()),
        _notes(operators),
    )


def _notes(operators: Sequence[Operator]) -> tuple[str, ...]:
    from ..native.observed_shapes import untold_attributes
    from .carried import left_out

    dropped: dict[tuple[str, ...], list[str]] = {}
    for op in operators:
        if left_out(op):
            dropped.setdefault(left_out(op), []).append(op.name)
    return (
        *(
            f"without {', '.join(types)}, which TensorRT's tensors cannot be: {', '.join(names)}"
            for types, names in dropped.items()
        ),
        *(
            f"{op.name}: every sample has the same `{name}`, so whether other texts give outputs of other shapes was "
            "not seen: let a sample have another one"
            for op in operators
            for name in untold_attributes(op)
        ),
    )
