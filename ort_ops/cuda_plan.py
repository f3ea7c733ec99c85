"""The plan of a library of CUDA kernels for ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import DeclarationError
from ..native.cuda_plan import CudaPlan, cuda_unit
from ..native.levels import Level
from ..native.planning import TAKE_OTHERS

if TYPE_CHECKING:
    from ..symbolic.operator import Operator

__all__ = ["cuda_kernels", "make_cuda_plan"]

_ON_DEVICE = Level("cuda", (), "true")  # to the table of a library, CUDA is one level that fits always


def make_cuda_plan(operators: Sequence[Operator]) -> CudaPlan:
    """The plan for these operators. Raises UsageError and DeclarationError with what stands in the way."""
    from ..native.generated import entries_symbol, operator_table
    from ..native.kernel_files import find_kernel, kernel_places
    from ..native.shape_rules import shape_rules
    from ..native.signature import check_compilable
    from .build_plan import check_carried, shape_notes
    from .manifest_writer import describe

    for op in operators:
        check_compilable(op)
        check_carried(op)
    files = [find_kernel(op, ".cuh") for op in operators]
    rules = {op.name: shape_rules(op) for op in operators}
    return CudaPlan(
        tuple(
            cuda_unit(op, file, cuda_kernels(op, file.name), entries_symbol(op, _ON_DEVICE.name))
            for op, file in zip(operators, files, strict=True)
        ),
        tuple(op.onnx_name for op in operators),
        operator_table(operators, rules, [_ON_DEVICE]),
        tuple(map(describe, operators)),
        tuple(str(place) for op in operators for place in kernel_places(op, ".cuh") if not place.is_file()),
        tuple(note for op in operators for note in shape_notes(op, rules[op.name])),
    )


def cuda_kernels(op: Operator, kernel_file: str) -> str:
    """The source of an operator's CUDA object, for nvcc and for the emulation alike: entries as the table knows them.

    Raises DeclarationError where the size of an output is known only to the kernel.
    """
    from ..native.cuda_signature import cuda_entries
    from ..native.generated import entries_symbol
    from ..native.rendering import template
    from ..native.shape_rules import FromKernel, shape_rules
    from ..native.signature import kernel_rows

    by_kernel = [name for name, rule in shape_rules(op).items() if isinstance(rule, FromKernel)]
    if by_kernel:
        raise DeclarationError(
            f"{op.name}: the size of `{by_kernel[0]}` is known only after the kernel ran. ONNX Runtime allocates outputs "
            "before, and nothing waits for the GPU here: leave the operator out of the library for CUDA "
            f"({TAKE_OTHERS}). In a model it runs as its body of standard operators, where it has one"
        )
    rows = template("cuda_kernels.cpp.j2").render(
        symbol=entries_symbol(op, _ON_DEVICE.name), rows=kernel_rows(op)
    )
    return cuda_entries(op, kernel_file) + rows
